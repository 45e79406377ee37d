"""What bench/step compares, for programs in Python and in C++."""

import dataclasses


@dataclasses.dataclass
class Row:
    """A step as written (no engine), or by a planner: within a share of what it takes beside what is there between steps, or within more time."""

    label: str
    engine: str = ""
    share: float = 0
    offload: bool = False
    more_time: float = 0


# Of engines that are shown at several budgets, so that pictures have a front of each.
SHARES = (80, 60, 40)
FEW = ("eager", "release", "monet, 60 %", "berth, 60 %")  # of C++ programs in the smallest form
# Models whose steps are hard to put off, with the steps until each of their programs is planned: they have fewer rows.
HARD = {"gpt_operator": 7, "gpt_lengths": 100}
OF_HARD = ("eager", "release", "berth, 80 %", "berth, 60 %")


def rows(model=""):
    return [row for row in every_row() if model not in HARD or row.label in OF_HARD]


def every_row():
    found = [Row("eager"), Row("release", "release"), Row("olla", "olla")]
    found += [Row(f"{engine}, 60 %", engine, 0.6) for engine in ("chen", "knapsack")]
    found += [
        Row(f"{engine}, {share} %", engine, share / 100)
        for engine in ("checkmate", "monet", "berth")
        for share in SHARES
    ]
    found += [Row(f"{engine} with offload, 60 %", engine, 0.6, offload=True) for engine in ("vdnn", "dymem", "berth")]
    return [*found, Row("berth, least in 1.5 x", "berth", more_time=0.5)]
