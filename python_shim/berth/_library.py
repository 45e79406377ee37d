"""The adapters: one shared library for the CPU, one for CUDA, reached by the table of csrc/torch/adapter.h.

Each belongs to the torch that the package was built for, so that is checked before anything of it is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import re
from typing import Any, Callable, Optional

from berth import _build
from berth._errors import SystemFailure, UsageError, error_of

_MESSAGE_BYTES = 4096


class _Value(ctypes.Structure):
    """berth_value: a number by its name, or a text."""

    _fields_ = [("name", ctypes.c_char_p), ("text", ctypes.c_char_p), ("number", ctypes.c_uint64)]


class _Values(ctypes.Structure):
    _fields_ = [("values", ctypes.POINTER(_Value)), ("count", ctypes.c_size_t)]


_TYPES: dict[str, Any] = {
    "void": None,
    "int": ctypes.c_int,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "uint64_t": ctypes.c_uint64,
    "const char*": ctypes.c_char_p,
    "char*": ctypes.c_char_p,
    "void*": ctypes.c_void_p,
    "void**": ctypes.POINTER(ctypes.c_void_p),
    "int*": ctypes.POINTER(ctypes.c_int),
    "uint64_t*": ctypes.POINTER(ctypes.c_uint64),
    "const berth_values*": ctypes.POINTER(_Values),
}
_DECLARATION = re.compile(r"(?P<result>[\w ]+\**) (?P<name>\w+)\((?P<parameters>[^)]*)\)")


class _Head(ctypes.Structure):
    """How berth_torch_table begins, in all versions."""

    _fields_ = [("version", ctypes.c_char_p), ("size", ctypes.c_uint64), ("declarations", ctypes.c_char_p)]


def _member(declaration: str) -> tuple[str, Any]:
    """Name and type of a function of the table: "int mark(const char* name)"."""
    match = _DECLARATION.fullmatch(declaration)
    if match is None:
        raise SystemFailure(f"the adapter declares {declaration!r}, which is no function")
    parameters = (
        [] if match["parameters"] == "void" else [text.rsplit(" ", 1)[0] for text in match["parameters"].split(", ")]
    )
    try:
        return match["name"], ctypes.CFUNCTYPE(_TYPES[match["result"]], *(_TYPES[text] for text in parameters))
    except KeyError as unknown:
        raise SystemFailure(f"the adapter declares {declaration!r}, with the unknown type {unknown}") from None


def _table_at(address: int, name: str) -> Any:
    """The table of an adapter, by the declarations that it brings. Raises SystemFailure for one of another berth."""
    head = _Head.from_address(address)
    version = head.version.decode()
    if version != _build.VERSION:
        raise SystemFailure(f"{name} is of berth {version}, this is berth {_build.VERSION}: install the package again")
    functions = [_member(text) for text in head.declarations.decode().split(";") if text]
    table: Any = type("_Table", (ctypes.Structure,), {"_fields_": [*_Head._fields_, *functions]})
    if ctypes.sizeof(table) != head.size:
        raise SystemFailure(f"{name} has a table of {head.size} bytes, and declares {ctypes.sizeof(table)}")
    return table.from_address(address)


class Adapter:
    """berth under torch on one kind of device. Thread-safe."""

    def __init__(self, path: pathlib.Path) -> None:
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise SystemFailure(f"cannot load {path.name}: {error}") from None
        library.berth_torch_adapter.restype = ctypes.c_void_p
        self._table: Any = _table_at(library.berth_torch_adapter(), path.name)

    def _call(self, function: Callable[..., int], *arguments: Any) -> bool:
        """True if the answer is yes. Raises the error that the adapter reports."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        code = function(*arguments, message, _MESSAGE_BYTES)
        if code > 1:
            raise error_of(code, message.value.decode(errors="replace"))
        return code == 0

    def install(self, settings: dict[str, str]) -> bool:
        """True if berth is installed now; false in mode off."""
        words = [word for pair in settings.items() for word in pair]
        text = b"".join(os.fsencode(word) + b"\0" for word in words) + b"\0"
        return self._call(self._table.install, text, 0)

    def installed(self) -> bool:
        return bool(self._table.installed())

    def mark_step(self) -> None:
        self._table.mark_step()

    def _values(self, made: Any) -> list[tuple[str, Any]]:
        """Names with numbers and texts, in the adapter's order. Frees what it made of them."""
        if not made:
            raise MemoryError
        try:
            return [
                (value.name.decode(), value.number if value.text is None else value.text.decode(errors="replace"))
                for value in made.contents.values[: made.contents.count]
            ]
        finally:
            self._table.free_values(made)

    def stats(self, device: int) -> list[tuple[str, Any]]:
        """The counters, and then those of each miss."""
        return self._values(self._table.stats(device))

    def load_plan(self, device: int, path: str) -> None:
        self._call(self._table.load_plan, device, os.fsencode(path))

    def save_plan(self, device: int, path: str) -> bool:
        """True if there was a plan to save."""
        return self._call(self._table.save_plan, device, os.fsencode(path))

    def begin_recording(self, device: int, path: str, operators: bool) -> None:
        self._call(self._table.begin_recording, device, os.fsencode(path), int(operators))

    def end_recording(self, device: int) -> bool:
        """True if a recording was open."""
        return self._call(self._table.end_recording, device)

    def release(self, device: int, keep_contents: bool) -> int:
        """Bytes that went back to the device."""
        count = ctypes.c_uint64()
        self._call(self._table.release, device, int(keep_contents), ctypes.byref(count))
        return count.value

    def resume(self, device: int) -> int:
        """Bytes that came from the device."""
        count = ctypes.c_uint64()
        self._call(self._table.resume, device, ctypes.byref(count))
        return count.value

    def begin_scope(self, name: str) -> Optional[int]:
        scope: Optional[int] = self._table.begin_scope(name.encode())
        return scope

    def end_scope(self, scope: Optional[int]) -> None:
        self._table.end_scope(scope)

    def make_step_program(
        self,
        engine: str,
        schedule: str,
        memory_budget: int,
        memory_share: float,
        time_budget: float,
        copy_rate: int,
        host_memory: int,
        other_bits: bool,
        second_thread: bool,
        plan_wait: float,
    ) -> Optional[int]:
        program = ctypes.c_void_p()
        self._call(
            self._table.make_step_program,
            engine.encode(),
            os.fsencode(schedule),
            memory_budget,
            memory_share,
            time_budget,
            copy_rate,
            host_memory,
            int(other_bits),
            int(second_thread),
            plan_wait,
            ctypes.byref(program),
        )
        return program.value

    def known_to_spills(self, device: int) -> int:
        """Bytes of the tensors on a GPU that may spill; on the CPU if device is below 0."""
        known: int = self._table.known_to_spills(device)
        return known

    def allow_spills(self, host_memory: int) -> None:
        self._call(self._table.allow_spills, host_memory)

    def watch_threads(self) -> None:
        self._call(self._table.watch_threads)

    def watch_thread(self) -> None:
        self._table.watch_thread()

    def note_kernels(self) -> None:
        self._table.note_kernels()

    def free_step_program(self, program: Optional[int]) -> None:
        self._table.free_step_program(program)

    def begin_step(self, program: Optional[int]) -> None:
        self._call(self._table.begin_step, program)

    def end_step(self, program: Optional[int], failed: bool) -> bool:
        takes_over = ctypes.c_int()
        self._call(self._table.end_step, program, int(failed), ctypes.byref(takes_over))
        return takes_over.value != 0

    def program_step_ended(self, takes_over: bool) -> None:
        self._table.program_step_ended(int(takes_over))

    def step_program_stats(self, program: Optional[int]) -> dict[str, Any]:
        return dict(self._values(self._table.step_program_stats(program)))

    def save_step_graph(self, program: Optional[int], path: str, as_written: bool) -> None:
        self._call(self._table.save_step_graph, program, os.fsencode(path), int(as_written))

    def declare_pure(self, name: str) -> None:
        self._call(self._table.declare_pure, name.encode())


def _check_torch() -> None:
    import torch

    def minor(version: str) -> list[str]:
        return version.split("+")[0].split(".")[:2]

    if minor(torch.__version__) != minor(_build.TORCH_VERSION):
        raise UsageError(
            f"berth was built for torch {_build.TORCH_VERSION}, torch {torch.__version__} is imported: build it again in this "
            "environment, with `pip install ./python_shim`"
        )


@functools.lru_cache(maxsize=None)
def adapter(device: str) -> Adapter:
    """The adapter for "cpu" or "cuda". Imports torch. Raises UsageError if this package has none for this torch."""
    _check_torch()
    path = pathlib.Path(__file__).parent / f"libberth_torch_{device}_allocator.so"
    if not path.exists():
        raise UsageError(
            f"this berth has no part for {device}: it was built for torch {_build.TORCH_VERSION}, "
            f"{'with' if _build.WITH_CUDA else 'without'} CUDA"
        )
    return Adapter(path)


@functools.lru_cache(maxsize=None)
def step_adapter() -> Adapter:
    """The adapter that runs step programs on all devices. With CUDA it is the one for CUDA, which can call cuDNN."""
    import torch

    return adapter("cuda" if torch.version.cuda is not None and has_adapter("cuda") else "cpu")


@functools.lru_cache(maxsize=None)
def has_adapter(device: str) -> bool:
    """True if the package has an adapter for "cpu" or "cuda"."""
    return (pathlib.Path(__file__).parent / f"libberth_torch_{device}_allocator.so").exists()
