"""What onchip raises. Every message names the argument, its value and what was expected."""


class Error(Exception):
    """Any failure of a call; no result was written."""


class InvalidArgument(Error, ValueError):
    """An argument is not what the contract (docs/semantics.md) allows."""


class Unsupported(Error, NotImplementedError):
    """No implementation takes the problem; the message has each one's reason."""


class OutOfMemory(Error, MemoryError):
    """An allocation failed."""


class InternalError(Error, RuntimeError):
    """A fault of the library, the driver or the compiler of kernels."""
