"""bench/partition: what torch.compile keeps for the backward part, by PyTorch's `activation_memory_budget` and by berth.partitioner, at the same
shares. Memory is what forward and backward hold at their peak, counted by libtorch's profiler; kernels are libtorch's, one by one, so that
nothing but the partition differs. Times are paired: every turn each takes a step. Runs on the CPU, on the stand-in's launcher. Needs a quiet
machine. Writes NAME.md.

A share means two things: to PyTorch it is one of what is saved between forward and backward, to berth one of the peak.
"""

import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import training  # noqa: E402
from step import child  # noqa: E402
from training import Failure, note  # noqa: E402

MODELS = ["gpt", "vit", "bert", "resnet18", "unet"]


def measure(model, arguments):
    note(f"partition: {model}")
    return child("partition.py", arguments, model, arguments.steps)


def rises(runs):
    """Pairs of budgets of which the smaller one took more memory."""
    peaks = [run["peak"] for run in sorted(runs, key=lambda run: -run["share"])]
    return sum(b > a for a, b in zip(peaks, peaks[1:]))


def section(model, answer):
    runs, failed = answer["runs"], answer["failed"]
    eager, whole = runs[0], next(run for run in runs if run["label"] == "pytorch" and run["share"] == 1)
    ratio = lambda run: statistics.median(b / a for a, b in zip(eager["ms"], run["ms"]))  # noqa: E731
    rows = []
    for share in sorted({run["share"] for run in [*runs, *failed]}, reverse=True):
        cells = [f"{share:.0%}"]
        for label in ("pytorch", "berth"):
            run = next((one for one in runs if one["label"] == label and one["share"] == share), None)
            if run is None:
                cells += ["fails", "", "", ""]
                continue
            cells += [
                f"{run['peak'] / 2**20:.1f}",
                f"{100 * run['peak'] / whole['peak']:.0f}" + ("" if run["met"] else " (not met)"),
                f"{ratio(run):.2f}",
                "yes" if run["equal"] else "NO",
            ]
        rows.append(cells)
    of = {label: rises([run for run in runs if run["label"] == label]) for label in ("pytorch", "berth")}
    words = f" What fails: {failed[0]['error'][:160].rstrip()} .." if failed else ""
    return (
        f"**{model}**: eager holds {eager['peak'] / 2**20:.1f} MiB. A smaller budget took more memory {of['pytorch']} times by PyTorch, "
        f"{of['berth']} times by berth.{words}\n\n"
        + training.table(
            [
                "budget",
                "PyTorch, MiB",
                "of its 100 %",
                "over eager",
                "equal",
                "berth, MiB",
                "of PyTorch's 100 %",
                "over eager",
                "equal",
            ],
            rows,
        )
    )


def main(argv):
    report = peers.Report("partition", __doc__, limit=None)
    add = report.parser.add_argument
    add("--model", action="append", choices=MODELS, help=f"may be repeated (default: {', '.join(MODELS)})")
    add("--steps", type=int, default=8, help="measured steps (default: %(default)s)")
    add("--threads", type=int, default=2, help="of torch (default: %(default)s)")
    arguments = report.parser.parse_args(argv)
    arguments.build_dir = arguments.build_dir.resolve()
    if arguments.smoke:
        arguments.model, arguments.steps, arguments.threads = ["vit"], 1, 1
    models = {model: measure(model, arguments) for model in arguments.model or MODELS}
    report.keep_text(
        argv,
        arguments,
        "\n\n".join(
            [
                "Equal: gradients have the bits of the model as it is; over eager: time of forward and backward.",
                *(section(model, answer) for model, answer in models.items()),
            ]
        ),
    )
    wrong = [
        model
        for model, answer in models.items()
        if not all(run["equal"] for run in answer["runs"] if run["label"] == "berth")
        or any(run["label"] == "berth" for run in answer["failed"])
    ]
    if wrong:
        raise Failure(f"gradients differ from those of the model as it is: {', '.join(wrong)}")
    return 0


if __name__ == "__main__":
    training.run_main("partition", main)
