"""Tells the running step program that Python reads or writes the bytes of a tensor without an operator of torch."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import sys
import threading
import types
import weakref
from typing import Any, Callable, Iterator

import torch

from berth._generators import watch_generators
from berth._libraries import watch_libraries
from berth._storages import watch_storages
from berth._streams import watch_streams
from berth._torch_script import watch_torch_script

_Method = Callable[..., Any]
# The keys under which the step program sees operators, and composite ones.
_TAP = torch._C.DispatchKey.ZeroTensor
_COMPOSITES = torch._C._parse_dispatch_key("TESTING_ONLY_GenericMode")


# Modes by which torch traces: tensors are none of the step.
_TRACING = tuple(
    getattr(torch._C._TorchDispatchModeKey, name)
    for name in ("FAKE", "PROXY", "FUNCTIONAL")
    if hasattr(torch._C._TorchDispatchModeKey, name)
)


def _traces() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0 and any(
        torch._C._get_dispatch_mode(key) is not None for key in _TRACING
    )


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """The program's own modes and classes do not see what is called within."""
    with torch._C.DisableTorchFunction():
        if torch._C._len_torch_dispatch_stack() == 0:
            yield
            return
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            yield


def _tell(tensor: torch.Tensor, how: str) -> None:
    if _traces() or not hasattr(torch.ops.berth, how):
        return
    with _unseen(), torch.no_grad():
        if tensor.layout is torch.strided and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
            getattr(torch.ops.berth, how)(tensor.detach())


# Operators that nobody knows, so what is done within them is done when they are called: nothing, but for which tensors have their bytes
# then; and what a thread says. Two, since what the second one takes could not be let go of within it.
_library = torch.library.Library("berth", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("use_bytes(Tensor[] tensors) -> ()")  # type: ignore[no-untyped-call]
_library.define("run_within() -> ()")  # type: ignore[no-untyped-call]
_here = threading.local()  # its `work` is what the operator does; `saving`: torch.save() runs


@torch.library.impl(_library, "use_bytes", "CompositeExplicitAutograd")
def _use_bytes(_: list[torch.Tensor]) -> None:
    pass


@torch.library.impl(_library, "run_within", "CompositeExplicitAutograd")
def _run_work() -> None:
    _here.work()


def _as_tensor(storage: Any) -> torch.Tensor:
    """A tensor of it without elements, whose making is none of the step."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_TAP)):
        made = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return made.set_(storage, 0, (0,), (1,))


def _resized(method: _Method) -> _Method:
    """Of a storage, which has other bytes then."""

    @functools.wraps(method)
    def resize_(self: Any, size: Any) -> Any:
        if _traces() or self.device.type == "meta" or not hasattr(torch.ops.berth, "resize_storage"):
            return method(self, size)
        with _unseen(), torch.no_grad():
            torch.ops.berth.resize_storage(_as_tensor(self), int(size))
        return self

    return resize_


def _run_within(work: Callable[[], Any], tensors: list[torch.Tensor]) -> Any:
    """Runs it as an operator that nobody knows and that takes these tensors: its kernels take pointers."""
    result: list[Any] = []
    before = getattr(_here, "work", None)
    _here.work = lambda: result.append(work())
    try:
        with torch.no_grad():
            torch.ops.berth.use_bytes([one.detach() for one in tensors])
        torch.ops.berth.run_within()
    finally:
        _here.work = before
    return result[0]


def _compiled(method: _Method) -> _Method:
    """Of a compiled graph, whose kernels take pointers."""

    @functools.wraps(method)
    def call(self: Any, inputs: Any) -> Any:
        return _run_within(lambda: method(self, inputs), [one for one in inputs if isinstance(one, torch.Tensor)])

    return call


# Of torch._C: what torch.cuda.comm and torch.cuda.nccl call, and DataParallel through them.
_POINTERS = (
    "_broadcast",
    "_broadcast_coalesced",
    "_broadcast_out",
    "_nccl_all_gather",
    "_nccl_all_reduce",
    "_nccl_broadcast",
    "_nccl_reduce",
    "_nccl_reduce_scatter",
)


def _tensors_of(values: Any) -> Iterator[torch.Tensor]:
    for one in values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from _tensors_of(one)


def _by_pointers(function: _Method) -> _Method:
    """Of a function that is no operator, and gives pointers to a library."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _traces():
            return function(*args, **kwargs)
        return _run_within(lambda: function(*args, **kwargs), list(_tensors_of([*args, *kwargs.values()])))

    return call


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """On the host and without flags: what else would make it so asks for its bytes at once. As it is for who handles methods."""
    if torch.overrides.has_torch_function_unary(tensor):
        return tensor
    with _unseen():
        return tensor.detach().cpu().resolve_conj().resolve_neg()


def _tolist(method: _Method) -> _Method:
    @functools.wraps(method)
    def tolist(self: torch.Tensor) -> Any:
        here = _plain(self)
        _tell(here, "read_bytes")
        return method(here)

    return tolist


def _numpy(method: _Method) -> _Method:
    @functools.wraps(method)
    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        here = _plain(self) if force else self
        with torch._C.DisableTorchFunction():
            on_host = here.device.type == "cpu"
        if on_host:
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


def _storage(method: _Method) -> _Method:
    """Of a tensor whose storage tells itself what it is used for, unless that is written to a file."""
    tells = _pointer(method)

    @functools.wraps(method)
    def untyped_storage(self: torch.Tensor) -> Any:
        return tells(self) if _is_copied() else method(self)

    return untyped_storage


def _is_copied() -> bool:
    return getattr(_here, "saving", False) or getattr(_here, "copying", False)


def _use_storage(storage: Any, how: str) -> None:
    if not _traces() and storage.device.type != "meta":
        _tell(_as_tensor(storage), "read_bytes" if how == "give_pointer" and _is_copied() else how)


def _pointer(method: _Method) -> _Method:
    @functools.wraps(method)
    def pointer(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _tell(self, "read_bytes" if _is_copied() else "give_pointer")
        return method(self, *args, **kwargs)

    return pointer


def _copies(method: _Method) -> _Method:
    @functools.wraps(method)
    def copy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with _copying():
            return method(self, *args, **kwargs)

    return copy


def _exports(function: _Method) -> _Method:
    tells = _pointer(function)

    @functools.wraps(function)
    def export(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return (tells if _watches > 0 else function)(tensor, *args, **kwargs)

    return export


_EXPORTS = ("_to_dlpack", "_to_dlpack_versioned")  # of torch._C
_exported: list[_Method] = []  # what was there


def _watch_exports() -> None:
    """For good. Modules may have imported them by another name."""
    if _exported:
        return
    _exported.extend(getattr(torch._C, name) for name in _EXPORTS if hasattr(torch._C, name))
    for function in tuple(_exported):
        tells = _exports(function)
        # Not gc.get_referrers(): gc.freeze() hides the modules from it.
        for module in tuple(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict):
                names.update({name: tells for name, one in tuple(names.items()) if one is function})


def _pass_the_tap() -> None:
    """For good. Operators of a higher order (torch.cond(), flex_attention()) look up kernels in Python. They have none for keys of the tap."""
    operators: Any = torch._ops
    later = getattr(operators, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", [])
    for key in (_TAP, _COMPOSITES):
        if key not in later:
            later.append(key)
            for one in operators._higher_order_ops.values():
                one.fallthrough(key)


def _by_element(method: _Method) -> _Method:
    @functools.wraps(method)
    def by_element(self: torch.Tensor, *args: Any) -> Any:
        # They call Python for each element, and write the result behind torch's operators.
        for tensor in (self, *args):
            if isinstance(tensor, torch.Tensor):
                _tell(tensor, "share_bytes")
        return method(self, *args)

    return by_element


@contextlib.contextmanager
def _copying() -> Iterator[None]:
    """A storage that is asked for is copied, or written to a file: nobody keeps its address."""
    before = getattr(_here, "copying", False)
    _here.copying = True
    try:
        yield
    finally:
        _here.copying = before


_pointer_of: Any = torch.UntypedStorage.data_ptr


def _bring(storage: Any) -> None:
    """The storage has its bytes until something else needs the memory."""
    try:
        _pointer_of(storage)
    except RuntimeError:
        _tell(torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage), "read_bytes")


class _Records:
    """A file of torch.save(). Each storage has its bytes while it is written, and no longer."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write_record(self, name: str, data: Any, size: int) -> Any:
        if torch.is_storage(data):
            _bring(data)
        return self._file.write_record(name, data, size)


def _written(method: _Method) -> _Method:
    """Of a storage, by pickle and by files of the older form."""

    @functools.wraps(method)
    def write(self: Any, *args: Any) -> Any:
        _bring(self)
        return method(self, *args)

    return write


class _Storage:
    """Of a tensor from a file: its bytes, in memory of the allocator."""

    def __init__(self, tensor: Any) -> None:
        with _copying():
            read = tensor._typed_storage()._untyped_storage
            self._copy: Any = torch.empty(0, dtype=torch.uint8).set_(read).clone()

    def _typed_storage(self) -> Any:
        with _copying():
            return self._copy._typed_storage()


class _Loaded:
    """A file of torch.load(). What comes from it has memory that no allocator knows again, and which would stay."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def get_storage_from_record(self, *args: Any) -> Any:
        return _Storage(self._file.get_storage_from_record(*args))


def _loaded(function: _Method) -> _Method:
    @functools.wraps(function)
    def load(zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        with _copying():
            return function(_Loaded(zip_file) if _copies_loaded else zip_file, *args, **kwargs)

    return load


def _saved(function: _Method) -> _Method:
    """Of torch.save(), which asks each storage for a number and later, one by one, for its bytes."""

    @functools.wraps(function)
    def save(obj: Any, file: Any, *args: Any, **kwargs: Any) -> Any:
        storages: Any = torch.UntypedStorage
        pointer = storages.data_ptr
        before = getattr(_here, "saving", False)
        _here.saving = True
        storages.data_ptr = lambda self: self._cdata if getattr(_here, "saving", False) else pointer(self)
        try:
            return function(obj, _Records(file), *args, **kwargs)
        finally:
            _here.saving = before
            storages.data_ptr = pointer

    return save


# Others go through these and the functions below: storage(), __array__(), copy.deepcopy(), pickle, __dlpack__().
_WATCHED = {
    "tolist": _tolist,
    "__repr__": _repr,
    "numpy": _numpy,
    "data_ptr": _pointer,
    "untyped_storage": _storage,
    "__deepcopy__": _copies,
    "__reduce_ex__": _copies,
    "apply_": _by_element,
    "map_": _by_element,
    "map2_": _by_element,
}


class _InPlaceOf:
    """Stands where a method of torch.Tensor was, and is found where a table has that one: handlers of __torch_function__ do."""

    def __init__(self, telling: _Method, method: _Method) -> None:
        functools.update_wrapper(self, telling)
        self._telling, self._method = telling, method

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self if tensor is None else types.MethodType(self._telling, tensor)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._telling(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._method

    def __hash__(self) -> int:
        return hash(self._method)

    def __reduce__(self) -> Any:
        return getattr, (torch.Tensor, self._method.__name__)


def _loads(method: _Method) -> _Method:
    @functools.wraps(method)
    def __next__(self: Any) -> Any:
        if not hasattr(torch.ops.berth, "set_aside") or getattr(_here, "loading", False):
            return method(self)
        _here.loading = True
        torch.ops.berth.set_aside(True)
        try:
            return method(self)
        finally:
            torch.ops.berth.set_aside(False)
            _here.loading = False

    return __next__


_summed: weakref.WeakSet[Any] = weakref.WeakSet()  # modules of DistributedDataParallel whose gradients tell


def _compared(parameter: torch.Tensor) -> None:
    """The gradient is there. DistributedDataParallel asks next whether it lies in its bucket."""
    if _watches > 0 and parameter.grad is not None and parameter.grad.layout is torch.strided:
        torch.ops.berth.compare_storage(parameter.grad.detach())


def _data_parallel(method: _Method) -> _Method:
    @functools.wraps(method)
    def pre_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if hasattr(torch.ops.berth, "compare_storage") and torch.is_grad_enabled():
            if self.find_unused_parameters and any(one.is_cuda for one in self._module_parameters):
                torch.ops.berth.run_as_written(
                    "DistributedDataParallel looks for unused parameters behind torch's operators"
                )
            if self not in _summed:
                _summed.add(self)
                for parameter in self._module_parameters:
                    parameter.register_post_accumulate_grad_hook(_compared)
        return method(self, *args, **kwargs)

    return pre_forward


def _say(how: str, *args: Any) -> None:
    """To the step, without a tensor."""
    if not _traces() and hasattr(torch.ops.berth, how):
        with _unseen():
            getattr(torch.ops.berth, how)(*args)


_MOST_OBJECTS = 1 << 20  # of a loader, that are looked at
_NO_TENSORS = (str, bytes, int, float, type, types.ModuleType, type(None))


def _lacks_bytes(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return False
    try:
        _pointer_of(torch._C.TensorBase.untyped_storage(tensor))
    except RuntimeError:
        return True
    return False


def _has_all_bytes(loader: Any) -> bool:
    """Whether nothing that it refers to is a tensor of the step without its bytes. False where there is too much to look at."""
    seen, left = {id(loader)}, [loader]
    while left:
        one = left.pop()
        if isinstance(one, torch.Tensor):
            if _lacks_bytes(one):
                return False
            continue
        within = (one.__closure__, one.__defaults__) if isinstance(one, types.FunctionType) else gc.get_referents(one)
        for other in within:
            if not isinstance(other, _NO_TENSORS) and id(other) not in seen:
                seen.add(id(other))
                left.append(other)
        if len(seen) > _MOST_OBJECTS:
            return False
    return True


def _starts(method: _Method) -> _Method:
    """Of a loader, whose workers are forked and have nothing of the step, unless the loader has it."""

    @functools.wraps(method)
    def start(self: Any) -> Any:
        before = getattr(_here, "starting", False)
        _here.starting = before or self.num_workers == 0 or _has_all_bytes(self)
        try:
            return method(self)
        finally:
            _here.starting = before

    return start


def _forks() -> None:
    """The child finds all bytes, and no step."""
    if _watches > 0 and not getattr(_here, "starting", False):
        _say("run_as_written", "the process is forked")


os.register_at_fork(before=_forks)


def _shared(method: _Method) -> _Method:
    """Of a storage, whose bytes get another place."""

    @functools.wraps(method)
    def share(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.is_shared():
            _say("run_as_written", "a storage moves to shared memory")
        return method(self, *args, **kwargs)

    return share


_lock = threading.Lock()
_watches = 0
_functions: list[tuple[Any, str, Any]] = []  # what stood in the modules
_before: dict[str, Any] = {}  # what torch.Tensor itself had; None where it inherited
_telling: dict[str, Any] = {}  # what it has instead


def watches() -> bool:
    """Whether methods tell now."""
    return _watches > 0


_INDUCTOR = "torch._inductor.output_code"


def _watch_graphs(module: Any) -> None:
    graph = getattr(module, "CompiledFxGraph", None)
    if graph is not None:
        _functions.append((graph, "__call__", graph.__call__))
        graph.__call__ = _compiled(graph.__call__)


class _Imports:
    """Watches the graphs of inductor from when it is imported, which the first compiled call does."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name != _INDUCTOR:
            return None
        with _lock:
            if _Imports in sys.meta_path:
                sys.meta_path.remove(_Imports)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            with _lock:
                if _watches > 0:
                    _watch_graphs(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_for_good: list[Any] = []
_copies_loaded = False  # what torch.load() reads


def watch_for_good(cpu_may_leave: bool) -> None:
    """From now on methods tell, whether a step runs or not. cpu_may_leave: the CPU's memory is berth's."""
    global _copies_loaded
    _copies_loaded |= cpu_may_leave
    if not _for_good:
        _for_good.append(Watch())
        _for_good[0].__enter__()


class Watch:
    """While one is entered, methods of torch.Tensor tell. They cost nothing otherwise. Thread-safe."""

    def __init__(self) -> None:
        with _lock:
            _watch_exports()
            _pass_the_tap()

    def __enter__(self) -> None:
        global _watches
        with _lock:
            _watches += 1
            if _watches > 1:
                return
            if _INDUCTOR in sys.modules:
                _watch_graphs(sys.modules[_INDUCTOR])
            elif sys.meta_path is not None:
                sys.meta_path.insert(0, _Imports)
            distributed = sys.modules.get("torch.nn.parallel.distributed")
            if distributed is not None and hasattr(distributed.DistributedDataParallel, "_pre_forward"):
                wrapped = distributed.DistributedDataParallel
                _functions.append((wrapped, "_pre_forward", wrapped._pre_forward))
                wrapped._pre_forward = _data_parallel(wrapped._pre_forward)
            loader = sys.modules.get("torch.utils.data.dataloader")
            if loader is not None and hasattr(loader, "_BaseDataLoaderIter"):
                _functions.append((loader.DataLoader, "_get_iterator", loader.DataLoader._get_iterator))
                loader.DataLoader._get_iterator = _starts(loader.DataLoader._get_iterator)
                iterator = loader._BaseDataLoaderIter
                _functions.append((iterator, "__next__", iterator.__next__))
                iterator.__next__ = _loads(iterator.__next__)
            _functions.append((torch.serialization, "_save", torch.serialization._save))
            torch.serialization._save = _saved(torch.serialization._save)
            for name in ("_legacy_save", "_legacy_load"):  # they ask storages for their address, to know them again
                _functions.append((torch.serialization, name, getattr(torch.serialization, name)))
                setattr(torch.serialization, name, _copies(getattr(torch.serialization, name)))
            _functions.append((torch.serialization, "_load", torch.serialization._load))
            torch.serialization._load = _loaded(torch.serialization._load)
            storages: Any = torch.UntypedStorage
            _functions.append((storages, "_write_file", storages._write_file))
            storages._write_file = _written(storages._write_file)
            _functions.append((storages, "resize_", storages.resize_))
            storages.resize_ = _resized(storages.resize_)
            for name in ("_share_fd_cpu_", "_share_filename_cpu_"):
                _functions.append((storages, name, getattr(storages, name)))
                setattr(storages, name, _shared(getattr(storages, name)))
            watch_storages(_use_storage, _functions)
            watch_libraries(_say, _functions)
            watch_streams(_say, _functions)
            watch_torch_script(_say, _tell, _functions)
            for name, wrap in {**dict.fromkeys(_POINTERS, _by_pointers), "_data_address": _pointer}.items():
                if function := getattr(torch._C, name, None):
                    _functions.append((torch._C, name, function))
                    setattr(torch._C, name, wrap(function))
            watch_generators(_say, _tell, _functions)
            for name, telling in _WATCHED.items():
                _before[name] = torch.Tensor.__dict__.get(name)
                method = getattr(torch.Tensor, name)
                _telling[name] = _InPlaceOf(telling(method), method)
                setattr(torch.Tensor, name, _telling[name])

    def __exit__(self, *_: object) -> None:
        global _watches
        with _lock:
            _watches -= 1
            if _watches > 0:
                return
            if _Imports in (sys.meta_path or ()):  # none where Python is about to end
                sys.meta_path.remove(_Imports)
            while _functions:
                setattr(*_functions.pop())
            for name, before in _before.items():
                if torch.Tensor.__dict__.get(name) is not _telling[name]:
                    continue  # the program has set another one
                if before is None:
                    delattr(torch.Tensor, name)
                else:
                    setattr(torch.Tensor, name, before)
