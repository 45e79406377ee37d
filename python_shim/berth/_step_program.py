"""Training steps that berth runs by a schedule."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from typing import Iterator, Optional, Union

from berth import _library
from berth._errors import UsageError
from berth._install import installed_adapters


@dataclasses.dataclass(slots=True)
class StepProgramStats:
    """Counters of a step program. Sizes are bytes."""

    steps: int
    """All of them."""
    scheduled: int
    """Run by a schedule."""
    diverged: int
    """Began as a program and went another way: run as they were."""
    refused: int
    """Could not be made a program."""
    recovered: int
    """Ran out of memory in the schedule, and were run all the same."""
    programs: int
    """Different steps that are known."""
    planning: int
    """Of those, which are being planned now."""
    made: int
    """Schedules so far, also of steps that are known no more."""
    refined: int
    """Of steps that were planned once more by measured times."""
    operators: int
    """Of the last scheduled step."""
    predicted_peak: int
    """What its schedule takes: all that the step touches."""
    resident: int
    """What of that is there between steps, too."""
    recorded_peak: int
    """What the step takes as it was recorded, each value released after its last use."""
    predicted_ns: int
    """What the schedule's operators take, by the times of the record, or of scheduled steps where it was planned once more."""
    recorded_ns: int
    """What they take as recorded."""
    bound_ns: int
    """No schedule within the budget takes less."""
    step_ns: int
    """What the last scheduled step took, all of it."""
    schedule_ns: int
    """What of that its schedule took on the body's thread; the rest is the body without kernels, and the checks."""
    ran_beside: int
    """Instructions that ran on the second thread."""
    runs_again: int
    """Operators that its schedule runs more than once."""
    choices: int
    """Operators that a library has other algorithms for (cuDNN, for convolutions)."""
    chosen: int
    """Runs of its schedule that take one of those."""
    copied_out: int
    """Bytes that go to the host in a step, and come back."""
    host_peak: int
    """Most of them at one time."""
    spilled_out: int
    """Bytes that went to the host because a request found no room, since the process began."""
    spilled_in: int
    """Of those, and of what is still there, bytes that came back."""
    spilled_peak: int
    """Most of them on the host at one time."""
    spill_ns: int
    """What spills took of the program's time."""
    barriers: int
    """Calls of the last scheduled step that ran when they were called, once all before had run: nobody knows what they do, or what shape their
    result will have."""
    barrier_operators: str
    """Their operators, with how many calls each: "my::op 2, aten::nonzero 1"."""
    last_divergence: str
    """The operator, and what was different."""
    last_refusal: str
    """The operator, and why."""
    budget_not_met: str
    """Why, and the least share that may do; empty where it is met."""
    schedule_not_taken: str
    """Why the schedule of the file is not; empty where it is, or none was given."""


_pure: set[str] = set()


def pure(name: str) -> None:
    """Declares an operator pure, "my::op" with all its overloads or "my::op.overload": its results depend on its arguments alone, it does nothing that
    its schema does not tell, and the shapes of its results do not depend on what its arguments hold.

    Step programs may then run it later than it was called, in another order, and again. Operators that are not torch's own run when they are called
    otherwise, once all that was called before has run. For step programs that are made from now on. Raises UsageError for a name without "::".
    Thread-safe."""
    if not isinstance(name, str) or "::" not in name:
        raise UsageError(f"{name!r} is declared pure; the name of an operator is wanted, such as my::op")
    _pure.add(name)


_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20, "G": 1 << 30, "GIB": 1 << 30, "T": 1 << 40, "TIB": 1 << 40,
          "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _share(text: Union[int, str]) -> float:
    """Of a text such as "60%"; 0 where it is none."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*%\s*", text) if isinstance(text, str) else None
    return float(match[1]) / 100 if match is not None else 0


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


class StepProgram:
    """Runs the training step inside of a scope by a schedule, with the bits of the step as written and in no more memory.

    The model and the loop stay as they are:

        program = berth.StepProgram(memory_budget="4GiB")
        for x, y in loader:
            with program.step():
                ...zero_grad, forward, backward, optimizer, as ever...

    The first steps run as they are and are recorded. Once two were the same, the body runs without kernels: each operator is checked
    against the record, and the schedule does the work, up to what the body reads back (item()), the rest at the end of the scope. A
    step that calls something else runs as written, and becomes a program of its own where it comes again. What Python reads behind torch's
    operators (tolist(), numpy()) is computed up to there, too; what uses a tensor runs when it is called once the body has asked where its
    bytes are (numpy(), data_ptr(), untyped_storage(), pickling it), or where others may use them (an array of NumPy's that is older than the step).

    memory_budget: bytes, or a text such as "6GiB", that the step may take on the device at most, all counted, or "60%" of what it adds as
    recorded to what is there between steps (activations, gradients, workspaces); 0: as few as it takes without running an operator twice. Where it cannot be met, the step runs without one, and stats()
    says why. time_budget, instead of it: how much more time than as recorded the operators may take, such as 0.1; the step runs in the
    least memory that is found within it.

    A program is planned behind its second step, on another thread, in 4 seconds, with time_budget in 14; where nothing is found in that
    which fits memory_budget, in up to five times as long more, with copy_rate in ten times. Until then it runs by a schedule that keeps the
    order of the record. With a budget what its operators take is measured in three more steps, where the plan runs them; if that is a tenth
    more or less than in the record, it is planned once more, for as long, from what it has.

    plan_wait: how many seconds the loop waits for plans, in all its steps together; float("inf"): for each until it is there.

    engine: who plans the step. "auto", or "berth", is all of berth, "order", or "olla", keeps everything and orders, "release" keeps the order,
    too, "eager" runs steps as they are; "chen", "checkmate", "knapsack" and "monet" are what others make again within a budget, "vdnn" and
    "dymem" what they copy, to compare.

    copy_rate: how many bytes a second the device copies to the host and back. Then what does not fit the budget is also copied away, beside the
    kernels, and fetched again. 0: nothing is. On the CPU the host is memory like any other.

    host_memory: bytes, or a text such as "16GiB", that tensors may take on the host which leave the device where a request finds no room. With it a
    step larger than the device runs, also while it is recorded, as long as there is room for what its largest operator takes and makes. Tensors
    that are on the host come back before an operator that takes them; a read behind torch's operators that step() does not watch raises
    RuntimeError. 0: a step that does not fit ends in out of memory. Needs berth's allocator on the device.

    schedule: a file by `berth schedule`, of save_graph()'s graph or of a trace by `berth record --operators` of a run in which a step
    program had this step: a step that it is for is run by it from the start, without a search. None is given: what BERTH_SCHEDULE says.

    other_bits: whether algorithms of libraries may be taken that give other bits than the operator as written, as with
    torch.backends.cudnn.benchmark. What was measured of algorithms is kept in the file that BERTH_ALGORITHMS names, if any.

    second_thread: whether the schedule runs on a thread of its own, right behind the checks. Hides the body's time where a core is free for it.

    One step at a time in a process; a program belongs to the thread that trains. Needs no berth.install(). With it the end of a step is
    its mark, unless the program calls mark_step(), and from the fourth step of a schedule on every block has its planned address.
    """

    def __init__(self, memory_budget: Union[int, str] = 0, *, time_budget: Optional[float] = None, engine: str = "auto",
                 copy_rate: int = 0, host_memory: Union[int, str] = 0, schedule: Union[str, "os.PathLike[str]"] = "", other_bits: bool = False, second_thread: bool = False,
                 plan_wait: float = 0.3, of_loop: bool = False) -> None:
        self._program: Union[int, None] = None
        if not of_loop:
            from berth import _loop

            _loop.give_way()
        self._host_memory = _bytes(host_memory, "host_memory")
        # That of the allocator that serves or records the step, so that marks and traces have it.
        there = dict(installed_adapters())
        self._adapter = there.get("cuda") or there.get("cpu") or _library.step_adapter()
        for name in sorted(_pure):
            self._adapter.declare_pure(name)
        from berth._byte_access import Watch, watch_for_good  # imports torch

        self._watch = Watch()
        share = _share(memory_budget)
        if isinstance(copy_rate, bool) or not isinstance(copy_rate, int) or not 0 <= copy_rate <= 10**15:
            raise UsageError(f"copy_rate is {copy_rate!r}; bytes a second from 0 to {10**15} are wanted")
        if time_budget is not None and not time_budget >= 0:
            raise UsageError(f"time_budget is {time_budget!r}; a number from 0 on is wanted, such as 0.1 for a tenth more time")
        if isinstance(plan_wait, bool) or not isinstance(plan_wait, (int, float)) or not plan_wait >= 0:
            raise UsageError(f"plan_wait is {plan_wait!r}; a number of seconds from 0 on is wanted")
        self._program = self._adapter.make_step_program(
            engine, os.fspath(schedule), 0 if share > 0 else _bytes(memory_budget), share, -1.0 if time_budget is None else float(time_budget), copy_rate,
            self._host_memory, other_bits, bool(second_thread), float(plan_wait))
        if self._host_memory > 0:
            watch_for_good()  # between steps, too, tensors may be on the host

    def __del__(self) -> None:
        if self._program is not None:
            self._adapter.free_step_program(self._program)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """The step is what happens inside. Raises what its operators raise."""
        self.begin()
        try:
            yield
        except BaseException:
            self.end(failed=True)
            raise
        self.end()

    def begin(self) -> None:
        """Begins a step, for a loop that cannot hold it in a scope."""
        self._watch.__enter__()
        try:
            self._adapter.begin_step(self._program)
        except BaseException:
            self._watch.__exit__()
            raise

    def end(self, failed: bool = False) -> None:
        """Ends the step that begin() began. failed: an exception left its body. Raises what its operators raise."""
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
        """Writes the step that came last as a graph, for `berth schedule` and berth.Graph.load(): as step programs plan it, lists taken apart and
        results in the bytes of operands that nobody needs any more, or as it was written, which is what a trace with operators gives. Raises
        UsageError where none is known yet."""
        self._adapter.save_step_graph(self._program, os.fspath(path), as_written)

    def stats(self) -> StepProgramStats:
        """Counters so far."""
        return StepProgramStats(**json.loads(self._adapter.step_program_stats(self._program)))
