"""bench/acceptance: what the planner is to reach on the public instances (a folder of lifetimes CSVs), row by row, with the runs that
say so. Every row but those of MiniMalloc is one thread of `build/release/bench/place`, which checks each placement; a program of
MiniMalloc is named by --minimalloc, or its rows are left out. Times are of the processor, so that a busy machine counts little,
but limits are of the wall.
"""

import pathlib
import re
import shlex
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import training  # noqa: E402
from training import Failure, note  # noqa: E402

LINE = re.compile(
    r"(?:^|\n)(?P<name>\S+?)(?:\.csv)?\s+(?P<n>\d+)\s+(?P<bound>\d+)\s+(?P<peak>\d+)\s+(?P<gap>[\d.]+)\s+(?:[\d.-]+\s+)?"
    r"(?P<first>[\d.]+)\s+(?P<cpu>[\d.]+)\s+(?P<wall>[\d.]+)\s+(?P<iterations>\d+)  (?P<engine>[^\n]+)"
)
REPLAN = re.compile(
    r"(?:^|\n)(?P<name>\S+?)\.csv +\d+ +\d+ +[\d.]+ +[\d.]+ +(?P<time>[\d.]+) \(\S+\) +(?P<moved>[\d.]+) \(\S+\) +(?P<peak>[\d.]+) \("
)
REAL = ("iopddl", "iree", "somas", "torch")
EXACT = [f"minimalloc_{letter}.1048576" for letter in "ACEGIK"]
# Files, fold, and the gap in % that is to be reached.
FOLDS = (
    [("torch_medium_128_training", k, 0) for k in (2, 4, 16)]
    + [("torch_medium_512_training", k, 0) for k in (2, 4, 16)]
    + [
        ("somas_pangu_13B", 2, 0),
        ("somas_pangu_13B", 4, 0),
        ("iopddl_A_rnd", 2, 0),
        ("iopddl_A_rnd", 4, 0),
        ("iopddl_S_1", 4, 0),
        ("iopddl_S_1", 16, 0),
        ("iopddl_S_1", 2, 0.77),
        ("syn_train_20k", 16, 0.10),
    ]
)
# File, seconds, peak over max load.
SYNTHETIC = [
    ("syn_train_2k", 5, 1),
    ("syn_train_20k", 5, 1),
    ("syn_serve_2k", 5, 1),
    ("syn_rand_2k", 5, 1.012),
    ("syn_rand_2k", 60, 1.006),
    ("syn_rand_20k", 5, 1.0016),
    ("syn_rand_20k", 60, 1.001),
    ("syn_serve_20k", 5, 1.0254),
    ("syn_serve_20k", 60, 1.0235),
]
COPIES = [("syn_train_20k", 8, 1), ("syn_rand_20k", 30, 1.011), ("syn_serve_20k", 30, 1.045)]


class Bench:
    def __init__(self, arguments):
        self.program = arguments.build_dir.resolve() / "bench/place"
        self.berth = training.program(arguments.build_dir.resolve(), "berth")
        self.minimalloc = arguments.minimalloc
        self.limit, self.folder = arguments.minimalloc_limit, arguments.folder
        if not self.program.is_file():
            raise Failure(f"{self.program} is missing: a build with -DBERTH_BUILD_BENCH=ON makes it")

    def place(self, names, *options):
        """What bench/place says of files, by name, and its memory in MiB."""
        note(f"acceptance: {len(names)} files {' '.join(map(str, options))}")
        run = peers.Run([self.program, *(self.folder / f"{name}.csv" for name in names), *options], 3600)
        if run.code != 0:
            raise Failure(f"{self.program.name} ended with {run.code}: {run.text[-500:]}")
        rows = {}
        for match in LINE.finditer(run.text):
            rows[match["name"]] = {
                key: value if key in ("name", "engine") else float(value) if "." in value else int(value)
                for key, value in match.groupdict().items()
            }
        memory = re.search(r"memory: at most (\d+) MiB", run.text)
        return [rows[name] for name in names], int(memory.group(1)) if memory else 0

    def replan(self, only):
        """Medians of bench/replan over the files whose name holds a word."""
        note(f"acceptance: re-planning {only}")
        run = peers.Run([self.program.with_name("replan"), self.folder, "--only", only], 3600)
        if run.code != 0:
            raise Failure(f"replan ended with {run.code}: {run.text[-500:]}")
        return [match.groupdict() for match in REPLAN.finditer(run.text)]

    def exact(self, name, capacity, *options):
        """Seconds of berth's and of MiniMalloc's for a placement within a capacity; None where none was found."""
        rows = peers.read_lifetimes(self.folder / f"{name}.csv")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            peers.write_lifetimes(path, rows)
            ours = peers.run_berth(self.berth, path, rows, self.limit, "--capacity", capacity, *options)
            theirs = (
                peers.run_minimalloc(self.minimalloc, path, rows, self.limit, capacity) if self.minimalloc else None
            )
        return (
            ours["seconds"] if ours["peak"] and ours["peak"] <= capacity else None,
            theirs["seconds"] if theirs and theirs["peak"] else None,
        )


class Table:
    """Rows of what is wanted, what came out, and whether it is enough."""

    def __init__(self):
        self.rows = []

    def add(self, what, on, wanted, found, met):
        self.rows.append([what, on, wanted, found, "yes" if met else "**no**"])


def ratio(row):
    return row["peak"] / row["bound"]


def measure(bench, table):
    names = sorted(path.stem for path in bench.folder.glob("*.csv") if path.stem != "KNOWN")
    everything, memory = bench.place(names, "--time-limit", 5)
    by_name = {row["name"]: row for row in everything}

    for row in everything:
        if row["name"].startswith(REAL):
            most = 3 if row["name"] in ("iopddl_S_1", "somas_bert_base") else 1
            table.add(
                "real traces",
                row["name"],
                f"1 in {most} s",
                f"{ratio(row):.6f} in {row['cpu']:.3f} s",
                row["gap"] == 0 and row["cpu"] <= most,
            )

    if bench.minimalloc:
        for name in ("torch_medium_128_training", "somas_bert_base"):
            ours, theirs = bench.exact(name, by_name[name]["bound"])
            found = " / ".join(f"{s:.3f} s" if s is not None else f"none in {bench.limit:g} s" for s in (ours, theirs))
            table.add(
                "MiniMalloc, at max load",
                name,
                "0.02x",
                found,
                ours is not None and ours <= 0.02 * (theirs or bench.limit),
            )
    total = [0, 0]
    for name in EXACT:
        ours, theirs = bench.exact(name, 1048576, "--engine", "exact")
        found = " / ".join(
            f"{s:.3f} s" if s is not None else "none" for s in ((ours, theirs) if bench.minimalloc else (ours,))
        )
        met = ours is not None and ours <= 0.5 and (not bench.minimalloc or ours <= 0.35 * (theirs or bench.limit))
        table.add("exact, at 1,048,576", name, "0.5 s, 0.35x MiniMalloc" if bench.minimalloc else "0.5 s", found, met)
        total = [total[0] + (ours or bench.limit), total[1] + (theirs or bench.limit)]
    if bench.minimalloc:
        table.add(
            "exact, at 1,048,576",
            "the sum",
            "0.1x MiniMalloc",
            f"{total[0]:.3f} s / {total[1]:.3f} s",
            total[0] <= 0.1 * total[1],
        )
    for name in EXACT:
        row = by_name[name]
        table.add("from nothing", name, "1 in 10 s", f"{ratio(row):.6f} in {row['cpu']:.3f} s", row["gap"] == 0)

    longer = []
    for name, seconds, wanted in SYNTHETIC:
        row = by_name[name]
        if seconds != 5 and row["gap"] != 0:
            row = bench.place([name], "--time-limit", seconds)[0][0]
            longer.append(row)
        table.add(
            f"synthetic, {seconds} s",
            name,
            f"{wanted:g}",
            f"{ratio(row):.4f} in {row['cpu']:.2f} s",
            ratio(row) <= wanted,
        )

    copies = []
    for name, seconds, wanted in COPIES:
        rows, taken = bench.place([name], "--copies", 50, "--time-limit", seconds)
        copies += rows
        table.add(
            "1M: 50 copies",
            name,
            f"{wanted:g} in {seconds} s, < 1 GB",
            f"{ratio(rows[0]):.4f} in {rows[0]['cpu']:.1f} s, {taken} MiB",
            ratio(rows[0]) <= wanted and taken < 954 and rows[0]["cpu"] <= seconds,
        )
    _, taken = bench.place(["syn_train_20k"], "--copies", 50, "--time-limit", 0, "--engine", "first_fit")
    table.add("1M: 50 copies", "syn_train_20k, first_fit", "< 1 GB", f"{taken} MiB", taken < 954)

    folds = []
    for name, k, wanted in FOLDS:
        row = bench.place([name], "--fold", k, "--time-limit", 3)[0][0]
        folds.append({**row, "name": f"{name}, {k}"})
        table.add(
            "circle",
            f"{name}, folded {k} times",
            f"{wanted:g} %",
            f"{row['gap']:.4f} % in {row['cpu']:.2f} s",
            round(row["gap"], 2) <= wanted,
        )

    large = [name for name in names if name.startswith("syn_") and name.endswith("20k")]
    for row in bench.place(large, "--time-limit", 0.05)[0]:
        table.add(
            "50 ms limit",
            row["name"],
            "legal, its gap",
            f"legal, {row['gap']:.4f} % after {1e3 * row['wall']:.0f} ms",
            True,
        )

    for row in bench.replan("training"):
        found = f"{row['time']}x, {row['moved']} %, {row['peak']}x"
        met = float(row["time"]) <= 0.25 and float(row["moved"]) <= 1 and float(row["peak"]) <= 1.01
        table.add(
            "re-plan, 1 % changed", f"{row['name']}, median of 21", "0.25x the time, 1 % moved, 1.01x", found, met
        )

    greedy = bench.place(names, "--engine", "first_fit", "--time-limit", "inf")[0]
    worse = [row["name"] for row, other in zip(everything, greedy) if row["peak"] > other["peak"]]
    table.add("never worse than 16 greedies", "every file", "0 files", f"{len(worse)} of {len(names)}", not worse)
    table.add("never illegal", "every file", "0 files", f"0 of {len(names)}", True)
    runs = [bench.place(names, "--budget", 25, "--time-limit", "inf", "--threads", threads)[0] for threads in (1, 2, 8)]
    differ = [
        rows[0]["name"]
        for rows in zip(*runs)
        if len({(row["peak"], row["bound"], row["iterations"], row["engine"]) for row in rows}) > 1
    ]
    table.add(
        "the same on 1, 2, 8 threads",
        "every file, 25 dives",
        "0 files differ",
        f"{len(differ)} of {len(names)}",
        not differ,
    )
    return [
        ("5 s an instance", everything),
        ("60 s", longer),
        ("A million buffers", copies),
        ("Circles, 3 s", folds),
    ], memory


def main(argv):
    report = peers.Report("acceptance", __doc__)
    add = report.parser.add_argument
    report.parser.set_defaults(output=training.ROOT / "bench/results/place")
    add("folder", type=pathlib.Path, help="of the instances")
    add("--minimalloc", type=pathlib.Path, help="the program")
    add("--minimalloc-limit", type=float, default=20, help="seconds it may take (default: %(default)s)")
    add("--under", default="", help="a command that runs each measurement, such as 'nice -n -10'")
    arguments = report.parser.parse_args(argv)
    peers.Run.under = shlex.split(arguments.under)
    bench, table = Bench(arguments), Table()
    details, memory = measure(bench, table)
    met = sum(row[-1] == "yes" for row in table.rows)
    sections = [
        f"{met} of {len(table.rows)} are met.",
        training.table(["what", "on", "wanted", "found", "met"], table.rows),
    ]
    for title, rows in details:
        cells = [
            [
                row["name"],
                f"{row['n']:,}",
                str(row["bound"]),
                str(row["peak"]),
                f"{row['gap']:.4f}",
                f"{row['first']:.3f}",
                f"{row['cpu']:.3f}",
                f"{row['wall']:.3f}",
                str(row["iterations"]),
                row["engine"],
            ]
            for row in rows
        ]
        sections += [
            f"## {title}",
            training.table(
                ["instance", "n", "bound", "peak", "gap, %", "first, s", "cpu, s", "wall, s", "iterations", "engine"],
                cells,
            ),
        ]
    report.keep_text(
        argv,
        arguments,
        "\n\n".join(
            [
                f"Peak over max load; seconds of the processor unless said; `first` is a run without time to improve. "
                f"Memory of the runs of 5 s: {memory} MiB.",
                *sections,
            ]
        ),
    )
    return 0


if __name__ == "__main__":
    training.run_main("acceptance", main)
