"""The C++ programs of bench/train by schedules, for bench/step: each planner and budget a process of its own, in an order that changes from
round to round. What they answer is as step_children/step.py says it."""

import json
import pathlib
import tempfile

import training
from training import note

SUFFIX = "-c++"
MODELS = [f"gpt{SUFFIX}", f"resnet18{SUFFIX}"]
SMOKE = f"mlp{SUFFIX}"
ROUNDS = 2  # at most: each of them plans anew
WARMUP = 8  # steps until the program is recorded, planned, and planned once more
STATS = (
    "scheduled",
    "operators",
    "predicted_peak",
    "resident",
    "recorded_peak",
    "predicted_ns",
    "recorded_ns",
    "bound_ns",
    "recomputed",
    "last_refusal",
    "budget_not_met",
    "schedule_ns",
    "step_ns",
    "offloaded_bytes",
    "barriers",
    "barrier_operators",
)


def train(model, arguments, *options):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.json"
        training.run(
            [
                arguments.build_dir / "bench/train/train",
                "--model",
                model.removesuffix(SUFFIX),
                "--data",
                arguments.data.resolve(),
                "--steps",
                max(2, 2 * arguments.steps // 5),
                "--warmup",
                WARMUP,
                "--threads",
                arguments.threads,
                "--quiet",
                "--step-peak",
                "--json",
                path,
                *options,
            ],
            {"BERTH_MODE": "off"},
        )
        return json.loads(path.read_text())


def answer(label, run):
    found = {
        "label": label,
        "ms": [step["ms"] for step in run["steps"]],
        "losses": run["losses_hex"],
        "peak": run["step_peak_bytes"],
    }
    if program := run["program"]:
        found["program"] = {name: program[name] for name in STATS}
    return found


class Program:
    """One of MODELS with its budgets, which the first run of it decides."""

    def __init__(self, model, arguments, rows, copy_rate):
        self.model, self.arguments = model, arguments
        plain = train(model, arguments)
        self.activations = plain["step_peak_bytes"]
        self.resident = train(model, arguments, "--program", "--engine", "release")["program"]["resident"]
        self.rows = []
        for row in rows:
            options = []
            if row.engine:
                options = ["--program", "--engine", row.engine]
            if row.share:
                options += ["--memory-budget", self.resident + int(row.share * self.activations)]
            if row.offload:
                options += ["--copy-rate", copy_rate]
            if row.more_time:
                options += ["--time-budget", row.more_time]
            self.rows.append((row.label, options))

    def round(self, turn):
        answers = {}
        for k in range(len(self.rows)):
            label, options = self.rows[(turn + k) % len(self.rows)]
            note(f"step: {self.model}: round {turn + 1}, {label}")
            answers[label] = answer(label, train(self.model, self.arguments, *options))
        return {
            "model": self.model,
            "activations": self.activations,
            "resident": self.resident,
            "runs": [answers[label] for label, _ in self.rows],
        }
