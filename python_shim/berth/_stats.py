"""Counters of an installed allocator."""

import dataclasses
import operator
from typing import Any


@dataclasses.dataclass(slots=True)
class Miss:
    """One group of missed requests with the same reason, lane, kind, position, sizes and tag."""

    reason: str
    """One of four words.

    size: the plan expects another request there. busy: the slot's bytes are still in use. lane: the plan does not know
    the stream or thread. lost: the lane missed too many requests in a row."""
    lane: int
    """The key of the stream or thread."""
    kind: int
    """The kind of step that the lane followed."""
    position: int
    """The number of requests before it in its step."""
    step_requests: int
    """The number of requests in a step of that kind."""
    expected_bytes: int
    """The size that the plan expects; 0: no request."""
    came_bytes: int
    """The size of the request."""
    tag: int
    """The tag of berth.scope(); 0 for none."""
    count: int
    """The number of these requests; possibly more."""


@dataclasses.dataclass(slots=True)
class Stats:
    """Counters since berth was installed on a device. Sizes are bytes."""

    requests: int
    """All requests. Each is also counted once under hits, hits_bucket, lent, a miss or unplanned."""
    frees: int
    hits: int
    """Requests served at their planned offset."""
    hits_bucket: int
    """Requests served at the offset of a larger slot."""
    lent: int
    """Requests served in the arena, at other bytes than planned that no block uses."""
    misses_size: int
    """Misses: the plan expects another request there."""
    misses_busy: int
    """Misses: the slot's bytes are still in use."""
    misses_lane: int
    """Misses: the plan does not know the stream or thread, or lost its position there."""
    misses: tuple[Miss, ...]
    """The most frequent misses of the active plan, 16 at most."""
    unplanned: int
    """Requests without an active plan, or that the plan leaves to the pool."""
    realigned: int
    """Jumps to another position of the plan."""
    pool_low: int
    pool_high: int
    pool_resident: int
    """Requests that the pool served: at its low end, at its high end, in its area for residents."""
    stitched: int
    """Blocks that the pool made of several holes."""
    pages_moved: int
    """Pages that moved from the pool to the arena."""
    steps: int
    """Marks seen."""
    plan_searches: int
    """Searches for a step in the record."""
    plans_learned: int
    plans_found: int
    """Plans found in a folder of plans."""
    plan_failures: int
    """Plans dropped since the planner or the arena failed."""
    plans_declined: int
    """Times that a plan would have held more than the pool does."""
    plans_set_aside: int
    """Times that a plan made more calls of the driver than the pool alone, which served on."""
    late_frees: int
    """Planned blocks that were freed after their planned lifetime."""
    misuses: int
    """Unknown pointers, double frees."""
    device_errors: int
    driver_calls: int
    device_memory: str
    """How berth allocates a GPU's memory, and which parts of the driver's virtual memory failed; empty on the CPU."""
    trace_entries_lost: int
    live: int
    """Bytes handed out now, after rounding."""
    live_peak: int
    requested: int
    """Bytes handed out now, as the program requested."""
    arena: int
    """Size of the arena of the active plan."""
    arena_bound: int
    """A lower bound of the arena for these requests."""
    pool_reserved: int
    pool_reserved_peak: int
    pool_live: int
    reserved: int
    """Bytes that arena and pool hold together."""
    reserved_peak: int
    parked: int
    """Bytes that berth.release(keep_contents=True) keeps in host memory; meanwhile nothing is reserved."""

    @property
    def hit_rate(self) -> float:
        """The share of all requests that a plan served; 0 before the first request."""
        return (self.hits + self.hits_bucket) / self.requests if self.requests else 0.0


_NAMES = tuple(field.name for field in dataclasses.fields(Stats))
_values = operator.itemgetter(*_NAMES)
_OF_A_MISS = len(dataclasses.fields(Miss))


def stats_of(values: list[tuple[str, Any]]) -> Stats:
    """The counters of an adapter, and then those of each miss."""
    counters, misses = dict(values[: len(_NAMES)]), values[len(_NAMES) :]
    counters["misses"] = tuple(
        Miss(**dict(misses[first : first + _OF_A_MISS])) for first in range(0, len(misses), _OF_A_MISS)
    )
    return Stats(*_values(counters))
