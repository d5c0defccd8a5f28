"""The command line that the package carries, and what of it is a function."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ._errors import InternalError, InvalidArgument

_COMMAND = Path(__file__).parent / "bin" / "onchip"


def main() -> None:
    """The console script `onchip`: becomes the command."""
    os.execv(_COMMAND, [str(_COMMAND), *sys.argv[1:]])


def _report(*arguments: str) -> dict[str, Any]:
    run = subprocess.run([_COMMAND, *arguments, "--json"], capture_output=True, text=True)
    if run.returncode == 0:
        return json.loads(run.stdout)
    raise (InvalidArgument if run.returncode == 2 else InternalError)(run.stderr.strip())


def doctor(measure: bool = False) -> dict[str, Any]:
    """What this machine has, what that enables, what is missing and how to get it. measure: also the CPU's peaks."""
    return _report("doctor", *(["--measure"] if measure else []))


def traffic(machine: str = "H200", *, causal: bool = False, window: tuple[int, int] | None = None,
            tile: tuple[int, int] | None = None, **options: Any) -> dict[str, Any]:
    """Bytes that each memory level of a machine moves for standard and for tiled attention (docs/traffic.md).

    machine: a name, "host" or a JSON file. Options as of `onchip traffic`: batch, seqlen_q, seqlen_k, heads, kv_heads,
    head_dim, head_dim_v, dtype, kv_dtype, score_dtype, pass_ ("forward", "backward"), cluster, heads_per_tile, splits.
    Raises InvalidArgument.
    """
    arguments = ["traffic", "--machine", machine]
    if causal:
        arguments.append("--causal")
    for name, pair in (("--window", window), ("--tile", tile)):
        if pair is not None:
            arguments += [f"{name}={pair[0]},{pair[1]}"]
    for name, value in options.items():
        arguments.append(f"--{name.rstrip('_').replace('_', '-')}={value}")
    return _report(*arguments)
