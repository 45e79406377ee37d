"""bench/fit: training steps that are larger than the device, on the CPU with a limit: memory, time and bits.

Each model trains without a limit and within shares of what it holds then. "as recorded" is a step while it is recorded, with spills alone; "scheduled"
is a later one, by a schedule within the limit that copies state and values to the host. Times are beside those of the step without a limit. Bits
are those of losses, weights, gradients and state of AdamW. Beside them is what people do: "checkpoint" is torch.utils.checkpoint around the blocks, where
the model has some; "offload" copies what autograd saves to the host, as torch.autograd.graph.save_on_cpu does on a GPU. State stays where it is in both. "least" is the least limit in which it trains, found by halving; below it the largest
operator does not fit. Needs a quiet machine. Writes NAME.md.
"""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import training  # noqa: E402
from python_programs import launcher  # noqa: E402
from training import Failure, note  # noqa: E402

HERE = pathlib.Path(__file__).parent
MODELS = ["gpt", "bert", "vit", "unet", "resnet18", "lstm"]
SHARES = [0.5, 0.35, 0.25]
WAYS = ["checkpoint", "offload"]
HOST = 16 << 30


def train(model, limit, budget, arguments, steps, way=""):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.json"
        command, environment = launcher(arguments)
        environment["PYTHONPATH"] += f":{HERE / 'python_children'}"
        words = [model, limit, HOST if limit else 0, budget, steps, path, way]
        training.run([*command, HERE / "fit_children/train.py", *map(str, words)], environment)
        return json.loads(path.read_text())


def least(model, held, arguments):
    """The least limit in which two steps train, to a hundredth of what is held without one."""
    low, high = 0, held
    while high - low > held // 100:
        middle = (low + high) // 2
        note(f"fit: {model}: {training.mebibytes(middle)} MiB")
        if "error" in train(model, middle, 0, arguments, 2):
            low = middle
        else:
            high = middle
    return high


def rows_of(model, arguments):
    wide = train(model, 0, 0, arguments, arguments.steps)
    usual = statistics.median(wide["ms"][2:])
    rows = [[model, "no limit", training.mebibytes(wide["live"]), "", "", "", "", f"{usual:.0f}", "", ""]]
    for way in WAYS:
        note(f"fit: {model}: {way}")
        run = train(model, 0, 0, arguments, arguments.steps, way)
        ms = statistics.median(run["ms"][2:])
        equal = "equal" if run["digest"] == wide["digest"] else "others"
        live = f"{training.mebibytes(run['live'])}, {100 * run['live'] / wide['live']:.0f} %"
        rows.append([model, way, live, "", "", "", "", f"{ms:.0f}", f"{ms / usual:.2f}", equal])
    wrong = []
    for share in arguments.share or SHARES:
        limit = int(share * wide["live"])
        note(f"fit: {model} in {100 * share:.0f} %")
        run = train(model, limit, int(0.95 * limit), arguments, arguments.steps)
        label = f"{100 * share:.0f} %"
        if "error" in run:
            rows.append([model, label, training.mebibytes(limit), "", "", "", "", "", "", "out of memory"])
            continue
        equal = run["digest"] == wide["digest"]
        wrong += [] if equal and run["peak"] <= limit else [f"{model}, {label}"]
        scheduled = run["ms"][-3:]
        rows.append(
            [
                model,
                label,
                training.mebibytes(run["peak"]),
                training.mebibytes(run["spilled"][1]),
                training.mebibytes(run["spilled"][-1]),
                training.mebibytes(run["program"]["offloaded_bytes"]),
                str(run["program"]["recomputed"]),
                f"{statistics.median(scheduled):.0f}",
                f"{run['ms'][1] / usual:.2f}, {statistics.median(scheduled) / usual:.2f}",
                "equal" if equal else "DIFFERENT",
            ]
        )
    if arguments.least:
        found = least(model, wide["live"], arguments)
        rows.append(
            [
                model,
                "least",
                training.mebibytes(found),
                "",
                "",
                "",
                "",
                "",
                "",
                f"{100 * found / wide['live']:.0f} % of what it holds",
            ]
        )
    return rows, wrong


def main(argv):
    report = peers.Report("fit", __doc__, limit=None)
    add = report.parser.add_argument
    add("--model", action="append", choices=MODELS, help=f"may be repeated (default: {', '.join(MODELS)})")
    add("--share", action="append", type=float, help="of what is held without a limit (default: 0.5, 0.35, 0.25)")
    add("--steps", type=int, default=9, help="of a run (default: %(default)s)")
    add("--threads", type=int, default=1, help="of torch (default: %(default)s)")
    add("--least", action="store_true", help="also look for the least limit, in seven more runs a model")
    arguments = report.parser.parse_args(argv)
    if arguments.smoke:
        arguments.model, arguments.share, arguments.steps = ["resnet18"], [0.5], 5
    arguments.build_dir = arguments.build_dir.resolve()
    rows, wrong = [], []
    for model in arguments.model or MODELS:
        found, faults = rows_of(model, arguments)
        rows += found
        wrong += faults
    report.keep(
        argv,
        arguments,
        "Spilled: bytes that one step sends to the host, the second one (as recorded) and the last one (scheduled). "
        "Offloaded: by the schedule itself.",
        [
            "model",
            "limit",
            "held",
            "spilled, recorded",
            "scheduled",
            "offloaded",
            "recomputed",
            "step, ms",
            "over no limit",
            "bits",
        ],
        rows,
    )
    if wrong:
        raise Failure(f"other bits, or more than the limit: {'; '.join(wrong)}")
    return 0


if __name__ == "__main__":
    training.run_main("fit", main)
