"""What Python does with the bytes of tensors behind torch's operators, told to the step program that runs."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable

import torch

_Method = Callable[..., Any]
_TAP = torch._C.DispatchKey.ZeroTensor  # the key under which the step program sees operators


def _tell(tensor: torch.Tensor, how: str) -> None:
    plain = tensor.layout is torch.strided and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    # Under a mode, as where torch.compile traces, tensors are none of the step.
    if plain and torch._C._len_torch_dispatch_stack() == 0 and hasattr(torch.ops.berth, how):
        with torch.no_grad():
            getattr(torch.ops.berth, how)(tensor.detach())


def _tolist(method: _Method) -> _Method:
    @functools.wraps(method)
    def tolist(self: torch.Tensor) -> Any:
        here = self.detach().cpu()
        _tell(here, "read_bytes")
        return method(here)
    return tolist


def _numpy(method: _Method) -> _Method:
    @functools.wraps(method)
    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        here = self.detach().cpu() if force else self
        if here.device.type == "cpu":
            _tell(here, "share_bytes")
        return method(here, force=force)
    return numpy


def _repr(method: _Method) -> _Method:
    @functools.wraps(method)
    def __repr__(self: torch.Tensor, **kwargs: Any) -> Any:
        _tell(self, "read_bytes")
        # Its operators are none of the step.
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_TAP)):
            return method(self, **kwargs)
    return __repr__


def _pointer(method: _Method) -> _Method:
    @functools.wraps(method)
    def pointer(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _tell(self, "give_pointer")
        return method(self, *args, **kwargs)
    return pointer


def _by_element(method: _Method) -> _Method:
    @functools.wraps(method)
    def by_element(self: torch.Tensor, *args: Any) -> Any:
        # They call Python for each element, and write the result behind torch's operators.
        for tensor in (self, *args):
            if isinstance(tensor, torch.Tensor):
                _tell(tensor, "share_bytes")
        return method(self, *args)
    return by_element


# Others go through these: storage(), __array__(), copy.deepcopy(), pickle.
_WATCHED = {"tolist": _tolist, "__repr__": _repr, "numpy": _numpy, "__dlpack__": _pointer, "data_ptr": _pointer, "untyped_storage": _pointer,
            "apply_": _by_element, "map_": _by_element, "map2_": _by_element}
_lock = threading.Lock()
_watches = 0
_before: dict[str, Any] = {}  # what torch.Tensor itself had; None where it inherited


class Watch:
    """While one is entered, methods of torch.Tensor tell. They cost nothing otherwise. Thread-safe."""

    def __enter__(self) -> None:
        global _watches
        with _lock:
            _watches += 1
            if _watches > 1:
                return
            for name, telling in _WATCHED.items():
                _before[name] = torch.Tensor.__dict__.get(name)
                setattr(torch.Tensor, name, telling(getattr(torch.Tensor, name)))

    def __exit__(self, *_: object) -> None:
        global _watches
        with _lock:
            _watches -= 1
            if _watches > 0:
                return
            for name, before in _before.items():
                if before is None:
                    delattr(torch.Tensor, name)
                else:
                    setattr(torch.Tensor, name, before)
