"""onchip: exact attention whose N×N scores never leave the chip.

Arrays may be NumPy's, PyTorch's, CuPy's, or any that DLPack describes, in host memory or on a CUDA device. They are
never copied. docs/semantics.md specifies the function, docs/python.md shows the package.
"""
from . import _core, _errors
from ._errors import Error, InternalError, InvalidArgument, OutOfMemory, Unsupported

_core.set_error_types(InvalidArgument, Unsupported, OutOfMemory, InternalError)

from ._attention import Gradients, attention, backward, decode, explain, merge, record  # noqa: E402
from ._command import doctor, traffic  # noqa: E402

__version__: str = _core.version()
__all__ = ["Error", "Gradients", "InternalError", "InvalidArgument", "OutOfMemory", "Unsupported", "attention", "backward",
           "decode", "doctor", "explain", "merge", "record", "traffic"]
