"""The adapters: one shared library for the CPU, one for CUDA, reached by the table of csrc/torch/adapter.h.

Each belongs to the torch that the package was built for, so that is checked before anything of it is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import threading
from typing import Any, Callable, Optional

from berth import _build
from berth._errors import SystemFailure, UsageError, error_of

_MESSAGE_BYTES = 4096
_DEVICE = ctypes.c_int
_TEXT = ctypes.c_char_p
_SIZE = ctypes.c_size_t


def _function(*arguments: Any, result: Any = ctypes.c_int) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)


class _Table(ctypes.Structure):
    """berth_torch_table, member by member."""

    _fields_ = [
        ("install", _function(_TEXT, ctypes.c_int, _TEXT, _SIZE)),
        ("installed", _function()),
        ("mark_step", _function(result=None)),
        ("stats", _function(_DEVICE, _TEXT, _SIZE, result=_SIZE)),
        ("load_plan", _function(_DEVICE, _TEXT, _TEXT, _SIZE)),
        ("save_plan", _function(_DEVICE, _TEXT, _TEXT, _SIZE)),
        ("begin_recording", _function(_DEVICE, _TEXT, ctypes.c_int, _TEXT, _SIZE)),
        ("end_recording", _function(_DEVICE, _TEXT, _SIZE)),
        ("release", _function(_DEVICE, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), _TEXT, _SIZE)),
        ("resume", _function(_DEVICE, ctypes.POINTER(ctypes.c_uint64), _TEXT, _SIZE)),
        ("begin_scope", _function(_TEXT, result=ctypes.c_void_p)),
        ("end_scope", _function(ctypes.c_void_p, result=None)),
        (
            "make_step_program",
            _function(
                _TEXT,
                _TEXT,
                ctypes.c_uint64,
                ctypes.c_double,
                ctypes.c_double,
                ctypes.c_uint64,
                ctypes.c_uint64,
                ctypes.c_int,
                ctypes.c_int,
                ctypes.c_double,
                ctypes.POINTER(ctypes.c_void_p),
                _TEXT,
                _SIZE,
            ),
        ),
        ("free_step_program", _function(ctypes.c_void_p, result=None)),
        ("begin_step", _function(ctypes.c_void_p, _TEXT, _SIZE)),
        ("end_step", _function(ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int), _TEXT, _SIZE)),
        ("program_step_ended", _function(ctypes.c_int, result=None)),
        ("step_program_stats", _function(ctypes.c_void_p, _TEXT, _SIZE, result=_SIZE)),
        ("save_step_graph", _function(ctypes.c_void_p, _TEXT, ctypes.c_int, _TEXT, _SIZE)),
        ("declare_pure", _function(_TEXT, _TEXT, _SIZE)),
        ("allow_spills", _function(ctypes.c_uint64, _TEXT, _SIZE)),
        ("watch_threads", _function(_TEXT, _SIZE)),
    ]


class Adapter:
    """berth under torch on one kind of device. Thread-safe."""

    def __init__(self, path: pathlib.Path) -> None:
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise SystemFailure(f"cannot load {path.name}: {error}") from None
        library.berth_torch_adapter.restype = ctypes.POINTER(_Table)
        self._table: Any = library.berth_torch_adapter().contents
        self._local = threading.local()

    def _call(self, function: Callable[..., int], *arguments: Any) -> bool:
        """Whether the answer is yes. Raises what the adapter says."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        code = function(*arguments, message, _MESSAGE_BYTES)
        if code > 1:
            raise error_of(code, message.value.decode(errors="replace"))
        return code == 0

    def install(self, settings: dict[str, str]) -> bool:
        """Whether it is installed now; not where the mode is off."""
        words = [word for pair in settings.items() for word in pair]
        text = b"".join(os.fsencode(word) + b"\0" for word in words) + b"\0"
        return self._call(self._table.install, text, 0)

    def installed(self) -> bool:
        return bool(self._table.installed())

    def mark_step(self) -> None:
        self._table.mark_step()

    def _text(self, function: Callable[..., int], argument: Any) -> bytes:
        """What the adapter writes."""
        local = self._local
        if not hasattr(local, "text"):
            local.text = ctypes.create_string_buffer(1 << 13)
        size = function(argument, local.text, len(local.text))
        while size >= len(local.text):
            local.text = ctypes.create_string_buffer(2 * size)
            size = function(argument, local.text, len(local.text))
        text: bytes = local.text.value
        return text if size else b""

    def stats(self, device: int) -> bytes:
        """A JSON object; empty before berth is installed."""
        return self._text(self._table.stats, device)

    def load_plan(self, device: int, path: str) -> None:
        self._call(self._table.load_plan, device, os.fsencode(path))

    def save_plan(self, device: int, path: str) -> bool:
        """Whether there was one."""
        return self._call(self._table.save_plan, device, os.fsencode(path))

    def begin_recording(self, device: int, path: str, operators: bool) -> None:
        self._call(self._table.begin_recording, device, os.fsencode(path), int(operators))

    def end_recording(self, device: int) -> bool:
        """Whether one was open."""
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

    def allow_spills(self, host_memory: int) -> None:
        self._call(self._table.allow_spills, host_memory)

    def watch_threads(self) -> None:
        self._call(self._table.watch_threads)

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

    def step_program_stats(self, program: Optional[int]) -> bytes:
        return self._text(self._table.step_program_stats, program)

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
    """The one for "cpu" or "cuda". Imports torch. Raises UsageError where this package has none for this torch."""
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
    """The one that runs step programs, of all devices: the one for CUDA, which knows cuDNN, where torch and this package have CUDA."""
    import torch

    return adapter("cuda" if torch.version.cuda is not None and has_adapter("cuda") else "cpu")


@functools.lru_cache(maxsize=None)
def has_adapter(device: str) -> bool:
    """Whether the package has one for "cpu" or "cuda"."""
    return (pathlib.Path(__file__).parent / f"libberth_torch_{device}_allocator.so").exists()
