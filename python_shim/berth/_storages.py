"""Tells the running step program that Python uses the bytes of a storage."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch

_Tells = Callable[[Any, str], None]

# Methods that use no bytes: they count them, or tell storages apart. What is shared, written to a file or resized is watched apart.
_NO_BYTES = {
    "__len__",
    "__new__",
    "_expired",
    "_fix_weakref",
    "_free_weak_ref",
    "_get_filename",
    "_new_shared_cuda",
    "_new_shared_fd_cpu",
    "_new_shared_filename_cpu",
    "_new_using_fd_cpu",
    "_new_using_filename_cpu",
    "_new_with_file",
    "_new_with_weak_ptr",
    "_release_ipc_counter_cuda",
    "_set_cdata",
    "_share_fd_cpu_",
    "_share_filename_cpu_",
    "_shared_decref",
    "_shared_incref",
    "_weak_ref",
    "_write_file",
    "element_size",
    "from_buffer",
    "from_file",
    "is_shared",
    "nbytes",
    "new",
    "resizable",
    "resize_",
}
# Methods that use the bytes of their storage until they return: read or written. Any other one may give its address away.
_READ = {"__getitem__"}
_WRITTEN = {"__setitem__", "_byteswap", "_set_from_file", "copy_", "fill_"}


def _telling(name: str, method: Callable[..., Any], tells: _Tells) -> Callable[..., Any]:
    how = "read_bytes" if name in _READ else "share_bytes" if name in _WRITTEN else "give_pointer"

    @functools.wraps(method)
    def use(self: Any, *args: Any, **kwargs: Any) -> Any:
        tells(self, how)
        for one in (*args, *kwargs.values()):
            if torch.is_storage(one):
                tells(one.untyped(), "read_bytes")
        return method(self, *args, **kwargs)

    return use


def watch_storages(tells: _Tells, functions: list[tuple[Any, str, Any]]) -> None:
    """Every method tells but those above: a storage that is only held, counted or compared keeps its place. What stood there goes to
    `functions`."""
    storages: Any = torch.UntypedStorage
    for name, method in vars(torch._C.StorageBase).items():
        if name not in _NO_BYTES and callable(method):
            functions.append((storages, name, getattr(storages, name)))
            setattr(storages, name, _telling(name, getattr(storages, name), tells))
