"""An unchanged training script, as anybody writes it. train.py MODEL STEPS WARMUP JSON: knows nothing of allocators but how to wait for one
that learns (WAIT_FOR_PLAN)."""

import gc
import json
import os
import resource
import sys
import time

import torch

import models

name, steps, warmup, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.manual_seed(1)
net, batch, loss_of = models.MODELS[name]()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
losses, measured = [], []


def step():
    x, target = batch()
    loss = loss_of(net(x), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())


for _ in range(warmup):
    step()
settled = 0
if os.environ.get("WAIT_FOR_PLAN"):
    import berth

    for settled in range(200):
        before = berth.stats("cpu")
        step()
        after = berth.stats("cpu")
        if after.hits - before.hits > 0.95 * (after.requests - before.requests):
            break
gc.collect()
for _ in range(steps):
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    step()
    measured.append(
        {
            "ms": 1000 * (time.perf_counter() - start),
            "minor_faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt,
        }
    )
usage = resource.getrusage(resource.RUSAGE_SELF)
with open(path, "w") as file:
    json.dump(
        {
            "steps": measured,
            "losses_hex": losses,
            "settled_after": settled,
            "peak_rss_bytes": usage.ru_maxrss * 1024,
            "system_seconds": usage.ru_stime,
        },
        file,
    )
