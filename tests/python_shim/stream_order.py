"""Orders of work in CUDA's streams, from files of launch_log.c: which work of a program happens before which."""

import collections
import dataclasses
import pathlib
from typing import Optional


@dataclasses.dataclass
class Work:
    """A kernel or a copy: so many of its stream were queued before it, and of each other stream so many have ended."""

    name: str
    stream: str
    after: dict


def lines_of(path: pathlib.Path) -> list[list[str]]:
    return [line.split(" ", 2) for line in path.read_text().splitlines()]


def steps_of(lines: list[list[str]]) -> dict[str, list[list[str]]]:
    """By the text of the mark at which they begin."""
    steps: dict[str, list[list[str]]] = {}
    current: Optional[list[list[str]]] = None
    for line in lines:
        if line[0] == "M":
            current = steps.setdefault(" ".join(line[1:]), [])
        elif current is not None:
            current.append(line)
    return steps


def works_of(lines: list[list[str]]) -> dict[str, list[Work]]:
    """What is queued in each stream, in order."""
    clocks: dict[str, dict] = collections.defaultdict(dict)
    events: dict[str, dict] = {}
    host: dict[str, int] = {}
    works: dict[str, list[Work]] = collections.defaultdict(list)

    def join(to, other):
        for stream, count in other.items():
            to[stream] = max(to.get(stream, 0), count)

    for kind, *rest in lines:
        if kind == "K":
            stream, name = rest
            clock = clocks[stream]
            join(clock, host)
            works[stream].append(Work(name, stream, {one: n for one, n in clock.items() if one != stream}))
            clock[stream] = len(works[stream])
        elif kind == "R":
            join(clocks[rest[1]], host)
            events[rest[0]] = dict(clocks[rest[1]])
        elif kind == "W":
            join(clocks[rest[0]], events.get(rest[1], {}))
        elif kind == "E":
            join(host, events.get(rest[0], {}))
        elif kind == "S":
            join(host, clocks[rest[0]])
        elif kind == "D":
            for clock in list(clocks.values()):
                join(host, clock)
    return works


def _is_within(some: list[str], all_of_them: list[str]) -> Optional[list[int]]:
    """Where each of `some` is, as early as can be; none where they are not there in this order."""
    places, at = [], 0
    for name in some:
        while at < len(all_of_them) and all_of_them[at] != name:
            at += 1
        if at == len(all_of_them):
            return None
        places.append(at)
        at += 1
    return places


def difference(eager: list[list[str]], other: list[list[str]], *, exactly: bool) -> str:
    """Why the work of `other` is not that of `eager` in an order that has all of its edges; empty where it is.

    exactly: each stream has the same work. Otherwise a stream may have more, as copies and what is made again."""
    a, b = works_of(eager), works_of(other)
    found: dict[str, str] = {}
    places: dict[str, list[int]] = {}
    for stream, works in sorted(a.items(), key=lambda one: (one[0] != "(nil)", -len(one[1]))):
        names = [one.name for one in works]
        for candidate in [stream, *b] if stream in b else [*b]:
            if candidate in found.values():
                continue
            theirs = [one.name for one in b[candidate]]
            where = _is_within(names, theirs)
            if where is not None and (not exactly or len(where) == len(theirs)):
                found[stream], places[stream] = candidate, where
                break
        else:
            near = [one.name for one in b.get(stream, [])]
            at = next((n for n, (x, y) in enumerate(zip(names, near)) if x != y), min(len(names), len(near)))
            return f"stream {stream}: work {at} of {len(names)} is not there in its turn: {names[at : at + 3]}, {near[at : at + 3]} of {len(near)}"
    for stream, works in a.items():
        for n, one in enumerate(works):
            there = b[found[stream]][places[stream][n]]
            for before, count in one.after.items():
                if count == 0:
                    continue
                needed = places[before][count - 1] + 1
                if there.after.get(found[before], 0) < needed:
                    return f"{one.name} ({n} of stream {stream}) does not wait for {works_name(a, before, count)}"
    if exactly and len(found) < len([one for one in b.values() if one]):
        return f"other streams have work: {sorted(set(b) - set(found.values()))}"
    return ""


def works_name(works, stream, count):
    return f"{works[stream][count - 1].name} ({count - 1} of stream {stream})"
