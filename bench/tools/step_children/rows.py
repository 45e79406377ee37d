"""What bench/step compares, for programs in Python and in C++."""

import dataclasses


@dataclasses.dataclass
class Row:
    """A step as written (no engine), or by a planner: within a share of what it takes beside what is there between steps, or within more time."""

    label: str
    engine: str = ""
    share: float = 0
    copies: bool = False
    more_time: float = 0


def rows():
    found = [Row("eager"), Row("release", "release"), Row("olla", "olla")]
    found += [Row(f"{engine}, 60 %", engine, 0.6) for engine in ("chen", "checkmate", "knapsack", "monet")]
    found += [Row(f"berth, {share} %", "berth", share / 100) for share in (80, 60, 40)]
    found += [Row(f"{engine} with copies, 60 %", engine, 0.6, copies=True) for engine in ("vdnn", "dymem", "berth")]
    return [*found, Row("berth, least in 1.5 x", "berth", more_time=0.5)]
