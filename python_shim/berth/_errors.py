"""The exceptions of berth. A text names the request, the state and the limit in one line."""

import sys


class Error(RuntimeError):
    """Any error of berth's."""


class UsageError(Error, ValueError):
    """A wrong argument or setting, or a call out of order."""


class InputError(Error, ValueError):
    """A file that cannot be read, is damaged, or is not legal."""


class SystemFailure(Error, OSError):
    """A system or driver call that failed."""


class OutOfMemoryError(Error, MemoryError):
    """Memory is exhausted, in a program without PyTorch; else it is torch.OutOfMemoryError."""


# As the adapters number them (csrc/torch/adapter.h).
_KINDS: dict[int, type[Error]] = {2: UsageError, 3: InputError, 4: SystemFailure, 5: OutOfMemoryError}


# What operators throw that a step program runs.
_OPERATORS: dict[int, type[Exception]] = {
    16: RuntimeError,
    17: IndexError,
    18: ValueError,
    19: TypeError,
    20: NotImplementedError,
}


def error_of(code: int, text: str) -> Exception:
    """The exception for the answer of an adapter."""
    if code in _OPERATORS:
        return _OPERATORS[code](text)
    kind = _KINDS.get(code, SystemFailure)
    torch = sys.modules.get("torch")
    if kind is OutOfMemoryError and torch is not None:
        out_of_memory: Exception = torch.OutOfMemoryError(text)
        return out_of_memory
    return kind(text)
