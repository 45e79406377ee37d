"""Training steps that berth runs by a schedule."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from typing import Callable, Iterator, Optional, Union

from berth import _library
from berth._errors import UsageError
from berth._install import installed_adapters


@dataclasses.dataclass(slots=True)
class StepProgramStats:
    """Counters of a step program. Sizes are bytes."""

    steps: int
    """All steps."""
    scheduled: int
    """Steps that a schedule ran."""
    diverged: int
    """Steps that began as a program and then called something else. They ran as written."""
    refused: int
    """Steps that could not become a program."""
    recovered: int
    """Steps whose schedule ran out of memory. They ran as written."""
    programs: int
    """Different steps that berth knows."""
    planning: int
    """Programs that are being planned now."""
    made: int
    """Schedules so far, also of programs that were replaced."""
    refined: int
    """Programs that were planned once more: by measured times, or within less memory after spills."""
    operators: int
    """Operators of the last scheduled step."""
    predicted_peak: int
    """The peak of the schedule, everything counted that the step uses."""
    resident: int
    """The part of the peak that lives between steps, too."""
    recorded_peak: int
    """The peak of the recorded step, with each value released after its last use."""
    predicted_ns: int
    """Time of the schedule's operators, by the record. If the step was planned once more: by scheduled steps."""
    recorded_ns: int
    """Time of the operators as recorded."""
    bound_ns: int
    """A lower bound of the time of any schedule within the budget."""
    step_ns: int
    """Time of the last scheduled step, everything counted."""
    schedule_ns: int
    """Time of its schedule on the body's thread. The rest of the step is the body without kernels, and the checks."""
    ran_beside: int
    """Instructions that ran on the second thread."""
    recomputed: int
    """Operators that the schedule runs more than once."""
    alternatives: int
    """Operators for which a library has other algorithms (cuDNN, for convolutions)."""
    chosen: int
    """Runs of the schedule that use one of these."""
    offloaded_bytes: int
    """Bytes that a step offloads."""
    host_peak: int
    """The most of these bytes on the host at one time."""
    spilled_out: int
    """Bytes that spilled to the host because a request found no room, since the process began."""
    spilled_in: int
    """Bytes of spills that came back."""
    spilled_peak: int
    """The most of these bytes on the host at one time."""
    spill_ns: int
    """The time that the program waited for spills."""
    barriers: int
    """Barriers of the last scheduled step: calls that ran when they were called, after all calls before them. Their
    effects, or the shapes of their results, are unknown before the call."""
    barrier_operators: str
    """The operators of the barriers, with their numbers of calls: "my::op 2, aten::nonzero 1"."""
    last_divergence: str
    """The operator of the last divergence, and the difference."""
    last_refusal: str
    """The operator of the last refusal, and the reason."""
    budget_not_met: str
    """Why the budget is not met, and the least share that may be met. Empty if it is met."""
    schedule_not_taken: str
    """Why the schedule of the file is not used. Empty if it is used, or if there is no file."""


_pure: set[str] = set()
loop_ends: list[
    Callable[[], None]
] = []  # ends the loop of BERTH_BUDGET, which gives way to a program of the user's own


def pure(name: str) -> None:
    """Declares an operator pure: "my::op" with all its overloads, or "my::op.overload".

    The results of a pure operator depend on its arguments alone. The shapes of its results do not depend on values in
    its arguments. It has no effect that its schema does not name.

    Step programs may run a pure operator later than it was called, in another order, and again. An operator that is
    neither torch's own nor pure is a barrier: it runs when it is called, after all calls before it. The declaration
    holds for step programs that are made from now on. Thread-safe. Raises UsageError for a name without "::"."""
    if not isinstance(name, str) or "::" not in name:
        raise UsageError(f"{name!r} is declared pure; the name of an operator is wanted, such as my::op")
    _pure.add(name)


_OFFLOAD_IF_NEEDED = (1 << 64) - 1  # StepProgramOptions::kOffloadIfNeeded

_UNITS = {
    "": 1,
    "B": 1,
    "K": 1 << 10,
    "KIB": 1 << 10,
    "M": 1 << 20,
    "MIB": 1 << 20,
    "G": 1 << 30,
    "GIB": 1 << 30,
    "T": 1 << 40,
    "TIB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


def _share(text: Union[int, str]) -> float:
    """The share in a text such as "60%"; 0 for any other text."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*%\s*", text) if isinstance(text, str) else None
    return float(match[1]) / 100 if match is not None else 0


def _time_share(text: str, name: str) -> float:
    """A share of time, from 0 to 1000. Raises UsageError for any other text."""
    try:
        share = float(text)
    except ValueError:
        share = -1
    if not 0 <= share <= 1000:
        raise UsageError(f"{name} is {text!r}; a share from 0 to 1000 is wanted, such as 0.1")
    return share


def _kernels_registered() -> int:
    """How many kernels torch.library has registered in this process."""
    import torch.library

    return len(getattr(torch.library, "_impls", ()))


def _bytes(size: Union[int, str], name: str = "memory_budget") -> int:
    if isinstance(size, int):
        found, number, unit = size >= 0, float(size), ""
    else:
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", size)
        found = match is not None and match[2].upper() in _UNITS
        number, unit = (float(match[1]), match[2].upper()) if found and match is not None else (0.0, "")
    if not found:
        also = " or '60%'" if name == "memory_budget" else ""
        raise UsageError(f"{name} is {size!r}; a number of bytes is wanted, or a text such as '6GiB'{also}")
    return int(number * _UNITS[unit])


def _tell_parameters() -> None:
    """Lets existing parameters spill in the first step, like later ones: an operator reads each."""
    import torch
    from berth._extensions import all_objects

    for one in all_objects():
        if type(one) is torch.nn.Parameter and one.layout is torch.strided and one.device.type != "meta":
            torch.ops.berth.read_bytes(one.detach())


class StepProgram:
    """Runs the training step inside a scope by a schedule, with the bits of the step as written and in no more memory.

    The model and the loop stay as they are:

        program = berth.StepProgram(memory_budget="4GiB")
        for x, y in loader:
            with program.step():
                ...zero_grad, forward, backward, optimizer, as ever...

    The first steps run as written and are recorded. After two equal steps the body runs without kernels. berth checks
    each of its operators against the record, and the schedule does the work. The schedule runs up to a value when the
    body reads it back (item(), tolist()), and to its end when the scope ends. A step that calls something else runs as
    written. If it comes again, it becomes a program of its own.

    An operator on a tensor whose bytes others may use runs when it is called. Others may use them after the body has
    read their address (numpy(), data_ptr(), untyped_storage(), pickling), or if they belong to a NumPy array that is
    older than the step.

    memory_budget: the most memory that the step may use on the device, everything counted: bytes, or a text such as
    "6GiB". A share such as "60%" is of the bytes that the recorded step adds to those between steps (activations,
    gradients, workspaces). 0: as little as possible without recomputation. If the budget cannot be met, the step runs
    without one, and stats() has the reason.

    time_budget: the share of time by which the operators may exceed the recorded ones, such as 0.1. The step then runs
    in the least memory that berth finds within it. It excludes memory_budget.

    A program is planned after its second step, on another thread: in 4 seconds at most, or 14 with time_budget. If no
    schedule fits memory_budget in that time, the search continues for up to five times as long, with offload for ten
    times. Until then the program runs by a schedule in the order of its record. With a budget berth also times the
    schedule's operators in three more steps. If they differ from the record by a tenth, berth plans the program once
    more, for as long, starting from its schedule.

    plan_wait: the seconds that the loop waits for plans, in all its steps together. float("inf"): it waits for each plan.

    host_memory: the most host memory for spills and for offload, together: bytes, or a text such as "16GiB".
    A spill copies tensors to the host when a request finds no room on the device. They come back before an operator that
    uses them. With it a step larger than the device runs: the device needs room for the operands and results of the
    largest operator. A read behind torch's operators that berth does not see raises RuntimeError. With copy_rate the
    schedule itself keeps parameters and optimizer state on the host between their uses, if memory_budget requires it.
    0: such a step ends in out of memory.

    engine: the planner of the step. "auto" (or "berth") uses all of berth's searches. "order" (or "olla") orders the
    operators without recomputation, as OLLA does. "release" keeps the recorded order. "eager" runs steps as written.
    The planners of papers are for comparison: "chen", "checkmate", "knapsack" and "monet" recompute within a budget,
    "vdnn" and "dymem" copy to the host.

    copy_rate: bytes a second that the device copies to the host and back. With it schedules also offload: they copy
    bytes to the host and back beside the kernels. 0: no offload. None: only where memory_budget is not met without, as
    if the device did 20 GB a second, 4 GB on the CPU. On the CPU the host is memory like any other.

    schedule: a file of `berth schedule`. A step that matches it runs by it from the start, without a search. The planned
    graph comes from save_graph(), or from a trace of `berth record --operators` of a program with this step program.
    Empty: the file of BERTH_SCHEDULE.

    other_bits: True permits library algorithms with other bits than the operator as written, as
    torch.backends.cudnn.benchmark does. BERTH_ALGORITHMS names a file that keeps the measured algorithms.

    second_thread: True runs the schedule on a second thread, right behind the checks. This hides the body's own time
    if a core is free.

    One step at a time in a process. A program belongs to the thread that trains. It does not need berth.install(). With
    it the end of a step is its mark, unless the program calls mark_step(). A schedule is planned with its addresses: its
    first step finds its blocks there.
    """

    _program: Union[int, None] = None  # also where making one failed

    def __init__(
        self,
        memory_budget: Union[int, str] = 0,
        *,
        time_budget: Optional[float] = None,
        engine: str = "auto",
        copy_rate: Optional[int] = None,
        host_memory: Union[int, str] = 0,
        schedule: Union[str, "os.PathLike[str]"] = "",
        other_bits: bool = False,
        second_thread: bool = False,
        plan_wait: float = 0.3,
        of_loop: bool = False,
    ) -> None:
        if not of_loop:
            for end in loop_ends:
                end()
        self._host_memory = _bytes(host_memory, "host_memory")
        # That of the allocator that serves or records the step, so that marks and traces have it.
        there = dict(installed_adapters())
        self._adapter = there.get("cuda") or there.get("cpu") or _library.step_adapter()
        for name in sorted(_pure):
            self._adapter.declare_pure(name)
        from berth._byte_access import Watch, watch_for_good, watches  # imports torch
        from berth._extensions import watch_extensions
        from berth._other_threads import in_each_new_one, when_there_are_any

        self._watch = Watch()
        share = _share(memory_budget)
        if copy_rate is None:
            copy_rate = _OFFLOAD_IF_NEEDED
        elif isinstance(copy_rate, bool) or not isinstance(copy_rate, int) or not 0 <= copy_rate <= 10**15:
            raise UsageError(f"copy_rate is {copy_rate!r}; bytes a second from 0 to {10**15} are wanted")
        if time_budget is not None and not time_budget >= 0:
            raise UsageError(
                f"time_budget is {time_budget!r}; a number from 0 on is wanted, such as 0.1 for a tenth more time"
            )
        if isinstance(plan_wait, bool) or not isinstance(plan_wait, (int, float)) or not plan_wait >= 0:
            raise UsageError(f"plan_wait is {plan_wait!r}; a number of seconds from 0 on is wanted")
        self._kernels = _kernels_registered()
        self._program = self._adapter.make_step_program(
            engine,
            os.fspath(schedule),
            0 if share > 0 else _bytes(memory_budget),
            share,
            -1.0 if time_budget is None else float(time_budget),
            copy_rate,
            self._host_memory,
            other_bits,
            bool(second_thread),
            float(plan_wait),
        )
        if engine != "eager":
            watch_extensions(watches)
            when_there_are_any(self._adapter.watch_threads)
        if engine != "eager" or self._host_memory > 0:
            in_each_new_one(self._adapter.watch_thread)
        if self._host_memory > 0:
            watch_for_good("cpu" in there)  # between steps, too, tensors may be on the host
            _tell_parameters()

    def __del__(self) -> None:
        freed, self._program = self._program, None
        if freed is not None:
            self._adapter.free_step_program(freed)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A scope around the body of one step. Raises the exceptions of its operators."""
        self.begin()
        try:
            yield
        except BaseException:
            self.end(failed=True)
            raise
        self.end()

    def begin(self) -> None:
        """Begins a step, for a loop that cannot hold it in a scope."""
        if (kernels := _kernels_registered()) != self._kernels:
            self._kernels = kernels
            self._adapter.note_kernels()
        self._watch.__enter__()
        try:
            self._adapter.begin_step(self._program)
        except BaseException:
            self._watch.__exit__()
            raise

    def end(self, failed: bool = False) -> None:
        """Ends the step that begin() began. failed: an exception left its body. Raises what its operators raise."""
        if self._program is None:  # Python's collector came to __del__() before it closed a generator within the step
            self._watch.__exit__()
            return
        try:
            takes_over = self._adapter.end_step(self._program, failed)
        finally:
            self._watch.__exit__()
        if failed:
            return
        for _, other in installed_adapters():
            if other is not self._adapter:
                other.program_step_ended(takes_over)

    def save_graph(self, path: Union[str, "os.PathLike[str]"], *, as_written: bool = False) -> None:
        """Writes the last step as a graph, for `berth schedule` and berth.Graph.load().

        By default it is the graph that step programs plan: calls over lists are split, and a result may use the bytes
        of a dead operand. `as_written` gives the graph of a trace with operators. Raises UsageError if no step is
        known yet."""
        self._adapter.save_step_graph(self._program, os.fspath(path), as_written)

    def stats(self) -> StepProgramStats:
        """Counters so far."""
        return StepProgramStats(**self._adapter.step_program_stats(self._program))
