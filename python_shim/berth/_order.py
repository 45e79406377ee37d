"""The order of operators, for any graph of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Optional, Sequence

from berth import _core
from berth._errors import UsageError
from berth._place import _MOST, _check_search, _limit, _whole_numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

_NOBODY = (1 << 32) - 1  # the maker of what is there from the beginning


def order_engines() -> list[str]:
    """Names for `engine` of order(), "auto" first. Only the program `berth` has the engine that needs the solver HiGHS."""
    return [name for name in _core.order_engines() if name != "olla"]


def order(
    sizes: "ArrayLike",
    makers: "ArrayLike",
    readers: "Sequence[ArrayLike]",
    *,
    workspaces: "Optional[ArrayLike]" = None,
    control: "Optional[ArrayLike]" = None,
    resident: int = 0,
    given: "Optional[ArrayLike]" = None,
    time_limit: Optional[float] = None,
    progress: Optional[Callable[[_core.OrderProgress], object]] = None,
    engine: str = "auto",
    iterations: int = 0,
    seed: int = 1,
) -> _core.Order:
    """Orders operators so that the peak of live bytes is low.

    sizes       size of each value in bytes
    makers      the operator that makes each value; -1 for a value that is there from the beginning
    readers     for each value the operators that read it; it is alive from its maker's run to its last reader's
    workspaces  bytes that each operator needs while it runs; None: no bytes
    control     pairs of operators, (earlier, later)
    resident    bytes that are alive all the time
    given       a known order; the result is never worse
    time_limit  seconds of the search; default: 10, or no limit where `iterations` is given
    progress    a function that receives an OrderProgress now and then
    engine      one of order_engines()
    iterations  number of tries of the search; equal seeds then give equal orders

    All but `readers` are NumPy arrays or lists of whole numbers. `workspaces` has a row for each operator; without it
    the operators are those that the other arguments name. Ctrl-C ends the search, and the best order so far is returned.
    Raises UsageError that names argument and row, or an operator on a cycle.
    """
    import numpy as np

    bytes_of = _whole_numbers("sizes", sizes)
    made = np.asarray(makers)
    unmade = made == -1
    makers_of = _whole_numbers("makers", np.where(unmade, 0, made) if np.any(unmade) else made)
    for name, rows in (("makers", len(makers_of)), ("readers", len(readers))):
        if rows != len(bytes_of):
            raise UsageError(f"{name} has {rows} rows, sizes has {len(bytes_of)}")
    read = [_whole_numbers(f"readers[{row}]", some) for row, some in enumerate(readers)]
    first = np.cumsum([0, *map(len, read)], dtype=np.uint64)
    flat = np.concatenate([np.zeros(0, np.uint64), *read])
    named = {
        "makers": makers_of[~unmade],
        "readers": flat,
        "control": _pairs(control),
        "given": _whole_numbers("given", [] if given is None else given),
    }
    largest = max((int(column.max()) for column in named.values() if len(column)), default=-1)
    if workspaces is None and largest >= _core.most_ordered:
        raise UsageError(
            f"there are operators up to number {largest}, the most that are ordered are {_core.most_ordered}"
        )
    spaces = np.zeros(largest + 1, np.uint64) if workspaces is None else _whole_numbers("workspaces", workspaces)
    for name, column in named.items():
        if len(column) and int(column.max()) >= len(spaces):
            raise UsageError(f"{name} names operator {int(column.max())}, workspaces has {len(spaces)} rows")
    if isinstance(resident, bool) or not isinstance(resident, int) or not 0 <= resident <= _MOST:
        raise UsageError(f"resident is {resident!r}: bytes from 0 to {_MOST} are wanted")
    limit = _limit(time_limit, iterations)
    _check_search(limit, iterations, 1, engine, order_engines())
    makers_of = np.where(unmade, np.uint64(_NOBODY), makers_of)
    return _core.order(
        spaces,
        bytes_of,
        makers_of.astype(np.uint32),
        first,
        flat.astype(np.uint32),
        named["control"].astype(np.uint32),
        resident,
        named["given"].astype(np.uint32),
        limit,
        iterations,
        seed,
        engine,
        progress,
    )


def _pairs(control: "Optional[ArrayLike]") -> "NDArray[np.uint64]":
    import numpy as np

    table = np.asarray([] if control is None else control)
    if table.size == 0:
        return np.zeros(0, np.uint64)
    if table.ndim != 2 or table.shape[1] != 2:
        raise UsageError(f"control has the shape {table.shape}: rows of two operators, (earlier, later), are wanted")
    return _whole_numbers("control", table.reshape(-1))
