"""One model trained side by side in one process: as written, with torch.utils.checkpoint, and by step programs of several planners and
budgets. Every turn each of them takes one step, in an order that changes; all begin with the same weights and draw the same numbers, so that step k
of each has the same loss.
step.py MODEL STEPS ROUNDS JSON: prints progress alone, writes what was measured in each round of so many steps."""

import copy
import json
import sys
import time

import berth
import torch

import models
import rows
from memory import peak_of_step

name, steps, rounds, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
WARMUP = rows.HARD.get(name, 7)  # steps until every program is recorded, planned, and planned once more
torch.manual_seed(1)
net, batch, loss_of = models.MODELS[name]()
first_state = torch.get_rng_state()


class Run:
    """A copy of the model with its own optimizer and generator."""

    def __init__(self, label, program=None, again=False):
        self.label, self.program, self.net = label, program, copy.deepcopy(net)
        self.net.again = again
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        self.generator, self.losses, self.ms = first_state, [], []

    def body(self, x, target):
        loss = loss_of(self.net(x), target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def step(self, drawn=None):
        x, target = drawn or self.draw()
        start = time.perf_counter()
        if self.program is None:
            loss = self.body(x, target)
        else:
            with self.program.step():
                loss = self.body(x, target)
        self.ms.append(1000 * (time.perf_counter() - start))
        self.losses.append(loss.hex())
        self.generator = torch.get_rng_state()

    def draw(self):
        torch.set_rng_state(self.generator)
        return batch()

    def peak(self):
        return peak_of_step(self.draw, self.step)

    def answer(self):
        found = {"label": self.label, "losses": self.losses, "peak": self.peak()}
        if self.program is not None:
            stats = self.program.stats()
            found["program"] = {
                key: getattr(stats, key)
                for key in (
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
            }
        return found


def settled(run):
    for _ in range(WARMUP):
        run.step()
    return run


def copy_rate():
    """Bytes that this machine copies in a second, half of what it does while nothing else runs."""
    source = torch.ones(1 << 24)
    took = []
    for _ in range(5):
        start = time.perf_counter()
        source.clone()
        took.append(time.perf_counter() - start)
    return int(source.nbytes / min(took) / 2)


def program_of(row):
    if row.more_time:
        return berth.StepProgram(engine=row.engine, time_budget=row.more_time, plan_wait=1e9)
    budget = resident + int(row.share * activations) if row.share else 0
    if row.share and name in rows.HARD:
        budget = f"{row.share:.0%}"  # of each program of its own
    return berth.StepProgram(budget, engine=row.engine, copy_rate=rate if row.offload else 0, plan_wait=1e9)


eager, again = settled(Run("eager")), settled(Run("checkpoint", again=True))
# A share is of what the step takes beside what is there between steps.
resident, activations, rate = (
    settled(Run("release", berth.StepProgram(engine="release", plan_wait=1e9))).program.stats().resident,
    eager.peak(),
    copy_rate(),
)


def planned(label, program):
    print(f"step: {name}: plans {label}", file=sys.stderr, flush=True)
    return settled(Run(label, program))


runs = [eager, again, *(planned(row.label, program_of(row)) for row in rows.rows(name) if row.engine)]
if name not in rows.HARD:
    runs.append(planned("berth, memory of checkpoint", berth.StepProgram(resident + again.peak(), plan_wait=1e9)))
answers = []
for turn in range(rounds):
    print(f"step: {name}: round {turn + 1}/{rounds}", file=sys.stderr, flush=True)
    for run in runs:
        run.ms = []
    for step in range(steps):
        for k in range(len(runs)):
            runs[(step + k) % len(runs)].step()
    answers.append(
        [
            {"ms": run.ms, "step_ns": stats.step_ns, "schedule_ns": stats.schedule_ns}
            for run in runs
            for stats in [
                run.program.stats() if run.program else berth.StepProgram(engine="eager", plan_wait=1e9).stats()
            ]
        ]
    )
said = [run.answer() for run in runs]
for answer in answers:
    for run, one in zip(said, answer):
        one.update(run)
        if "program" in one:
            one["program"] = {**one["program"], "step_ns": one.pop("step_ns"), "schedule_ns": one.pop("schedule_ns")}
with open(path, "w") as file:
    json.dump(
        [{"model": name, "activations": activations, "resident": resident, "runs": answer} for answer in answers], file
    )
