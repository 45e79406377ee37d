"""The table of bench/gpu: parts and their rows. gpu_parts.py fills it, gpu.py runs it."""

import dataclasses
import typing


class Skip(Exception):
    """What the row looks at is not to be had on this machine; the reason."""


class NoTime(Exception):
    """The part's time is over."""


@dataclasses.dataclass
class Answer:
    outcome: str  # pass, fail, measured, ran (on the stand-in, where nothing is decided)
    text: str  # one line
    data: dict


def passed(text, **data):
    return Answer("pass", text, data)


def measured(text, **data):
    return Answer("measured", text, data)


def failed(text, **data):
    return Answer("fail", text, data)


def ran(text, **data):
    return Answer("ran", text, data)


@dataclasses.dataclass
class Row:
    name: str
    text: str
    run: typing.Callable
    point: int  # of the open points in bench/README.md, or 0
    wants: float  # seconds that should be left when it starts
    smoke: bool  # part of the smallest form


@dataclasses.dataclass
class Part:
    name: str
    text: str
    rows: list = dataclasses.field(default_factory=list)

    def row(self, name, text, point=0, wants=60, smoke=False):
        """A decorator: the function takes the Bench and returns an Answer."""

        def add(function):
            self.rows.append(Row(name, text, function, point, wants, smoke))
            return function

        return add


PARTS = []


def part(name, text):
    PARTS.append(Part(name, text))
    return PARTS[-1]
