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


def schedule(graph: Union[_core.Graph, _core.Trace], budget: int, *, rate_out: Optional[int] = None, rate_in: Optional[int] = None,
             addresses: bool = True, given: Sequence[_core.Schedule] = (), time_limit: Optional[float] = None,
             progress: Optional[Callable[[_core.ScheduleProgress], object]] = None, engine: str = "auto", iterations: int = 0,
             seed: int = 1) -> _core.Scheduled:
    """Plans a step so that it fits a budget and takes little time: the order of its operators, what to keep, to make again and to copy.

    graph       a Graph, or a Trace with operators whose step repeats
    budget      bytes of everything on the device, what is resident included
    rate_out    bytes a second that the device copies to the host; None: as rate_in, or nothing is copied
    rate_in     the same of the way back
    addresses   whether buffers get places in an arena, which fits the budget then
    given       schedules of this graph that are there already: what is found is never slower than one that fits
    time_limit  seconds after which the best so far is taken; 10, or none where `iterations` is given
    progress    called with a ScheduleProgress now and then
    engine      one of schedule_engines()
    iterations  tries of each search after which it ends; equal seeds then give equal schedules

    Where nothing fits, `schedule` of what is returned is None and `why_not` says why. Ctrl-C ends the search, and the best so far is returned.
    """
    if isinstance(graph, _core.Trace):
        graph = _core.Graph.from_trace(graph)
    if not isinstance(graph, _core.Graph):
        raise UsageError(f"graph is a {type(graph).__name__}: a berth.Graph or a berth.Trace is wanted")
    for name, value, least, most in (("budget", budget, 0, _MOST), ("rate_out", rate_out, 1, _FASTEST), ("rate_in", rate_in, 1, _FASTEST)):
        if value is None and name != "budget":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise UsageError(f"{name} is {value!r}: bytes from {least} to {most} are wanted")
    limit = _limit(time_limit, iterations)
    _check_search(limit, iterations, 1, engine, schedule_engines())
    out, back = rate_in if rate_out is None else rate_out, rate_out if rate_in is None else rate_in
    return _core.schedule(graph, budget, out, back, addresses, list(given), limit, iterations, seed, engine, progress)
