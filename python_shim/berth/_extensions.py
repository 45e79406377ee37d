"""Functions of extension modules that use libtorch: they read and write tensors by pointers, so they are called as barriers of step programs."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.machinery
import mmap
import os
import sys
import threading
import types
from typing import Any, Callable, Iterator

import torch

_Function = Callable[..., Any]
_loader: Any = importlib.machinery.ExtensionFileLoader
_OWN = (os.path.dirname(torch.__file__), os.path.dirname(__file__))
_OF_CLASSES = ("instancemethod", "method_descriptor", "builtin_function_or_method", "nb_method")
_library = torch.library.Library("berth", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("call_function(Tensor[] tensors) -> ()")  # type: ignore[no-untyped-call]
_here = threading.local()  # `call`: what the operator does; `within`: a function runs
_watching: list[Callable[[], bool]] = []  # whether steps may run now


@torch.library.impl(_library, "call_function", "CompositeExplicitAutograd")
def _call_function(_: list[torch.Tensor]) -> None:
    _here.call()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _as_barrier(function: _Function) -> _Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (
            not _watching[0]()
            or getattr(_here, "within", False)
            or torch._C._len_torch_dispatch_stack() > 0
            or torch.compiler.is_compiling()
        ):
            return function(*args, **kwargs)
        result: list[Any] = []
        keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        gradients = torch.is_grad_enabled()

        def run() -> None:
            _here.within = True
            try:
                with torch._C._ForceDispatchKeyGuard(*keys), torch.set_grad_enabled(gradients):
                    result.append(function(*args, **kwargs))
            finally:
                _here.within = False

        before = getattr(_here, "call", None)
        _here.call = run
        try:
            with torch.no_grad():
                torch.ops.berth.call_function([one.detach() for one in _tensors([args, kwargs])])
        finally:
            _here.call = before
        return result.pop()

    return call


def _uses_torch(path: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(b"N3c10") >= 0  # names of its symbols
    return False


_seen: set[int] = set()  # modules


def _wrap(module: types.ModuleType) -> None:
    path = str(vars(module).get("__file__") or "")
    if id(module) in _seen or path.startswith(_OWN):
        return
    _seen.add(id(module))
    if not _uses_torch(path):
        return
    torch.ops.berth.watch_backward()
    wrapped: dict[int, _Function] = {}
    for name, member in list(vars(module).items()):
        if isinstance(member, type):
            for method, function in list(vars(member).items()):
                if type(function).__name__ in _OF_CLASSES and (
                    method in ("__init__", "__call__") or method[:2] != "__"
                ):
                    with contextlib.suppress(AttributeError, TypeError):
                        setattr(member, method, _as_barrier(function))
        elif callable(member) and not isinstance(member, types.FunctionType) and name[:2] != "__":
            wrapped[id(member)] = _as_barrier(member)
    for other in (module, *list(sys.modules.values())):
        for name, member in list(vars(other).items()) if issubclass(type(other), types.ModuleType) else ():
            if id(member) in wrapped:
                setattr(other, name, wrapped[id(member)])


def _loads(exec_module: _Function) -> _Function:
    @functools.wraps(exec_module)
    def call(self: Any, module: types.ModuleType) -> None:
        exec_module(self, module)
        _wrap(module)

    return call


def all_objects() -> list[Any]:
    """Of Python, as far as gc knows them. Objects that gc.freeze() hides are no longer frozen then."""
    if gc.get_freeze_count() > 0:
        gc.unfreeze()
    return gc.get_objects()


def watch_extensions(watching: Callable[[], bool]) -> None:
    """Modules that are there and those that come. `watching`: whether steps may run now. The first call counts."""
    if _watching:
        return
    _watching.append(watching)
    for one in all_objects():  # torch's own loader of extensions leaves them out of sys.modules
        if issubclass(type(one), types.ModuleType) and isinstance(vars(one).get("__loader__"), _loader):
            _wrap(one)
    _loader.exec_module = _loads(_loader.exec_module)
