"""The planner, for traces and for any other problem of dynamic storage allocation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Union

from berth import _core
from berth._errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_Progress = Callable[[_core.Progress], object]
_MOST = (1 << 62) - 1


def engines() -> list[str]:
    """Names for `engine`, "auto" first. Only the program `berth` has the engines that need the solver HiGHS."""
    return [name for name in _core.engines() if not name.startswith("ilp")]


def _check_search(time_limit: float, iterations: int, threads: int, engine: str, legal: Sequence[str]) -> None:
    if not time_limit > 0:
        raise UsageError(f"time_limit is {time_limit}: seconds above 0 are wanted, math.inf for none")
    for name, value, most in (("iterations", iterations, _MOST), ("threads", threads, 1024)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise UsageError(f"{name} is {value!r}: a whole number from 0 to {most} is wanted")
    if engine not in legal:
        raise UsageError(f"engine is {engine!r}, legal are: {', '.join(legal)}")


def _limit(time_limit: Optional[float], iterations: int) -> float:
    """With a budget of tries and no time limit the result depends on the seed alone."""
    if time_limit is not None:
        return time_limit
    return math.inf if iterations else 10.0


def plan(
    trace: _core.Trace,
    *,
    time_limit: Optional[float] = None,
    progress: Optional[_Progress] = None,
    capacity: Optional[int] = None,
    alignment: Optional[int] = None,
    engine: str = "auto",
    iterations: int = 0,
    seed: int = 1,
    threads: int = 1,
) -> _core.Plan:
    """Places every request of a trace's step.

    time_limit  seconds of the search; default: 10, or no limit where `iterations` is given
    progress    a function that receives a Progress now and then
    capacity    bytes: the search ends at the first plan that fits; none was found if arena_bytes is above
    alignment   alignment of offsets in bytes; default: the trace's
    engine      one of engines()
    iterations  number of tries of the search; equal seeds then give equal plans
    threads     threads of the search; 0: one a core

    Ctrl-C ends the search, and the best so far is returned. Raises InputError for a trace in which nothing repeats.
    """
    if not isinstance(trace, _core.Trace):
        raise UsageError(
            f"trace is a {type(trace).__name__}: a berth.Trace is wanted, as berth.Trace.load(path) makes one"
        )
    limit = _limit(time_limit, iterations)
    _check_search(limit, iterations, threads, engine, engines())
    return _core.plan(trace, alignment, limit, iterations, seed, threads, engine, capacity, progress)


def place(
    sizes: "ArrayLike",
    births: "ArrayLike",
    ends: "ArrayLike",
    *,
    pinned: Optional[Sequence[Optional[int]]] = None,
    period: int = 0,
    alignment: int = 1,
    time_limit: Optional[float] = None,
    progress: Optional[_Progress] = None,
    capacity: Optional[int] = None,
    engine: str = "auto",
    iterations: int = 0,
    seed: int = 1,
    threads: int = 1,
) -> _core.Placement:
    """Places buffers with a low high-water mark. Buffers that are alive at one time share no byte.

    sizes       size of each buffer in bytes, above 0
    births      the beginning of its lifetime, in any unit of time, from 0
    ends      the end of its lifetime; one buffer may end when the next begins
    pinned      the offset of each buffer that has one already, else None
    period      0, or the length of a circle of time: birth < period, end - birth <= period, and an end beyond the period
                wraps around
    alignment   alignment of all offsets, a power of two; sizes are rounded up to it

    sizes, births and ends are one-dimensional and equally long: NumPy arrays or lists of whole numbers. The others are as those of
    plan(). Ctrl-C ends the search, and the best so far is returned. Raises UsageError that names argument and row.
    """
    import numpy as np

    columns = {
        "sizes": _whole_numbers("sizes", sizes),
        "births": _whole_numbers("births", births),
        "ends": _whole_numbers("ends", ends),
    }
    count = len(columns["sizes"])
    for name, column in columns.items():
        if len(column) != count:
            raise UsageError(f"{name} has {len(column)} rows, sizes has {count}")
    for name, wrong, why in (
        ("sizes", columns["sizes"] == 0, "a buffer of no bytes needs no place"),
        ("ends", columns["ends"] <= columns["births"], "it is not after the row's birth"),
        (
            "births",
            columns["births"] >= period if period else np.zeros(count, bool),
            f"it is not below the period, {period}",
        ),
        (
            "ends",
            columns["ends"] - columns["births"] > period if period else np.zeros(count, bool),
            f"the buffer lives longer than the period, {period}",
        ),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise UsageError(f"{name}[{row}] is {columns[name][row]}: {why}")
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise UsageError(f"alignment is {alignment!r}: a power of two is wanted")
    limit = _limit(time_limit, iterations)
    _check_search(limit, iterations, threads, engine, engines())
    return _core.place(
        columns["sizes"],
        columns["births"],
        columns["ends"],
        _pins(pinned, count),
        period,
        alignment,
        limit,
        iterations,
        seed,
        threads,
        engine,
        capacity,
        progress,
    )


def _whole_numbers(name: str, values: "ArrayLike") -> "NDArray[np.uint64]":
    import numpy as np

    column: NDArray[Any] = np.asarray(values)
    if column.size == 0 and column.ndim == 1:
        return np.zeros(0, np.uint64)
    if column.ndim != 1:
        raise UsageError(f"{name} has {column.ndim} dimensions: one is wanted")
    if column.dtype.kind not in "iu":
        raise UsageError(f"{name} holds {column.dtype}: whole numbers are wanted")
    wrong = (column < 0) | (column > _MOST) if column.dtype.kind == "i" else column > np.uint64(_MOST)
    if wrong.any():
        row = int(wrong.argmax())
        raise UsageError(f"{name}[{row}] is {column[row]}: 0 to {_MOST} are legal")
    return np.ascontiguousarray(column, np.uint64)


def _pins(pinned: Optional[Sequence[Union[int, None]]], count: int) -> "Optional[NDArray[np.int64]]":
    import numpy as np

    if pinned is None:
        return None
    if len(pinned) != count:
        raise UsageError(f"pinned has {len(pinned)} rows, sizes has {count}")
    made = np.full(count, -1, np.int64)
    for row, offset in enumerate(pinned):
        if offset is None:
            continue
        if isinstance(offset, bool) or not 0 <= int(offset) <= _MOST:
            raise UsageError(f"pinned[{row}] is {offset!r}: an offset from 0 to {_MOST} or None is wanted")
        made[row] = int(offset)
    return made
