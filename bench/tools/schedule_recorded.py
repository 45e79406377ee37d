"""bench/schedule_recorded: the planners of csrc/schedule on recorded training steps: the order of least memory of the networks that OLLA was
measured on, the time that a budget costs, beside Chen's rule, Checkmate's rounding, MONeT's rules and PyTorch's knapsack, and the same at the
batches and budgets of MONeT's table, beside it.

Traces are recorded where they are not there yet: those of bench/train on the CPU, with the times that operators took; the others in Python on
the stand-in, where kernels do nothing, so that times are a model's (a roofline of an A100 by shapes: bench/roofline.h). Most want torchvision:
bench/schedule_recorded --setup.
Rows are named as the first columns say, part first: "order resnet50 32", "budget gpt", "monet googlenet 320".
"""

import json
import pathlib
import re
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import monet_published  # noqa: E402
import packages  # noqa: E402
import peers  # noqa: E402
import training  # noqa: E402
from training import Failure, note  # noqa: E402

CHILDREN = pathlib.Path(__file__).parent / "recorded_children"
ORDERS = [
    "alexnet",
    "vgg",
    "googlenet",
    "resnet18",
    "resnet50",
    "mobilenet",
    "mnasnet",
    "efficientnet",
    "resnet3d",
    "bert",
    "xlmr",
    "transformer",
]
TRAINED = ["gpt", "resnet18", "lstm", "mlp"]
# On the stand-in: batch, and whether Adam trains it.
NETWORKS = [("gpt2", 8, True), ("resnet50", 32, False), ("unet", 4, False), ("bert", 8, True)]
ENGINES = ["chen", "checkmate", "monet", "knapsack", "ours"]
SHARES = [0.8, 0.6, 0.4]
# Of those that MONeT measured: its U-Net is another than ours, and its profile of it is among the graphs of bench/schedule.
MONETS = [("resnet50", 184), ("googlenet", 320), ("mobilenet", 272), ("vgg", 176)]
OLLAS = {1: 22.5, 32: 10.1}  # average saving in percent, as published


class Bench:
    def __init__(self, arguments):
        self.arguments, self.only = arguments, re.compile(arguments.only)
        self.program = arguments.build_dir.resolve() / "bench/schedule_recorded"
        self.recorder = (arguments.recorder or arguments.build_dir).resolve()
        self.rows = 0
        if not self.program.is_file():
            raise Failure(f"{self.program} is missing: a build with -DBERTH_BUILD_BENCH=ON makes it")

    def wants(self, name):
        found = self.only.search(name) is not None
        self.rows += found
        return found

    def trace(self, name, record):
        """The trace of a step, recorded by `record(path)` where it is not there."""
        path = self.arguments.traces.resolve() / f"{name}.trace"
        if not path.is_file():
            note(f"schedule_recorded: records {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_suffix(".half")
            record(half)
            half.rename(path)
        return path

    def trained(self, model):
        def record(path):
            arguments = [
                self.recorder / "bench/train/train",
                "--model",
                model,
                "--steps",
                4,
                "--warmup",
                1,
                "--data",
                self.arguments.data,
            ]
            training.run(arguments, {"BERTH_MODE": "record", "BERTH_RECORD": "operators", "BERTH_TRACE": str(path)})

        return self.trace(f"train-{model}", record)

    def network(self, model, batch, adam=False):
        def record(path):
            training.run(
                [
                    self.recorder / "standin/berth-standin",
                    "--copy-limit",
                    1 << 20,
                    "--",
                    self.arguments.python,
                    "-B",
                    CHILDREN / "record.py",
                    "--model",
                    model,
                    "--batch",
                    batch,
                    "--trace",
                    path,
                    *(["--adam"] if adam else []),
                    *(["--small"] if self.arguments.smoke else []),
                ],
                {"PYTHONPATH": packages.path(self.recorder / "python"), "HF_HUB_OFFLINE": "1"},
            )

        return self.trace(f"{model}-{batch}{'-adam' if adam else ''}", record)

    def plan(self, name, trace, *options):
        note(f"schedule_recorded: {name}")
        run = peers.Run([self.program, trace, "--moves", self.arguments.moves, *options], self.arguments.limit)
        if run.timed_out:
            raise Failure(f"{name} took more than {self.arguments.limit:g} s")
        if run.code != 0:
            raise Failure(f"{name}: {self.program.name} ended with {run.code}: {run.text[-500:]}")
        found = json.loads(run.text)
        if found["peak_as_recorded"] != found["recorded_peak"]:
            raise Failure(
                f"{name}: the graph's recorded order and frees have a peak of {found['peak_as_recorded']} bytes, the run had "
                f"{found['recorded_peak']}"
            )
        return found


def order_rows(bench, batches=(1, 32), networks=tuple(ORDERS)):
    rows, savings = [], {}
    for batch in batches:
        for name in networks:
            if not bench.wants(f"order {name} {batch}"):
                continue
            found = bench.plan(f"order {name} {batch}", bench.network(name, batch), "--roofline", "--order")
            order = found["order"]
            saving = 100 * (1 - order["peak"] / found["recorded_peak"])
            savings.setdefault(batch, []).append(saving)
            mib = [
                f"{one / 2**20:,.1f}"
                for one in (order["resident"], found["recorded_peak"], order["given"], order["peak"], order["bound"])
            ]
            rows.append(
                [
                    name,
                    str(batch),
                    f"{found['operators']:,}",
                    *mib,
                    f"{saving:.1f}",
                    "yes" if order["proven"] else "no",
                    f"{order['seconds']:.2f}",
                ]
            )
    summary = " ".join(
        f"At batch {batch} {statistics.mean(found):.1f} % are saved on average, where OLLA published {OLLAS.get(batch, 0)} %."
        for batch, found in savings.items()
    )
    return (
        [
            "network",
            "batch",
            "operators",
            "resident",
            "as run",
            "as ordered",
            "ours",
            "bound",
            "saving, %",
            "proven",
            "s",
        ],
        rows,
        summary,
    )


def added(cell, base):
    return f"{100 * (cell['ns'] / base - 1):.2f}" if "ns" in cell else "-"


def budget_rows(bench, problems):
    rows, worse = [], []
    for name, trace, options in problems:
        if not bench.wants(f"budget {name}"):
            continue
        shares = ",".join(map(str, SHARES))
        found = bench.plan(f"budget {name}", trace(), *options, "--engines", ",".join(ENGINES), "--shares", shares)
        base = found["base_ns"]
        for cell in found["budgets"]:
            others = [cell[engine]["ns"] for engine in ENGINES if engine != "ours" and "ns" in cell[engine]]
            if others and cell["ours"].get("ns", float("inf")) > min(others):
                worse.append(f"{name} at {cell['share']:.0%}")
            checkmate = cell["checkmate"]
            joined = (
                "no solver"
                if "blocks" not in checkmate
                else f"{checkmate['blocks']}/{checkmate['stages']}, {checkmate['solved']}/{checkmate['programs']}"
            )
            rows.append(
                [
                    name,
                    f"{found['operators']:,}",
                    f"{(found['kept_peak'] - found['residents']) / 2**20:,.1f}",
                    f"{cell['share']:.0%}",
                    "no" if cell["least"] > cell["budget"] else "",
                    *(added(cell[engine], base) for engine in ENGINES),
                    f"{100 * (cell['bound_ns'] / base - 1):.2f}" if "bound_ns" in cell else "none",
                    joined,
                    *(f"{cell[engine]['seconds']:.1f}" for engine in ENGINES),
                ]
            )
    summary = f"Ours is worse than the best of the others in {len(worse)} of {len(rows)} cells{': ' + ', '.join(worse) if worse else ''}."
    return (
        [
            "step",
            "operators",
            "activations, MiB",
            "budget",
            "possible",
            "Chen",
            "Checkmate",
            "MONeT",
            "knapsack",
            "ours",
            "bound",
            "joined, solved",
            *(f"{name}, s" for name in ("Chen", "Checkmate", "MONeT", "knapsack", "ours")),
        ],
        rows,
        summary,
    )


def monet_rows(bench, published, trace=None):
    """Of networks at the batches and budgets of published measurements; of one trace where it is given."""
    rows = []
    for (name, batch), (pytorch, plans) in published.items():
        if not bench.wants(f"monet {name} {batch}"):
            continue
        found = bench.plan(
            f"monet {name} {batch}",
            trace or bench.network(name, batch),
            "--roofline",
            "--engines",
            "monet,ours",
            "--budgets",
            ",".join(str(int(memory * 2**30)) for memory, _ in plans),
        )
        for (memory, overhead), cell in zip(plans, found["budgets"]):
            rows.append(
                [
                    name,
                    str(batch),
                    f"{memory:.2f}",
                    f"{pytorch:.2f}",
                    f"{found['kept_peak'] / 2**30:.2f}",
                    f"{cell['least'] / 2**30:.2f}",
                    f"{overhead:.2f}",
                    *(added(cell[engine], found["base_ns"]) for engine in ("monet", "ours")),
                    f"{100 * (cell['bound_ns'] / found['base_ns'] - 1):.2f}" if "bound_ns" in cell else "none",
                ]
            )
    return (
        [
            "network",
            "batch",
            "GB",
            "PyTorch, GB",
            "ours kept, GB",
            "least, GB",
            "published, %",
            "its rules, %",
            "ours, %",
            "bound, %",
        ],
        rows,
        "",
    )


def problems_of(bench):
    trained = [(name, lambda name=name: bench.trained(name), []) for name in TRAINED]
    return trained + [
        (f"{name} {batch}", lambda name=name, batch=batch, adam=adam: bench.network(name, batch, adam), ["--roofline"])
        for name, batch, adam in NETWORKS
    ]


def main(argv):
    report = peers.Report("schedule_recorded", __doc__, limit="--limit", seconds=3000)
    add = report.parser.add_argument
    add("--traces", type=pathlib.Path, default=peers.ROOT / "build/recorded", help="where traces are, or are put")
    add("--recorder", type=pathlib.Path, help="a build with libtorch that records (default: --build-dir)")
    add("--python", type=pathlib.Path, default=peers.ROOT / ".venv/bin/python3", help="with torch")
    packages.add_options(add)
    add("--data", type=pathlib.Path, default=peers.ROOT / "build/data")
    add("--moves", type=int, default=200_000, help="of each search (default: %(default)s)")
    add("--only", default="", metavar="PATTERN", help="rows whose name this regular expression is found in")
    arguments = report.parser.parse_args(argv)
    if arguments.setup:
        packages.setup(arguments.python)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smoke:
            arguments.moves = 2000
        bench = Bench(arguments)
        if arguments.smoke:
            # A step that the tests keep, so that nothing has to be recorded.
            arguments.traces = pathlib.Path(folder)
            kept = peers.ROOT / "tests/graph/data/transformer.trace.gz"
            orders, budgets = ([], [], ""), budget_rows(bench, [("transformer", lambda: kept, ["--roofline"])])
            monets = monet_rows(bench, {("transformer", 1): (1.0, [(0.5, 0.0), (0.001, 0.0)])}, kept)
        else:
            orders, budgets = order_rows(bench), budget_rows(bench, problems_of(bench))
            monets = monet_rows(bench, {key: monet_published.MEASURED[key] for key in MONETS})
    if bench.rows == 0:
        raise Failure(f"no row's name has '{arguments.only}'")
    parts = []
    for title, remark, (header, rows, summary) in (
        (
            "Order",
            "MiB, weights included. As run: the run's live peak, which the graph has to the byte; as ordered: the recorded order, each tensor "
            "freed behind its last reader; saving: ours below the run. Plain SGD with an update for each parameter, random weights, on the stand-in.",
            orders,
        ),
        (
            "Time within a budget",
            "Budgets are shares of the activations alone: of the peak with everything kept, residents aside. Added: percent of the "
            "step's time with everything kept, by the referee; `-`: the engine has no plan that fits; possible: `no` where one operator alone needs "
            "more. Bound: no plan of the recorded order adds less. Joined: Checkmate's program has so many blocks for so many stages, and so many of "
            "its programs were solved. Times of `gpt`, `resnet18`, `lstm` and `mlp` are measured on the CPU, the others' are a roofline's. "
            "Seconds are of the processor.",
            budgets,
        ),
        (
            "MONeT's table",
            "GB of 2^30 bytes: what each plan that was published took on a P100, which is the budget here; what PyTorch 1.5.1 took there; "
            "what this step holds with everything kept (torch 2.11: it keeps a second copy of what an in-place ReLU6 overwrites, and weights have an "
            "update each); the least that any plan of it needs. Percent of time over everything kept: published, measured there, where other algorithms "
            "of convolutions also made steps faster; then as predicted by a roofline, running again alone: by the rules of MONeT with our search, and by "
            "all of berth. No plan of the recorded order adds less than the bound. Published: README of utsaslab/MONeT.",
            monets,
        ),
    ):
        if rows:
            parts.append("\n\n".join([f"## {title}", f"{remark} {summary}", training.table(header, rows)]))
    report.keep_text(
        argv, arguments, f"One thread, seed 1, {arguments.moves:,} moves a search.\n\n" + "\n\n".join(parts)
    )
    return 0


if __name__ == "__main__":
    training.run_main("schedule_recorded", main)
