"""Some steps of a network on CUDA, as written and by a step program without a budget: `berth` and networks.py are to be found.
network.py MODEL BATCH FOLDER [--small]: writes run.json and step.graph into FOLDER."""

import copy
import json
import pathlib
import sys

import berth
import torch

import networks

name, batch, folder, small = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]), "--small" in sys.argv
STEPS = 6  # the first two are recorded, and one more where the step makes something that stays
torch.manual_seed(1)
problem = networks.written_out(name, batch, small)
first = problem.model.train()
inputs = [one.cuda() for one in problem.inputs]


def requested(which):
    return torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]


def peak_of(step):
    """Bytes that it holds at most beside those that were there, without the allocator's rounding."""
    torch.cuda.reset_peak_memory_stats()
    before = requested("current")
    step()
    return requested("peak") - before


def trained(model):
    # SGD updates parameter by parameter, as in the graphs that OLLA orders: one operator for all would hold every gradient until the end.
    optimizer = torch.optim.SGD(model.parameters(), 0.01, foreach=False)

    def body():
        problem.loss(model, *inputs).backward()
        optimizer.step()
        optimizer.zero_grad()

    return body


def scheduled(body, program):
    def step():
        with program.step():
            body()

    return step


def last_peak(step):
    return [peak_of(step) for _ in range(STEPS)][-1]


program = berth.StepProgram(plan_wait=1e9)
eager = last_peak(trained(copy.deepcopy(first)))
ours = last_peak(scheduled(trained(first), program))
program.save_graph(folder / "step.graph")
stats = program.stats()
(folder / "run.json").write_text(
    json.dumps(
        {
            "eager": eager,
            "ours": ours,
            **{
                key: getattr(stats, key)
                for key in ("operators", "resident", "predicted_peak", "scheduled", "last_refusal", "last_divergence")
            },
        }
    )
)
