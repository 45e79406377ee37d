"""Tells the running step program that TorchScript reads the bytes of a module without an operator of torch."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator

import torch

_Method = Callable[..., Any]
# Of classes of torch._C, and of itself.
_READERS = {
    "ScriptModule": ("save", "save_to_buffer", "_save_for_mobile", "_save_to_buffer_for_mobile"),
    "ScriptFunction": ("save", "save_to_buffer"),
    "Graph": ("_export_onnx",),
    "": ("_freeze_module", "_pickle_save", "_save_parameters"),
}


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_of(one)
    elif isinstance(value, dict):
        yield from _tensors_of(list(value.values()))
    elif isinstance(value, torch._C.ScriptModule):
        kinds: tuple[Any, ...] = (torch._C.ParameterDict, torch._C.BufferDict, torch._C.ModuleDict)
        for kind in kinds:
            yield from _tensors_of([one for _, one in kind(value).items()])


def watch_torch_script(
    say: Callable[..., None], tell: Callable[[torch.Tensor, str], None], functions: list[tuple[Any, str, Any]]
) -> None:
    """Wraps these functions, and adds what stood there. Constants of a graph belong to no module: the step continues as written."""

    def reads(function: _Method) -> _Method:
        @functools.wraps(function)
        def read(*args: Any, **kwargs: Any) -> Any:
            say("run_as_written", "TorchScript reads the bytes of tensors")
            for tensor in _tensors_of(args):
                tell(tensor, "read_bytes")
            return function(*args, **kwargs)

        return read

    for owner, names in _READERS.items():
        of = getattr(torch._C, owner) if owner else torch._C
        for name in names:
            if function := getattr(of, name, None):
                functions.append((of, name, function))
                setattr(of, name, reads(function))
