"""One model under torch.compile: partitioned by PyTorch and by berth at several budgets, kernels of libtorch one by one. partition.py MODEL STEPS
JSON: prints nothing, writes the peak of forward and backward, the times of steps and whether gradients are those of the model as it is."""

import copy
import json
import sys
import time
import warnings

import berth
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config, partitioners

import models
from memory import peak_of

name, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SHARES = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2) if steps > 1 else (1.0, 0.5)
torch._dynamo.config.recompile_limit = 4 * len(SHARES)
torch.manual_seed(1)
net, batch, loss_of = models.MODELS[name]()
x, target = batch()


class Run:
    def __init__(self, label, share, partition=None):
        self.label, self.share, self.partition, self.net, self.ms = label, share, partition, copy.deepcopy(net), []
        self.budget = share if partition is partitioners.min_cut_rematerialization_partition else 1.0
        self.call = (
            self.net
            if partition is None
            else torch.compile(
                self.net, backend=aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=partition)
            )
        )

    def step(self):
        torch.manual_seed(3)
        start = time.perf_counter()
        with config.patch(activation_memory_budget=self.budget):
            loss_of(self.call(x), target).backward()
        self.ms.append(1000 * (time.perf_counter() - start))

    def clear(self):
        for parameter in self.net.parameters():
            parameter.grad = None


runs = [Run("eager", 1.0)]
for share in SHARES:
    runs.append(Run("pytorch", share, partitioners.min_cut_rematerialization_partition))
    runs.append(Run("berth", share, berth.partitioner(f"{100 * share:g}%")))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for run in runs:
        caught.clear()
        try:
            run.step()
            run.error = None
        except RuntimeError as error:
            run.error = str(error)
        run.met = not any("nothing was found within" in str(one.message) for one in caught)
expected = [parameter.grad for parameter in runs[0].net.parameters()]
failed = [{"label": run.label, "share": run.share, "error": run.error} for run in runs if run.error]
runs = [run for run in runs if not run.error]
for run in runs:
    run.equal = all(torch.equal(parameter.grad, one) for parameter, one in zip(run.net.parameters(), expected))
for run in runs[1:]:
    run.clear()
answers = []
for run in runs:
    run.clear()
    answers.append(
        {"label": run.label, "share": run.share, "equal": run.equal, "met": run.met, "peak": peak_of(run.step)}
    )
    run.clear()
    run.ms = []
for turn in range(steps):
    for k in range(len(runs)):
        run = runs[(turn + k) % len(runs)]
        run.step()
        run.clear()
for answer, run in zip(answers, runs):
    answer["ms"] = run.ms
with open(path, "w") as file:
    json.dump({"model": name, "runs": answers, "failed": failed}, file)
