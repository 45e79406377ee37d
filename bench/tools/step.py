"""bench/step: training steps by schedules, beside the step as written: memory, time and losses for each planner and budget.

Each model is trained as written, with torch.utils.checkpoint around its blocks, and by step programs, all in one process: every turn each of
them takes a step, so that times are paired. The C++ programs of bench/train are processes, in turns, at most two rounds. Memory is what a step
holds beside what is there between steps, as libtorch's allocator counts it; "predicted" is the same by the program. A budget of 60 % is that share
of what the step as written holds so. Runs on the CPU, on the stand-in's launcher, since torch wants NVIDIA's libraries. Needs a quiet machine, and
there one to five minutes a model; a call that was ended goes on with --resume.
`gpt_operator` has an operator of somebody's own in its middle, which is a barrier; `gpt_lengths` has batches of twelve lengths.
Writes NAME.md and NAME.svg: a panel a model, memory over time.
"""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import step_cpp  # noqa: E402
import step_picture  # noqa: E402
import training  # noqa: E402
from python_programs import launcher  # noqa: E402
from training import Failure, note  # noqa: E402

HERE = pathlib.Path(__file__).parent
sys.path.insert(1, str(HERE / "step_children"))
import rows  # noqa: E402

KEPT = training.ROOT / "build/step"  # answers of models, for --resume
COPY_RATE = 4_000_000_000  # bytes a second, of the C++ programs
MODELS = ["gpt", "resnet18", "vit", "lstm", "unet", "bert", *rows.HARD, *step_cpp.MODELS]


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def child(script, arguments, *words):
    """What a script of step_children says to these words."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.json"
        command, environment = launcher(arguments)
        environment["PYTHONPATH"] += f":{HERE / 'python_children'}"
        environment["STEP_PEAK_LIBRARY"] = str(arguments.build_dir / "bench/train/libberth_bench_step_peak.so")
        training.run([*command, HERE / "step_children" / script, *words, path], environment, show=True)
        return json.loads(path.read_text())


def measure(model, arguments):
    """One answer of the child a round."""
    note(f"step: {model}: planning")
    if not model.endswith(step_cpp.SUFFIX):
        return child("step.py", arguments, model, arguments.steps, arguments.rounds)
    compared = [row for row in rows.rows() if not arguments.smoke or row.label in rows.FEW]
    program = step_cpp.Program(model, arguments, compared, COPY_RATE)
    answers = []
    for turn in range(min(arguments.rounds, step_cpp.ROUNDS)):
        answers.append(program.round(turn))
    return answers


def measured(model, arguments):
    """The same, or what an earlier call of the same commit and options kept of it."""
    key = {
        "commit": training.commit(),
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "threads": arguments.threads,
    }
    path = KEPT / f"{model}.json"
    if arguments.resume and path.is_file() and (kept := json.loads(path.read_text()))["key"] == key:
        note(f"step: {model}: measured by an earlier call")
        return kept["answers"]
    answers = measure(model, arguments)
    if not arguments.smoke:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"key": key, "answers": answers}))
    return answers


def rows_of(answers):
    """By label: what all rounds say of it together."""
    found = []
    for k, first in enumerate(answers[0]["runs"]):
        runs = [answer["runs"][k] for answer in answers]
        plain = [answer["runs"][0] for answer in answers]
        losses = [answer["runs"][0]["losses"] for answer in answers]
        row = {
            "label": first["label"],
            "peak": first["peak"],
            "activations": answers[0]["activations"],
            "ms": [statistics.median(run["ms"]) for run in runs],
            "over_eager": [
                statistics.median(b / a for a, b in zip(base["ms"], run["ms"])) for base, run in zip(plain, runs)
            ],
            "equal": all(
                run["losses"][:n] == base[:n]
                for run, base in zip(runs, losses)
                for n in [min(len(run["losses"]), len(base))]
            ),
        }
        if program := first.get("program"):
            row["predicted"] = program["predicted_peak"] - program["resident"]
            row["recomputed"], row["operators"] = program["recomputed"], program["operators"]
            row["predicted_time"] = program["predicted_ns"] / program["recorded_ns"]
            row["ghost"] = [
                (run["program"]["step_ns"] - run["program"]["schedule_ns"]) / 1e6 / statistics.median(base["ms"])
                for run, base in zip(runs, plain)
            ]
            row["remark"] = (
                program["last_refusal"] if program["scheduled"] == 0 else "not met" if program["budget_not_met"] else ""
            )
            row["offloaded"] = program["offloaded_bytes"]
            if program["barriers"]:
                row["remark"] += f"{program['barriers']} barriers: {program['barrier_operators']}"
        found.append(row)
    return found


def table_of(rows):
    mib = lambda one: f"{one / 2**20:.1f}"  # noqa: E731
    lines = []
    for row in rows:
        program = "predicted" in row
        lines.append(
            [
                row["label"],
                mib(row["peak"]),
                f"{100 * row['peak'] / row['activations']:.1f}",
                f"{row['predicted'] - row['peak']:+,}" if program else "",
                str(row["recomputed"]) if program else "",
                mib(row["offloaded"]) if row.get("offloaded") else "",
                spread(row["ms"], 1),
                spread(row["over_eager"]),
                f"{row['predicted_time']:.2f}" if program else "",
                spread(row["ghost"]) if program else "",
                "yes" if row["equal"] else "NO",
                row.get("remark", ""),
            ]
        )
    return training.table(
        [
            "run",
            "peak, MiB",
            "of eager, %",
            "predicted - peak, bytes",
            "recomputed",
            "offloaded, MiB",
            "step, ms",
            "over eager",
            "predicted",
            "ghost, of eager",
            "equal",
            "",
        ],
        lines,
    )


def main(argv):
    report = peers.Report("step", __doc__, limit=None)
    add = report.parser.add_argument
    add("--model", action="append", choices=MODELS, help=f"may be repeated (default: {', '.join(MODELS)})")
    add("--steps", type=int, default=20, help="measured steps a run (default: %(default)s)")
    add("--rounds", type=int, default=3, help="default: %(default)s")
    add(
        "--data", type=pathlib.Path, default=training.ROOT / "build/data", help="of bench/train: cmake/setup fetches it"
    )
    add("--threads", type=int, default=2, help="of torch (default: %(default)s)")
    add(
        "--resume",
        action="store_true",
        help=f"take models that an earlier call of this commit and these options measured from {KEPT.relative_to(training.ROOT)}",
    )
    arguments = report.parser.parse_args(argv)
    if arguments.smoke:
        arguments.model, arguments.steps, arguments.rounds, arguments.threads = ["lstm", step_cpp.SMOKE], 2, 1, 1
    arguments.build_dir = arguments.build_dir.resolve()
    models = {model: rows_of(measured(model, arguments)) for model in arguments.model or MODELS}
    report.keep_text(
        argv,
        arguments,
        "\n\n".join(
            [
                "Medians over rounds of paired ratios, with the least and the most. `over eager`: time of the step; `predicted`: the same by the times that it "
                "was planned by; `ghost`: the body without kernels and the checks. `olla` orders alone; what `with offload` offloads goes to plain memory, "
                "at half the rate of this machine's memory (of C++ programs at 4 GB a second).",
                *(
                    f"**{model}**, {rows[2].get('operators', 0)} operators\n\n{table_of(rows)}"
                    for model, rows in models.items()
                ),
            ]
        ),
    )
    if not arguments.smoke:
        arguments.output.with_suffix(".svg").write_text(step_picture.picture(models))
    wrong = [f"{model}, {row['label']}" for model, rows in models.items() for row in rows if not row["equal"]]
    if wrong:
        raise Failure(f"losses differ from those of the step as written: {'; '.join(wrong)}")
    return 0


if __name__ == "__main__":
    training.run_main("step", main)
