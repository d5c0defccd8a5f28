#!/usr/bin/env python3
"""Sentence embeddings of all-MiniLM-L6-v2 with every layer's attention computed by onchip, held against the model's own.

Prints, for each sentence, the cosine with the embedding from NumPy attention and, for the sentences that ship, with the
embedding from the model's own package. Exit status 1 if any cosine is below 0.99999.
"""
import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from minilm import InputError, MiniLM, read_lines, write_tensors

HERE = Path(__file__).resolve().parent
SENTENCES = HERE / "sentences.txt"
PACKAGE_EMBEDDINGS = HERE / "sentences.embeddings.safetensors"
MIN_COSINE = 0.99999


def find_onchip():
    """The release build of this checkout, else the command on PATH, else None."""
    built = HERE.parents[1] / "build/release/bin/onchip"
    return str(built) if built.is_file() else shutil.which("onchip")


def onchip_attention(binary, backend):
    """A function like minilm.numpy_attention that runs `onchip attend` once a call."""

    def attend(q, k, v, seqused_k):
        with tempfile.TemporaryDirectory(prefix="onchip-minilm-") as folder:
            source, result = Path(folder, "in.safetensors"), Path(folder, "out.safetensors")
            write_tensors(source, {"q": q, "k": k, "v": v, "seqused_k": seqused_k})
            status = subprocess.run([binary, "attend", source, "-o", result, "--backend", backend], stdout=subprocess.DEVNULL).returncode
            if status != 0:
                raise InputError(f"{binary} attend: exit status {status}")
            return load_file(result)["o"]

    return attend


def cosines(a, b):
    """Cosine of each row of a with the same row of b, in float64 so that rounding here stays far below what is being measured."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", type=Path, default=SENTENCES, help="UTF-8, one sentence a line (default: %(default)s)")
    parser.add_argument("--onchip", default=find_onchip(), help="the onchip command (default: build/release/bin/onchip, else from PATH)")
    parser.add_argument("--backend", default="auto", help="passed to `onchip attend` (default: %(default)s)")
    args = parser.parse_args()
    if args.onchip is None:
        parser.error("no onchip command in build/release/bin or on PATH; build it or name it with --onchip")
    sentences = read_lines(args.text)

    model = MiniLM()
    own = {"NumPy attention": model.embed(sentences)}
    if args.text.resolve() == SENTENCES:
        own["own package"] = load_file(PACKAGE_EMBEDDINGS)["embeddings"]
    ours = model.embed(sentences, onchip_attention(args.onchip, args.backend))

    columns = [cosines(ours, embeddings) for embeddings in own.values()]
    print("cosine with:  " + "  ".join(f"{name:>15}" for name in own))
    for sentence, *row in zip(sentences, *columns):
        print(" " * 14 + "  ".join(f"{cosine:15.9f}" for cosine in row) + f"  {sentence[:60]}")
    # A NaN is below nothing, so ask what holds instead of what fails.
    holds = all(cosine >= MIN_COSINE for column in columns for cosine in column)
    print(f"every cosine >= {MIN_COSINE}" if holds else f"FAILED: a cosine is below {MIN_COSINE}")
    return 0 if holds else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InputError, OSError) as error:
        sys.exit(f"embed.py: {error}")
