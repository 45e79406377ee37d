"""Steps within a budget, for recorded steps and any other graph of operators."""

from __future__ import annotations

from typing import Callable, Optional, Sequence, Union

from berth import _core
from berth._errors import UsageError
from berth._place import _MOST, _check_search, _limit

_FASTEST = 10**15  # bytes a second


def schedule_engines() -> list[str]:
    """Names for `engine` of schedule(), "auto" first."""
    return list(_core.schedule_engines())


def schedule(
    graph: Union[_core.Graph, _core.Trace],
    budget: Optional[int],
    *,
    rate_out: Optional[int] = None,
    rate_in: Optional[int] = None,
    addresses: bool = True,
    given: Sequence[_core.Schedule] = (),
    time_limit: Optional[float] = None,
    progress: Optional[Callable[[_core.ScheduleProgress], object]] = None,
    engine: str = "auto",
    iterations: int = 0,
    seed: int = 1,
) -> _core.Scheduled:
    """Plans a step within a budget of memory: the order of its operators, and what to keep, recompute and copy.

    graph       a Graph, or a Trace with operators whose step repeats
    budget      bytes on the device, everything counted, resident bytes included; None: as few as are found, in any time
    rate_out    bytes a second that the device copies to the host; None: the same as rate_in
    rate_in     bytes a second that it copies back; None: the same as rate_out; both None: no offload
    addresses   whether buffers get offsets in an arena; the arena then fits the budget
    given       known schedules of this graph; the result is never slower than one of them that fits
    time_limit  seconds of the search; default: 10, or no limit where `iterations` is given. Without a budget there are
                seven searches at most, of half of it each
    progress    a function that receives a ScheduleProgress now and then
    engine      one of schedule_engines()
    iterations  number of tries of each search; equal seeds then give equal schedules

    The planner searches for the least time. If no schedule fits, `schedule` of the result is None, and `why_not` has the reason.
    Ctrl-C ends the search, and the best schedule so far is returned.
    """
    if isinstance(graph, _core.Trace):
        graph = _core.Graph.from_trace(graph)
    if not isinstance(graph, _core.Graph):
        raise UsageError(f"graph is a {type(graph).__name__}: a berth.Graph or a berth.Trace is wanted")
    for name, value, least, most in (
        ("budget", budget, 0, _MOST),
        ("rate_out", rate_out, 1, _FASTEST),
        ("rate_in", rate_in, 1, _FASTEST),
    ):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise UsageError(f"{name} is {value!r}: bytes from {least} to {most} are wanted")
    limit = _limit(time_limit, iterations)
    _check_search(limit, iterations, 1, engine, schedule_engines())
    out, back = rate_in if rate_out is None else rate_out, rate_out if rate_in is None else rate_in
    return _core.schedule(graph, budget, out, back, addresses, list(given), limit, iterations, seed, engine, progress)
