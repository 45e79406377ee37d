"""berth: a memory allocator for PyTorch with planned placement.

It records one training step, plans an offset for each request, and serves the k-th request at its planned offset in one
arena. Unchanged scripts train under it:

    python -m berth run train.py --epochs 3

or with one line before the first tensor:

    import berth
    berth.install()

What else is here:

    install, installed, mark_step, stats, scope        the allocator of this process
    record, load_plan, save_plan, release, resume      its traces, plans and memory
    Trace, Plan, Step, plan                            recorded runs and plans as objects
    place, Placement                                   any problem of dynamic storage allocation
    order, Order                                       any graph of operators, for the least memory
    schedule, Graph, Schedule                          a step within a budget: what to keep, recompute and copy
    StepProgram, pure                                  a training step run by such a schedule
    partitioner                                        what torch.compile saves and recomputes
    Error, UsageError, InputError, SystemFailure       exceptions

Sizes and offsets are bytes, times are seconds. All functions may be called from any thread.
"""

from berth import _install
from berth._build import VERSION as __version__
from berth._core import (
    Graph,
    Order,
    OrderProgress,
    Placement,
    Plan,
    Progress,
    Requests,
    Schedule,
    Scheduled,
    ScheduleProgress,
    Sequence,
    Step,
    Steps,
    Trace,
)
from berth._errors import Error, InputError, SystemFailure, UsageError
from berth._install import install, installed, load_plan, mark_step, record, release, resume, save_plan, scope, stats
from berth._order import order, order_engines
from berth._partition import partitioner
from berth._place import engines, place, plan
from berth._schedule import schedule, schedule_engines
from berth._stats import Miss, Stats
from berth._step_program import StepProgram, StepProgramStats, pure


def _begin_loop() -> None:
    from berth import _loop  # imports torch

    _loop.begin()


_install.loop_begins.append(_begin_loop)

__all__ = [
    "Error",
    "Graph",
    "InputError",
    "Miss",
    "Order",
    "OrderProgress",
    "Placement",
    "Plan",
    "Progress",
    "Requests",
    "Schedule",
    "ScheduleProgress",
    "Scheduled",
    "Sequence",
    "Stats",
    "Step",
    "StepProgram",
    "StepProgramStats",
    "Steps",
    "SystemFailure",
    "Trace",
    "UsageError",
    "__version__",
    "engines",
    "install",
    "installed",
    "load_plan",
    "mark_step",
    "order",
    "order_engines",
    "partitioner",
    "place",
    "plan",
    "pure",
    "record",
    "release",
    "resume",
    "save_plan",
    "schedule",
    "schedule_engines",
    "scope",
    "stats",
]
