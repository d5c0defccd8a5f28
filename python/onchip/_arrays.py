"""New arrays of the library that an argument is from, and that library's current stream."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np


def library_of(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _torch(array: Any):
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def current_stream(array: Any) -> int:
    """The CUstream that the array's library queues work on now; 0 in host memory and for libraries without one."""
    if isinstance(array, np.ndarray):
        return 0
    torch = _torch(array)
    if torch is not None:
        return torch.cuda.current_stream(array.device).cuda_stream if array.is_cuda else 0
    if library_of(array) == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    return 0


def empty(like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """An array beside `like`, of the type of `like` or of the named one ("float32", "float64", "bfloat16")."""
    if isinstance(like, np.ndarray):
        return np.empty(shape, like.dtype if dtype is None else dtype)
    torch = _torch(like)
    if torch is not None:
        return torch.empty(shape, dtype=like.dtype if dtype is None else getattr(torch, dtype), device=like.device)
    if library_of(like) == "cupy":
        return sys.modules["cupy"].empty(shape, like.dtype if dtype is None else dtype)
    raise TypeError(f"out: none given for {type(like)}, whose arrays onchip cannot make: expected NumPy, PyTorch or CuPy")


def is_double(array: Any) -> bool:
    return str(array.dtype).endswith("float64")


def is_e4m3(array: Any) -> bool:
    return "float8_e4m3" in str(array.dtype)
