"""Tells the running step program that TorchScript reads the bytes of a module without an operator of torch."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import Any, Callable, Iterator

import torch
from torch.utils.weak import WeakIdKeyDictionary

_Method = Callable[..., Any]
# Of classes of torch._C, and of itself.
_READERS = {
    "ScriptModule": (
        "save",
        "save_to_buffer",
        "_save_for_mobile",
        "_save_to_buffer_for_mobile",
        "dump",
        "dump_to_str",
        "__deepcopy__",
    ),
    "ScriptFunction": ("save", "save_to_buffer"),
    "Graph": ("_export_onnx",),
    "": ("_freeze_module", "_pickle_save", "_save_parameters"),
}


# Operations that are none of the dispatcher's, so that nobody sees them: by these, bytes are read or a generator is seeded.
_UNSEEN = ("prim::tolist", "aten::save", "aten::manual_seed")
_PRINTS = ("prim::Print", "aten::format", "aten::percentFormat", "aten::str")
# Types whose values hold no tensor.
_PLAIN = re.compile(r"(int|float|bool|str|number|complex|NoneType|Device|List|Optional|Tuple|Dict|[][, ])+")
_unseen_in: Any = WeakIdKeyDictionary()


def _has_unseen(compiled: Any) -> bool:
    """Whether a function of TorchScript, or one that it calls, has one."""
    found = _unseen_in.get(compiled)
    if found is None:
        graph = compiled.inlined_graph
        printed = [one for kind in _PRINTS for node in graph.findAllNodes(kind, True) for one in node.inputs()]
        found = any(graph.findAllNodes(kind, True) for kind in _UNSEEN) or any(
            not _PLAIN.fullmatch(one.type().annotation_str) for one in printed
        )
        with contextlib.suppress(TypeError):  # no weak reference to it can be made
            _unseen_in[compiled] = found
    return bool(found)


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

    def calls(method: _Method) -> _Method:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if _has_unseen(self):
                say("run_as_written", "TorchScript prints or reads the bytes of tensors, or seeds a generator")
            return method(self, *args, **kwargs)

        return call

    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        functions.append((kind, "__call__", kind.__call__))
        setattr(kind, "__call__", calls(kind.__call__))
    for owner, names in _READERS.items():
        of = getattr(torch._C, owner) if owner else torch._C
        for name in names:
            if function := getattr(of, name, None):
                functions.append((of, name, function))
                setattr(of, name, reads(function))
