"""berth as the allocator of this process."""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
import types
from typing import Callable, Iterator, Optional, Union

from berth import _library
from berth._errors import UsageError
from berth._stats import Stats, stats_of

_Path = Union[str, "os.PathLike[str]"]
_KINDS = ("cpu", "cuda")
loop_begins: list[Callable[[], None]] = []  # begins the loop of BERTH_BUDGET, once berth is installed


def _kinds(device: Optional[str]) -> tuple[str, ...]:
    """The kinds of devices that a word of install() means."""
    if device is None:
        import torch

        return ("cuda",) if torch.cuda.is_available() and _library.has_adapter("cuda") else ("cpu",)
    if device == "all":
        return _KINDS
    if device in _KINDS:
        return (device,)
    raise UsageError(
        f"device is {device!r}, legal are: 'cpu', 'cuda', 'all', None for CUDA where there is a GPU and else the CPU"
    )


def _text(value: Union[str, "os.PathLike[str]", bool, float]) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)


def install(
    device: Optional[str] = None,
    *,
    mode: Optional[str] = None,
    plan: Optional[_Path] = None,
    trace: Optional[_Path] = None,
    record: Optional[str] = None,
    check: Optional[str] = None,
    stats: Optional[_Path] = None,
    verbose: Optional[bool] = None,
    tag: Optional[str] = None,
    plan_time_limit: Optional[float] = None,
    memory_limit: Union[int, str, None] = None,
    memory: Optional[str] = None,
    handle: Union[int, str, None] = None,
) -> bool:
    """Makes berth PyTorch's allocator on "cpu", "cuda" or "all"; None: on CUDA where there is a GPU, else on the CPU.

    On CUDA, call it before CUDA is used: before the first tensor there, torch.cuda.set_device() and the like. On the
    CPU, call it at any time; older tensors stay where they are. Call it from the thread that trains.

    An argument that is None comes from the environment variable of the same name (BERTH_MODE, BERTH_PLAN, ..). Without
    that variable it has its default:

    mode             "learn" (default): serve from the pool, plan a step that repeats, and switch to the plan;
                     "record": write a trace; "serve": follow the plan; "off": leave PyTorch's own allocator
    plan             a file that "serve" follows, and that "learn" starts from and keeps up to date; or a folder of plans
    trace            the file that "record" writes ("berth.trace")
    record           "requests" (default), or "operators": operators with operands and times as well
    check            "normal" (default), or "full": every block is checked against every live byte
    stats            the file that receives the counters at exit, as JSON
    verbose          whether to print one line at exit: steps, hits, misses, memory
    tag              a text that traces and plans carry
    plan_time_limit  how many seconds "learn" may improve a plan, on a thread of its own (2)
    memory_limit     the most memory that arena and pool hold together: bytes, or a text such as "6GiB"
    memory           how berth allocates a GPU's memory: "auto" (default), "virtual" (an error where there
                     is none), or "plain" for cudaMalloc only
    handle           the largest handle of a GPU's virtual memory: bytes, or a text such as "32MiB"; larger handles
                     need fewer driver calls and hold more memory

    File names may hold {rank}, {device} and {pid}. Returns whether berth is installed; in mode "off" it is not. A
    second call with equal settings does nothing. Raises UsageError for other or wrong settings, and where CUDA is in use
    already. Raises InputError for a plan that cannot be read.
    """
    given: dict[str, Union[_Path, bool, float, None]] = {
        "mode": mode,
        "plan": plan,
        "trace": trace,
        "record": record,
        "check": check,
        "stats": stats,
        "verbose": verbose,
        "tag": tag,
        "plan_time_limit_seconds": plan_time_limit,
        "memory_limit": memory_limit,
        "memory": memory,
        "handle": handle,
    }
    settings = {name: _text(value) for name, value in given.items() if value is not None}
    kinds = _kinds(device)
    if len(kinds) > 1:
        _check_names(settings)
    done = True
    for kind in kinds:
        there = _library.adapter(kind)
        try:
            done = there.install(settings) and done
        except UsageError as error:
            raise UsageError(_with_line_that_opened_cuda(str(error))) from None
    if done and (os.environ.get("BERTH_BUDGET") or os.environ.get("BERTH_TIME_BUDGET")):
        for begin in loop_begins:
            begin()
    return done


def _check_names(settings: dict[str, str]) -> None:
    """The CPU and CUDA write a file each."""
    for name in ("plan", "trace", "stats"):
        path = settings.get(name, os.environ.get(f"BERTH_{name.upper()}", ""))
        folder = path.endswith("/") or os.path.isdir(path)
        if path and not folder and "{device}" not in path:
            raise UsageError(
                f"{name} is {path!r}, and the CPU and each GPU have one: with device 'all' the name must hold {{device}}"
            )


def _with_line_that_opened_cuda(text: str) -> str:
    """Of a program that used CUDA too early: where that was, as far as can be known."""
    if "CUDA is in use already" not in text:
        return text
    where = f"It was opened by {_watcher.where}. " if _watcher.where else _guess()
    return (
        f"{text}. {where}Put `import berth; berth.install()` above that line, or run the program unchanged with "
        "`python -m berth run`"
    )


_OPENS_CUDA = re.compile(
    r"""\.cuda\(|\bto\(["']cuda|device\s*=\s*["']cuda|set_default_device\(["']cuda|pin_memory\(|torch\.cuda\.(set_device|current_device|"""
    r"""get_device_name|get_device_properties|get_device_capability|synchronize|mem_get_info|is_bf16_supported|set_per_process_memory_fraction|"""
    r"""reset_peak_memory_stats|get_rng_state|init)\("""
)


def _guess() -> str:
    """The first line above the call that may have opened CUDA, where berth came too late to see it."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "berth":
        frame = frame.f_back
    if frame is None:
        return ""
    path = frame.f_code.co_filename
    for number, line in enumerate(linecache.getlines(path)[: frame.f_lineno - 1], 1):
        if _OPENS_CUDA.search(line.split("#")[0]):
            return f"It may have been opened by {path}, line {number}: `{line.strip()[:80]}`. "
    return ""


class _Watcher:
    """Remembers the line that opened CUDA, where berth was imported before that."""

    def __init__(self) -> None:
        self.where: Optional[str] = None

    def watch(self) -> None:
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "cuda"):
            return
        with contextlib.suppress(AttributeError):
            if not torch.cuda.is_initialized():
                torch.cuda._lazy_call(self._note)

    def _note(self) -> None:
        frame: Optional[types.FrameType] = sys._getframe(1)
        while frame is not None and _is_internal(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            self.where = f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def _is_internal(path: str) -> bool:
    return f"{os.sep}torch{os.sep}" in path or path.startswith("<")


_watcher = _Watcher()
_watcher.watch()


def installed_adapters() -> Iterator[tuple[str, _library.Adapter]]:
    """The adapters of this process that are installed, with their kind of device."""
    if "torch" not in sys.modules:
        return
    for kind in _KINDS:
        if _library.has_adapter(kind):
            there = _library.adapter(kind)
            if there.installed():
                yield kind, there


def installed(device: Optional[str] = None) -> bool:
    """Whether berth is the allocator of "cpu", of "cuda", of both ("all"), or of either (None)."""
    there = [kind for kind, _ in installed_adapters()]
    if device is None:
        return bool(there)
    return all(kind in there for kind in _kinds(device))


def mark_step() -> None:
    """Ends a step. Call it once a step from the thread that trains, or never. Without it berth finds the steps by the
    optimizers, or in the requests. After the first call the optimizers end no step. Does nothing where berth is not
    installed."""
    for _, there in installed_adapters():
        there.mark_step()


def _one(device: Union[str, int, None]) -> tuple[_library.Adapter, str, int]:
    """The adapter of one device, its kind and the device's index."""
    there = dict(installed_adapters())
    if not there:
        raise UsageError("berth is not installed: call berth.install() first")
    if device is None:
        kind, index = ("cuda" if "cuda" in there else "cpu"), None
    elif isinstance(device, int):
        kind, index = "cuda", device
    else:
        kind, _, number = str(device).partition(":")
        if kind not in _KINDS or (number and not number.isdigit()):
            raise UsageError(
                f"device is {device!r}, legal are: 'cpu', 'cuda', 'cuda:N', the index of a GPU, None for the one that is "
                "installed"
            )
        index = int(number) if number else None
    if kind not in there:
        raise UsageError(f"berth is not installed on {kind}, but on {' and '.join(there)}")
    if kind == "cuda" and index is None:
        torch = sys.modules["torch"]
        index = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    return there[kind], kind, index or 0


def _open(kind: str) -> None:
    """A GPU has an allocator once CUDA is in use."""
    if kind == "cuda":
        sys.modules["torch"].cuda.init()


def stats(device: Union[str, int, None] = None) -> Stats:
    """The counters of one device: "cpu", "cuda" (the current GPU), "cuda:1" or a GPU's index. None: CUDA where berth is
    installed there, else the CPU. All are zero for a GPU that was not used. Raises UsageError where berth is not
    installed."""
    there, _, index = _one(device)
    return stats_of(there.stats(index))


def load_plan(path: _Path, device: Union[str, int, None] = None) -> None:
    """Serves the plan of a file from the next request on. Live tensors stay where they are. Raises InputError for a file
    that is no legal plan, and UsageError while a graph is captured."""
    there, kind, index = _one(device)
    _open(kind)
    there.load_plan(index, os.fsdecode(path))


def save_plan(path: _Path, device: Union[str, int, None] = None) -> bool:
    """Writes the active plan to a file. Returns False, and writes nothing, where there is no plan yet."""
    there, kind, index = _one(device)
    _open(kind)
    return there.save_plan(index, os.fsdecode(path))


@contextlib.contextmanager
def record(path: _Path, operators: bool = False, device: Union[str, int, None] = None) -> Iterator[None]:
    """Writes the requests of a `with` block to a trace, in any mode. With `operators` the trace also holds the operators
    with operands and times; this costs some microseconds an operator. {rank}, {device} and {pid} in the name are
    replaced. A device has one such recording at a time, and a process 1024 in all."""
    there, kind, index = _one(device)
    _open(kind)
    there.begin_recording(index, os.fsdecode(path), operators)
    try:
        yield
    finally:
        there.end_recording(index)


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Gives a name to the requests of this thread in a `with` block. Traces show the name, and the pool learns lifetimes
    by it. Does nothing where berth is not installed. At most 4096 bytes of the name are kept."""
    opened = [(there, there.begin_scope(name)) for _, there in installed_adapters()]
    try:
        yield
    finally:
        for there, begun in reversed(opened):
            there.end_scope(begun)


def release(device: Union[str, int, None] = None, *, keep_contents: bool = False) -> int:
    """Gives memory without live tensors back to the device: the idle arena's and the pool's.

    Addresses stay reserved, and the plan stays. Its pages come back at the same addresses with the next requests, or at
    once with resume().

    With `keep_contents` berth also moves the live tensors of a GPU to pinned host memory. resume() brings them back to
    their addresses. Until then do not use them, and replay no graph that uses them. New tensors get memory of their
    own. Memory of CUDA graphs and MemPools stays. Do not move tensors that other processes have opened: those processes
    would keep the old memory.

    Waits for the device. Returns the bytes given back. Raises UsageError while a graph is captured. Raises
    torch.OutOfMemoryError where the host has no room for the contents, which then stay where they are.
    """
    there, _, index = _one(device)
    return there.release(index, keep_contents)


def resume(device: Union[str, int, None] = None) -> int:
    """Allocates again what release() gave back, at the same addresses and with the kept contents. Returns the bytes
    allocated. Raises torch.OutOfMemoryError where the device has no room for the contents. They stay in host memory, and
    a later call brings them back."""
    there, _, index = _one(device)
    return there.resume(index)
