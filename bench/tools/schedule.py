"""bench/schedule: the planners of csrc/schedule on published graphs, row by row: the order of least memory; what to keep and what to make
again (MONeT's and Checkmate's graphs, beside the plans of 24 hours of Gurobi); copies to the host (PipeDream's profiles, beside vDNN and
Dymem). Every row is one run of `build/release/bench/schedule`, one thread, seed 1. tests/schedule/data/README.md says where the graphs
come from.

The published figures come from the folder: from published_solver_results.csv (best objective and bound of all rows of a cell) and
from the plan in the graph's file. What time MONeT's own plans add to PyTorch's is from monet_published.py; ours add so much more or less as
the plan here costs more or less than the published one. Rows are named as the first columns say, part first: "recomputation resnet50 full 5".
"""

import csv
import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import monet_published  # noqa: E402
import peers  # noqa: E402
import training  # noqa: E402
from training import Failure, note  # noqa: E402

# Name, file, unit, and the least peak that was known (residents included) in that unit.
ORDERS = [
    ("BERT L-12, MiB", "dnn_partitioning/OperatorGraphs__bert_L-12_training.json", 2**20, 4600.6),
    ("BERT L-3, MiB", "dnn_partitioning/OperatorGraphs__bert_l-3_training.json", 2**20, 1019.7),
    ("Inception-v3 layers, MiB", "dnn_partitioning/LayerGraphs__inceptionv3_training.json", 2**20, 1828.4),
    ("BERT-24 layers, MiB", "dnn_partitioning/LayerGraphs__bert24_training.json", 2**20, 369.7),
    ("random 100", "moccasin/random_layered_n100_w0.27_nlv0.75_ed0.2_scd0.14.json", 1, 36790),
    ("random 500", "moccasin/random_layered_n500_w0.36_nlv0.75_ed0.2_scd0.14.json", 1, 247960),
    ("ResNet50 (Keras), MiB", "moccasin/ResNet50_256_224_224_3_train_nx.json", 2**20, 38059356160 / 2**20),
    ("VGG16 (Keras), MiB", "moccasin/VGG16_256_224_224_3_train_nx.json", 2**20, 15825108992 / 2**20),
    ("UNet (Keras), MiB", "moccasin/vgg_unet_32_416_608_3_train_nx.json", 2**20, 20959461376 / 2**20),
]
# Name, file, planner, instance and modes in the results, budgets in GB of 2^30 bytes.
FULL, CONV, INPLACE = "inplace_conv_multiway_newnode", "inplace_conv_normal", "inplace_normal"
RECOMPUTATION = [
    ("resnet50 full", f"resnet50_184_{FULL}", "monet", "resnet50_184", (FULL,), (5, 6, 7, 8, 9, 10)),
    ("resnet50 +conv", f"resnet50_184_{CONV}", "monet", "resnet50_184", (CONV, "inplace_conv"), (5, 6, 7, 8, 9, 10)),
    ("resnet50 inplace", f"resnet50_184_{INPLACE}", "monet", "resnet50_184", (INPLACE,), (5, 6, 7, 8, 9, 10)),
    (
        "resnet50 Checkmate",
        "checkmate_resnet50_184_normal",
        "checkmate",
        "resnet50_184",
        ("normal",),
        (5, 6, 7, 8, 9, 10),
    ),
    ("unet full", f"un_11_{FULL}", "monet", "un_11", (FULL,), (5, 6, 7, 8, 9, 10)),
    ("unet inplace", f"un_11_{INPLACE}", "monet", "un_11", (INPLACE,), (5, 6, 7, 8, 9, 10)),
    ("unet Checkmate", "checkmate_un_11_normal", "checkmate", "un_11", ("normal",), (5, 6, 7, 8, 9, 10)),
    ("vgg16 full", f"vgg16_176_{FULL}", "monet", "vgg16_176", (FULL,), (5.5, 6, 7, 8, 9, 10)),
    ("vgg16 inplace", f"vgg16_176_{INPLACE}", "monet", "vgg16_176", (INPLACE,), (8, 9, 10)),
]
# Which of them MONeT measured, as (network, batch) of monet_published.
MEASURED = {"resnet50 full": ("resnet50", 184), "unet full": ("unet", 11), "vgg16 full": ("vgg", 176)}
# Profile and engine: by what budget, as a share of the memory with everything kept.
PROFILES = ["vgg16", "squeezenet1_0"]
OFFLOADS = [
    ("keep", 1),
    ("vdnn", 1),
    ("dymem", 1),
    ("offload", 0.8),
    ("recompute", 0.8),
    ("auto", 0.8),
    ("offload", 0.6),
    ("recompute", 0.6),
    ("auto", 0.6),
]


class Bench:
    def __init__(self, arguments):
        self.program = arguments.build_dir.resolve() / "bench/schedule"
        self.limit, self.only, self.folder = arguments.limit, re.compile(arguments.only), arguments.graphs
        self.rows = 0
        if not self.program.is_file():
            raise Failure(f"{self.program} is missing: a build with -DBERTH_BUILD_BENCH=ON makes it")
        if self.folder is None or not self.folder.is_dir():
            raise Failure(
                f"--graphs {self.folder or 'FOLDER'}: no such folder; tests/schedule/data/README.md says where the graphs come from"
            )

    def wants(self, name):
        found = self.only.search(name) is not None
        self.rows += found
        return found

    def run(self, name, command, file, *options):
        note(f"schedule: {name}")
        run = peers.Run(
            [self.program, command, self.folder / file, "--time-limit", self.limit, *options], 60 + 4 * self.limit
        )
        if run.code != 0:
            raise Failure(f"{name}: {self.program.name} ended with {run.code}: {run.text[-500:]}")
        return json.loads(run.text)


def percent(value, base):
    return f"{100 * (value / base - 1):+.2f}"


def order_rows(bench, table=ORDERS):
    rows = []
    for name, file, unit, known in table:
        if not bench.wants(f"order {name}"):
            continue
        found = bench.run(f"order {name}", "order", file)
        peak, bound = found["peak"] / unit, found["bound"] / unit
        rows.append(
            [
                name,
                f"{found['operators']:,}",
                f"{found['given'] / unit:,.1f}",
                f"{known:,.1f}",
                f"{peak:,.1f}",
                f"{bound:,.1f}",
                f"{100 * (peak / bound - 1):.3f}" if bound else "",
                "yes" if found["proven"] else "no",
                f"{found['seconds']:.3f}",
            ]
        )
    return ["graph", "operators", "order in the file", "known", "ours", "bound", "gap, %", "proven", "s"], rows


def solver_results(folder):
    """(planner, instance, mode, budget): best objective and best proven bound, None where there is none."""
    results = {}
    path = folder / "monet/published_solver_results.csv"
    if not path.is_file():
        return results
    with open(path, newline="") as file:
        for row in csv.DictReader(file):

            def number(name):
                return float(row[name]) if row[name] not in ("", "-") else None

            key = (row["planner"], row["instance"], row["mode"], float(row["budget_gb"]))
            best, bound = results.get(key, (None, None))
            objective, proven = number("best_objective_10us"), number("best_bound_10us")
            results[key] = (
                min((x for x in (best, objective) if x is not None), default=None),
                max((x for x in (bound, proven) if x is not None), default=None),
            )
    return results


def recomputation_rows(bench, table=RECOMPUTATION):
    results, rows, differences = solver_results(bench.folder), [], []
    for name, file, planner, instance, modes, budgets in table:
        for budget in budgets:
            if not bench.wants(f"recomputation {name} {budget:g}"):
                continue
            found = bench.run(
                f"recomputation {name} {budget:g} GB", "recomputation", f"monet/{file}.json", "--budget", budget
            )
            cells = [results.get((planner, instance, mode, float(budget)), (None, None)) for mode in modes]
            best = min(
                (x for x in [found.get("published"), *(cell[0] for cell in cells)] if x is not None), default=None
            )
            proven = max((x for _, x in cells if x is not None), default=None)
            cost, bound = found.get("cost"), found["bound"]
            if cost is not None and best is not None:
                differences.append(100 * (cost / best - 1))
            measured = monet_published.overhead(*MEASURED[name], budget) if name in MEASURED else None
            ours = None if measured is None or None in (cost, best) else (100 + measured) * cost / best - 100
            rows.append(
                [
                    name,
                    f"{budget:g}",
                    f"{best:.0f}" if best is not None else "none",
                    f"{proven:.0f}" if proven is not None else "",
                    f"{cost}" if cost is not None else "none",
                    percent(cost, best) if cost is not None and best is not None else "",
                    *("" if one is None else f"{one:+.2f}" for one in (measured, ours)),
                    f"{bound}",
                    percent(cost, bound) if cost is not None and bound else "",
                    f"{found['moves']:,}",
                    f"{found['seconds']:.2f}",
                ]
            )
    summary = ""
    if differences:
        summary = (
            f"{len(differences)} cells: mean {sum(differences) / len(differences):+.2f} %, {sum(d <= 1 for d in differences)} within "
            f"1 %, {sum(d < 0 for d in differences)} better, {sum(d == 0 for d in differences)} equal."
        )
    return (
        [
            "graph",
            "GB",
            "published",
            "its bound",
            "ours",
            "difference, %",
            "its overhead, %",
            "ours, %",
            "our bound",
            "gap, %",
            "moves",
            "s",
        ],
        rows,
        summary,
    )


def offload_rows(bench, files=None):
    rows = []
    for name, file in files or [(name, f"pipedream/{name}.json") for name in PROFILES]:
        for engine, share in OFFLOADS:
            if not bench.wants(f"offload {name} {engine} {100 * share:.0f}"):
                continue
            found = bench.run(
                f"offload {name} {engine} {share:.0%}", "offload", file, "--engine", engine, "--share", share
            )
            met = "" if share == 1 else "yes" if found["excess"] == 0 else "**no**"
            rows.append(
                [
                    name,
                    engine,
                    f"{share:.0%}" if share != 1 else "none",
                    met,
                    f"{found['ns'] / 1e6:,.1f}",
                    percent(found["ns"], found["kept_ns"]),
                    f"{found['peak'] / 2**30:.3f}",
                    f"{found['simulations']:,}",
                    f"{found['seconds']:.2f}",
                ]
            )
    return ["profile", "engine", "budget", "met", "step, ms", "added, %", "device, GiB", "simulations", "s"], rows


def write_smoke_graphs(folder):
    """A chain of four with its backward part, in the forms of the three tables."""
    forward = 4
    nodes = []
    for k in range(2 * forward + 1):
        reads = [k - 1] if 0 < k <= forward else [] if k == 0 else [k - 1, 2 * forward - k]
        kind = "fwd" if k < forward else "loss" if k == forward else "bwd"
        nodes.append(
            {
                "kind": kind,
                "op": f"chain {k}",
                "deps": [reads],
                "ms": [1.0],
                "ws_mb": [0],
                "local_bytes": 0,
                "out_bytes": 2**30,
                "fixed_bytes": 0,
            }
        )
    (folder / "monet").mkdir()
    (folder / "monet/checkmate_smoke.json").write_text(
        json.dumps({"name": "checkmate_smoke", "loss_id": forward, "cost_variants": [nodes], "published_plans": {}})
    )
    operators = [
        {
            "name": "conv" if k < forward else "conv_backward",
            "phase": "forward" if k <= forward else "backward",
            "alternatives": [
                {
                    "ns": 10**8,
                    "workspace": 0,
                    "reads": [[read, 1, 0, 2**28] for read in node["deps"][0]],
                    "writes": [[k, 1]],
                }
            ],
        }
        for k, node in enumerate(nodes)
    ]
    (folder / "smoke.json").write_text(
        json.dumps(
            {
                "format": "berth-graph 1",
                "storages": [{"bytes": 2**28, "class": "step"}] * len(nodes),
                "operators": operators,
            }
        )
    )


def main(argv):
    report = peers.Report("schedule", __doc__, limit="--limit", seconds=10)
    add = report.parser.add_argument
    add(
        "--graphs",
        type=pathlib.Path,
        help="the folder of published graphs; tests/schedule/data/README.md has their sources",
    )
    add("--only", default="", metavar="PATTERN", help="rows whose name this regular expression is found in")
    arguments = report.parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.smoke:
            arguments.graphs, arguments.limit = pathlib.Path(folder), min(arguments.limit, 0.05)
            write_smoke_graphs(arguments.graphs)
        bench = Bench(arguments)
        if arguments.smoke:
            orders = order_rows(bench, [("chain, MiB", "smoke.json", 2**20, 1536)])
            recomputation = recomputation_rows(
                bench, [("chain", "checkmate_smoke", "checkmate", "chain", ("normal",), (2, 4, 5))]
            )
            offloads = offload_rows(bench, [("chain", "smoke.json")])
        else:
            orders, recomputation, offloads = order_rows(bench), recomputation_rows(bench), offload_rows(bench)
    if bench.rows == 0:
        raise Failure(f"no row's name has '{arguments.only}'")
    parts = []
    for title, remark, (header, rows, *summary) in (
        (
            "Order",
            "Least memory of any order. Known: the least that was known before these planners; gap: ours over the bound, less 1.",
            orders,
        ),
        (
            "What is kept and what is made again",
            f"Cost in 10 us. Published: the best of the published plans, up to 24 hours of Gurobi; "
            f"its bound: Gurobi's; ours: {arguments.limit:g} s. Overhead: time over PyTorch's, as MONeT measured it and as our plan predicts it.",
            recomputation,
        ),
        ("Offload", "12 GB/s each way; residents aside. Added: to the step with everything kept.", offloads),
    ):
        if rows:
            parts.append(
                "\n\n".join(
                    [f"## {title}", " ".join([remark, *(s for s in summary if s)]), training.table(header, rows)]
                )
            )
    report.keep_text(
        argv, arguments, f"One thread, seed 1, at most {arguments.limit:g} s a row.\n\n" + "\n\n".join(parts)
    )
    return 0


if __name__ == "__main__":
    training.run_main("schedule", main)
