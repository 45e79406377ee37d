"""Tells step programs that the process has other threads, whose operators are then seen."""

from __future__ import annotations

import _thread
import functools
import threading
from typing import Any, Callable

_Start = Callable[..., Any]
_lock = threading.Lock()
_waiting: list[Callable[[], None]] = []
_before: list[tuple[Any, str, Any]] = []  # what starts threads, as it was


def _tell() -> None:
    with _lock:
        told = list(_waiting)
        _waiting.clear()
        while _before:
            setattr(*_before.pop())
    for one in told:
        one()


def _telling(start: _Start) -> _Start:
    @functools.wraps(start)
    def call(*args: Any, **kwargs: Any) -> Any:
        _tell()
        return start(*args, **kwargs)

    return call


_seen: set[Callable[[], None]] = set()


def in_each_new_one(see: Callable[[], None]) -> None:
    """Calls see() in each thread that threading starts from now on, before it runs anything. Thread-safe."""
    with _lock:
        if not _seen:
            begin = threading.Thread._bootstrap  # type: ignore[attr-defined]

            @functools.wraps(begin)
            def _bootstrap(self: threading.Thread) -> None:
                for one in tuple(_seen):
                    one()
                begin(self)

            threading.Thread._bootstrap = _bootstrap  # type: ignore[attr-defined]
        _seen.add(see)


def when_there_are_any(tell: Callable[[], None]) -> None:
    """Calls tell() once: now if another thread runs Python, else before the first one starts. Thread-safe."""
    with _lock:
        _waiting.append(tell)
        if not _before:
            for module, name in ((threading.Thread, "start"), (_thread, "start_new_thread")):
                start = getattr(module, name)
                _before.append((module, name, start))
                setattr(module, name, _telling(start))
    if _thread._count() > 0:  # but the main one
        _tell()
