"""The table of bench/gpu: its rows, in the order of worth. gpu_table.py fills it, gpu.py runs it."""

import dataclasses
import typing


class Skip(Exception):
    """What the row looks at is not to be had on this machine; the reason."""


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
    group: str
    short: str
    text: str
    run: typing.Callable  # takes the Bench, returns an Answer; what it raises is its failure
    wants: float  # seconds; it may take twice that
    point: int  # of the open points in bench/README.md, or 0
    more: bool  # beyond the half hour: runs where it is named, or with --more

    @property
    def name(self):
        return f"{self.group}/{self.short}"


ROWS = []
GROUPS = {}  # by name: what its rows show


class Group:
    def __init__(self, name, text):
        self.name = name
        GROUPS[name] = text

    def row(self, short, text, wants, point=0, more=False):
        """A decorator of what runs the row."""

        def add(function):
            ROWS.append(Row(self.name, short, text, function, wants, point, more))
            return function

        return add
