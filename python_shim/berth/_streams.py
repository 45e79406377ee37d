"""Tells the running step program that Python orders work between streams, which passes no operator of torch.

An operator of a step is not put off behind an event (csrc/torch/step/streams.h). Waiting for a stream or a device is a
barrier. Events that C++ records are not seen here: autograd's, those of collectives.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Any, Callable

import torch

_Method = Callable[..., Any]

_ORDER, _WAIT, _REPLAY = "order_streams", "wait_for_device", "run_as_written"
_GRAPH = "a CUDA graph is replayed, whose kernels have pointers"

# Methods by class and name. Those of torch.Event and torch.Stream are those of all devices.
_METHODS = {
    "torch.Event": {"record": _ORDER, "wait": _ORDER},
    "torch.Stream": {
        "record_event": _ORDER,
        "wait_event": _ORDER,
        "wait_stream": _ORDER,
        "query": _ORDER,
        "synchronize": _WAIT,
    },
    "torch.cuda.CUDAGraph": {"replay": _REPLAY},
}
_BY_NAME = {"torch.cuda.Event": "torch.Event", "torch.cuda.Stream": "torch.Stream"}  # with methods of their own
# Of torch._C: torch.cuda.synchronize() and torch.accelerator.synchronize() call these.
_FUNCTIONS = {"_cuda_synchronize": _WAIT, "_accelerator_synchronizeDevice": _WAIT}


def _telling(method: _Method, how: str, tell: Callable[..., None]) -> _Method:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        tell(how, *((_GRAPH,) if how is _REPLAY else ()))
        return method(*args, **kwargs)

    return call


class MethodsOf:
    """A class that takes no attributes. Its dictionary takes methods."""

    def __init__(self, of: type) -> None:
        self._of = of

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_of":
            object.__setattr__(self, name, value)
            return
        gc.get_referents(self._of.__dict__)[0][name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(self._of))


def _find(path: str) -> Any:
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name, None)
    return found


def watch_streams(tell: Callable[..., None], before: list[tuple[Any, str, Any]]) -> None:
    """Wraps the methods from now on. The former ones are added to `before`, for setattr()."""
    for path in (*_METHODS, *_BY_NAME):
        of = _find(path)
        if not isinstance(of, type):
            continue
        for name, how in _METHODS[_BY_NAME.get(path, path)].items():
            if (method := of.__dict__.get(name)) is not None:
                before.append((MethodsOf(of), name, method))
                setattr(MethodsOf(of), name, _telling(method, how, tell))
    for name, how in _FUNCTIONS.items():
        if (function := getattr(torch._C, name, None)) is not None:
            before.append((torch._C, name, function))
            setattr(torch._C, name, _telling(function, how, tell))
