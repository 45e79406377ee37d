"""Step programs of a program that has none: BERTH_BUDGET, `berth run --budget`.

A step is what lies between two ends of an optimizer's step(). Where several optimizers take turns it is their whole round: it ends with the one that
is called least often. Other calls between the ends (logging, evaluation, saving, loading data) run as written.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import os
import sys
import threading
from typing import Any, Optional, Union

from berth._byte_access import watch_for_good, watches  # imports torch
from berth._errors import UsageError
from berth._extensions import watch_extensions
from berth._install import installed_adapters
from berth._other_threads import in_each_new_one
from berth._step_program import StepProgram, _bytes, _share, _time_share, loop_ends

_LEAST_ROUND, _CALLS_OF_EACH, _LONGEST_ROUND = 32, 2, 1024  # calls of optimizers in a round, at most
_ROUNDS = 2  # longest rounds whose calls are remembered
_LOOKS = 8  # each round, after those that are called no more
_MOST_OF_HOST = 0.75  # of what the host has, where nobody says
_MOST_OF_DEVICE = 0.95  # of what the device has: blocks have holes between them
_FEWEST, _TOLD = 4, 16  # steps of a loop that may be scheduled; of one that has been told why it is not
_COPY_RATE = {"cuda": 20 * 10**9, "cpu": 4 * 10**9}  # bytes a second; PCIe 4, and memcpy() of one thread
_STEP_GRAPHS = "BERTH_STANDIN_STEP_GRAPHS"  # in a dry run: the folder that gets each process's step as a graph
_GIVEN = ("BERTH_BUDGET", "BERTH_TIME_BUDGET", "BERTH_HOST_MEMORY")


def free_host_memory() -> int:
    """Bytes of the host that this process can still allocate."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/memory.max") as most, open("/sys/fs/cgroup/memory.current") as held:
            free = min(free, int(most.read()) - int(held.read()))
    return max(free, 0)


class _Rounds:
    """Finds where a round of optimizers ends: with the one that is called least often, the last new one of several.

    An optimizer is out of it that was not called for twice as long as between two of its calls before. So is one that
    is gone, whose id another may have.
    """

    def __init__(self) -> None:
        self._calls: collections.deque[int] = collections.deque()
        self._counts: collections.Counter[int] = collections.Counter()  # of these calls
        self._order: list[int] = []  # as they first came
        self._length = self._made = 0  # calls of this round, and of all

    def ends(self, optimizer: int) -> bool:
        """True if a round ends with this call. O(optimizers), of which calls of some 2,000 are remembered."""
        longest = min(max(_LEAST_ROUND, _CALLS_OF_EACH * len(self._order)), _LONGEST_ROUND)
        self._made += 1
        self._calls.append(optimizer)
        self._counts[optimizer] += 1
        if optimizer not in self._order:
            self._order.append(optimizer)
        while len(self._calls) > _ROUNDS * longest:
            oldest = self._calls.popleft()
            self._counts[oldest] -= 1
            if self._counts[oldest] == 0:
                self._forget([oldest])
        if self._made % (len(self._order) // _LOOKS + 1) == 0:
            self._forget(self._left())
        # The calls may begin within a round, so that counts differ by one.
        least = min(self._counts.values()) + 1
        last = next(one for one in reversed(self._order) if self._counts[one] <= least)
        self._length += 1
        if optimizer != last and self._length < longest:
            return False
        if optimizer != last:  # which is called no more
            self._forget([last])
        self._length = 0
        return True

    def _forget(self, optimizers: list[int]) -> None:
        for one in optimizers:
            self._order.remove(one)
            del self._counts[one]
        if optimizers:
            self._calls = collections.deque(one for one in self._calls if one not in optimizers)

    def _left(self) -> list[int]:
        latest: dict[int, int] = {}
        longest: dict[int, int] = {}  # between two calls
        for n, one in enumerate(self._calls):
            if one in latest:
                longest[one] = max(longest.get(one, 0), n - latest[one])
            latest[one] = n
        return [one for one, between in longest.items() if len(self._calls) - 1 - latest[one] > 2 * between]


def _leave_job() -> None:
    """Before this rank ends: its collectives have ended, and the others need not wait for it."""
    import torch

    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        torch.cuda.synchronize()
        atexit.register(lambda: distributed.is_initialized() and distributed.destroy_process_group())


class _Loop:
    """The loop of one process. Of the thread that first ends an optimizer's step()."""

    def __init__(self, budget: str, time_budget: Optional[float], host_memory: int) -> None:
        self._budget, self._time_budget, self._host_memory = budget, time_budget, host_memory
        self._thread: Optional[int] = None
        self._rounds = _Rounds()
        self._program: Optional[StepProgram] = None
        self._open = self._over = False
        for _, adapter in installed_adapters():
            adapter.allow_spills(host_memory)
            in_each_new_one(adapter.watch_thread)
        watch_for_good("cpu" in dict(installed_adapters()))
        watch_extensions(watches)  # tensors may be on the host from now on

    def ended(self, optimizer: Any, *_: Any) -> None:
        """An optimizer's step() has ended."""
        if self._over or self._process != os.getpid() or self._thread not in (None, threading.get_ident()):
            return
        import torch

        if (
            torch._C._len_torch_dispatch_stack() > 0
            or torch.cuda.is_available()
            and torch.cuda.is_current_stream_capturing()
        ):
            return
        self._thread = threading.get_ident()
        if not self._rounds.ends(id(optimizer)):
            return
        if self._program is None:
            self._program = self._make_program()
        self.close(False)
        if _STEP_GRAPHS in os.environ and self._program.stats().programs > 0:
            self._program.save_graph(os.path.join(os.environ[_STEP_GRAPHS], f"{os.getpid()}.graph"))
            self._over = True
            _leave_job()
            sys.exit(0)  # a dry run needs no more of the program
        self._program.begin()
        self._open = True

    _process = os.getpid()

    def close(self, failed: bool) -> None:
        if self._open and self._program is not None:
            self._open = False
            self._program.end(failed)

    def end(self) -> None:
        """The program ends, or has step programs of its own."""
        if not self._over and self._process == os.getpid():
            self._over = True
            with contextlib.suppress(Exception):
                self.close(True)
            if _STEP_GRAPHS in os.environ and self._program is not None:
                stats = self._program.stats()
                with open(os.path.join(os.environ[_STEP_GRAPHS], f"{os.getpid()}.why"), "w") as file:
                    file.write(stats.last_refusal or stats.last_divergence)

    def exit(self) -> None:
        """The process ends."""
        failed = getattr(sys, "last_type", None) is not None
        if self._trains and not failed and self._program is None and not self._over and self._process == os.getpid():
            print(
                "berth: warning: steps ran as they are: they end where the step() of an optimizer of torch's ends, and "
                "none did [loop-unmarked]",
                file=sys.stderr,
            )
        self.end()
        if not failed and self._process == os.getpid():
            self._tell_unscheduled()

    def _tell_unscheduled(self) -> None:
        """Why no step of a short loop ran by a schedule. A longer one, and one whose steps are refused, have been told."""
        stats = self.stats()
        if stats is None or stats.scheduled > 0 or stats.last_refusal or not _FEWEST <= stats.steps <= _TOLD:
            return
        why = stats.last_divergence or "none came again once it was known"
        print(f"berth: warning: steps ran as they are: {why} [loop-unscheduled]", file=sys.stderr)

    _trains = False

    def watch_backward(self) -> None:
        """Sees whether this process trains."""
        import torch

        autograd: Any = torch.autograd
        engine = autograd._engine_run_backward

        def run(*args: Any, **kwargs: Any) -> Any:
            self._trains = True
            autograd._engine_run_backward = engine
            return engine(*args, **kwargs)

        autograd._engine_run_backward = run

    def stats(self) -> Any:
        return None if self._program is None else self._program.stats()

    def _make_program(self) -> StepProgram:
        if _STEP_GRAPHS in os.environ:
            return StepProgram(engine="release", of_loop=True)
        kinds = [kind for kind, _ in installed_adapters()]
        copy_rate = _COPY_RATE["cuda" if "cuda" in kinds or not kinds else "cpu"]
        budget: Union[int, str] = self._budget
        if budget == "fit":
            budget = self._device_memory()
        if self._time_budget is not None:
            return StepProgram(time_budget=self._time_budget, host_memory=self._host_memory, of_loop=True)
        return StepProgram(budget, copy_rate=copy_rate if budget else 0, host_memory=self._host_memory, of_loop=True)

    @staticmethod
    def _device_memory() -> int:
        """Bytes of the device that a step can have; 0 where nothing limits it. Bytes of no tensor, such as a library's workspace, never leave."""
        from berth._install import stats

        kinds = dict(installed_adapters())
        limit = 0
        with contextlib.suppress(KeyError, UsageError):
            limit = _bytes(os.environ["BERTH_MEMORY_LIMIT"])
        if "cuda" in kinds:
            import torch

            free, _ = torch.cuda.mem_get_info()
            held, live = stats("cuda").reserved, stats("cuda").live
            limit = min(limit or free + held, free + held)
            known = kinds["cuda"].known_to_spills(torch.cuda.current_device())
        elif "cpu" in kinds:
            live, known = stats("cpu").live, kinds["cpu"].known_to_spills(-1)
        else:
            live = known = 0
        return max(int(_MOST_OF_DEVICE * limit) - max(live - known, 0), 1 if limit else 0)


_loop: Optional[_Loop] = None


def begin() -> None:
    """Reads BERTH_BUDGET and BERTH_TIME_BUDGET, and watches optimizers from now on. Nothing where neither is set, or where this has been called. Raises UsageError."""
    global _loop
    time_budget = os.environ.get("BERTH_TIME_BUDGET", "").strip()
    budget = os.environ.get("BERTH_BUDGET", "").strip() or ("fit" if time_budget else "")
    if not budget or _loop is not None:
        return
    if budget != "fit" and _share(budget) == 0:
        _bytes(budget, "BERTH_BUDGET")
    more = _time_share(time_budget, "BERTH_TIME_BUDGET") if time_budget else None
    text = os.environ.get("BERTH_HOST_MEMORY", "")
    host_memory = _bytes(text, "BERTH_HOST_MEMORY") if text else int(_MOST_OF_HOST * free_host_memory())
    from torch.optim.optimizer import register_optimizer_step_post_hook

    _loop = _Loop(budget, more, max(host_memory, 1))
    register_optimizer_step_post_hook(_untraced(_loop.ended))
    _loop.watch_backward()
    atexit.register(_loop.exit)
    loop_ends.append(_loop.end)


def _untraced(function: Any) -> Any:
    """The same, which torch.compile neither traces nor warns of. torch.compiler.disable() would import dynamo, which takes seconds."""

    def run(*args: Any) -> None:
        function(*args)

    setattr(run, "_torchdynamo_disable", True)
    with contextlib.suppress(ImportError):  # of another version: it warns
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

        skip = _FrameAction.SKIP  # this frame, and those that it calls
        set_code_exec_strategy(run.__code__, _FrameExecStrategy(skip, skip))
    return run


def stats() -> Any:
    """Of the step program of the loop; None where there is none."""
    return None if _loop is None else _loop.stats()
