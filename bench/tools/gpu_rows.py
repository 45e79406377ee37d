"""What a row of bench/gpu is: a function that takes the Bench and returns an Answer. gpu_table.py has them all."""

import dataclasses
import typing

ALLOCATORS = {
    "caching": {"BERTH_MODE": "off"},
    "expandable": {"BERTH_MODE": "off", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "async": {"BERTH_MODE": "off", "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    "berth learn": {"BERTH_MODE": "learn"},
}


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


def decided(bench, good, text, **data):
    """pass or fail on a GPU; on the stand-in values mean nothing, so only that it ran."""
    if bench.standin:
        return ran(text, **data)
    return passed(text, **data) if good else failed(text, **data)


def size(bench):
    return ["--size", "small"] if bench.small else []


def misses(result):
    """Per step, over the second half of the steps: requests that did not get the bytes that the plan has for them."""
    steps = result["steps"][len(result["steps"]) // 2 :]
    return [step["misses"] + step["unplanned"] for step in steps]


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
