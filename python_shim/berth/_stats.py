"""Counters of an installed allocator."""

import dataclasses
import json
import operator
from typing import Any


@dataclasses.dataclass(slots=True)
class Miss:
    """Requests that the plan did not serve, alike in all that is said here."""

    reason: str
    """size: another request than the plan expects there; busy: its bytes are still in use; lane: a stream or thread that the plan does
    not know; lost: after too many others in a row."""
    lane: int
    """Key of the stream or thread."""
    kind: int
    """Which of the plan's kinds of steps the lane followed."""
    position: int
    """Requests of the step before it."""
    step_requests: int
    """Of a step of that kind."""
    expected_bytes: int
    """0: nothing was expected."""
    came_bytes: int
    tag: int
    """Of berth.scope(); 0 for none."""
    count: int
    """At least."""


@dataclasses.dataclass(slots=True)
class Stats:
    """Counters since berth was installed on a device. Sizes are bytes."""

    requests: int
    """Each is counted once under hits, hits_bucket, lent, a miss or unplanned."""
    frees: int
    hits: int
    """Served at the planned offset."""
    hits_bucket: int
    """At the offset that was planned for larger ones."""
    lent: int
    """In the arena, at bytes of the plan that stand empty."""
    misses_size: int
    """Another request than the plan expects there."""
    misses_busy: int
    """Its bytes are still in use."""
    misses_lane: int
    """A stream or thread that the plan does not know, or is lost on."""
    misses: tuple[Miss, ...]
    """The most frequent of the active plan, 16 at most."""
    unplanned: int
    """No plan is active, or the plan leaves the request to the pool."""
    realigned: int
    """Jumps to another position of the plan."""
    pool_low: int
    pool_high: int
    pool_resident: int
    """Requests that the pool served: at its low end, at its high end, among what stays."""
    stitched: int
    """Blocks made of several holes."""
    pages_moved: int
    """From the pool to the arena."""
    steps: int
    """Marks seen."""
    plan_searches: int
    """Looks for a step in what was recorded."""
    plans_learned: int
    plans_found: int
    """In a folder of plans."""
    plan_failures: int
    late_frees: int
    """Planned blocks that were freed after their planned lifetime."""
    misuses: int
    """Unknown pointers, double frees."""
    device_errors: int
    driver_calls: int
    device_memory: str
    """How a GPU's memory is had, and what of the driver's virtual memory was tried in vain; empty on the CPU."""
    trace_entries_lost: int
    live: int
    """Handed out now, rounded."""
    live_peak: int
    requested: int
    """Handed out now, as asked."""
    arena: int
    """Of the active plan."""
    arena_bound: int
    """That no plan of these requests is below."""
    pool_reserved: int
    pool_reserved_peak: int
    pool_live: int
    reserved: int
    """Held by arena and pool together."""
    reserved_peak: int
    parked: int
    """In host memory, released with their contents (berth.release); then nothing is reserved."""

    @property
    def hit_rate(self) -> float:
        """The share of all requests that a plan served; 0 before the first."""
        return (self.hits + self.hits_bucket) / self.requests if self.requests else 0.0


_NAMES = tuple(field.name for field in dataclasses.fields(Stats))
_values = operator.itemgetter(*_NAMES)


def stats_of(text: bytes) -> Stats:
    """The counters that an adapter wrote."""
    told: dict[str, Any] = json.loads(text) if text else dict.fromkeys(_NAMES, 0) | {"misses": (), "device_memory": ""}
    if told["misses"]:
        told["misses"] = [Miss(**miss) for miss in told["misses"]]
    told["misses"] = tuple(told["misses"])
    return Stats(*_values(told))
