"""Every snippet of the interface pages that names a program stands in it, line for line, and none lacks a program."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["docs/cpp_api.md", "docs/c_api.md"]
FENCE = re.compile(r"(?:<!-- (?P<source>\S+) -->\n)?```(?P<language>\w*)\n(?P<code>.*?)```", re.S)


def faults(page):
    text = (ROOT / page).read_text()
    checked = 0
    for fence in FENCE.finditer(text):
        if fence["language"] not in ("c", "cpp"):
            continue
        checked += 1
        where = f"{page}:{text.count(chr(10), 0, fence.start()) + 1}"
        if fence["source"] is None:
            yield f"{where}: snippet without the program it is from"
        elif fence["code"] not in (ROOT / fence["source"]).read_text():
            yield f"{where}: snippet is not in {fence['source']}"
    if checked == 0:
        yield f"{page}: no snippet found"


found = [fault for page in PAGES for fault in faults(page)]
print("\n".join(found))
sys.exit(1 if found else 0)
