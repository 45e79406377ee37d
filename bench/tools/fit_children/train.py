"""A model trained within a limit: train.py MODEL LIMIT HOST BUDGET STEPS JSON [WAY]. LIMIT and HOST are bytes, 0 for none; BUDGET bytes, 0 for no
step program. WAY is how people do without: checkpoint (torch.utils.checkpoint around the blocks) or offload (as torch.autograd.graph.save_on_cpu does on a GPU).
Writes what it holds at most, what each step takes, and a digest of losses, weights, gradients and state."""

import contextlib
import hashlib
import json
import sys
import time

import berth
import torch

import models

name, limit, host, budget, steps, path = sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6]
way = sys.argv[7] if len(sys.argv) > 7 else ""


def to_host(tensor):
    """A copy that is not berth's memory."""
    return tensor.dtype, tensor.shape, tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().copy()


def to_device(saved):
    dtype, shape, found = saved
    return torch.from_numpy(found).clone().view(dtype).view(shape)


berth.install("cpu", **({"memory_limit": limit} if limit else {}))
torch.manual_seed(1)
net, batch, loss_of = models.MODELS[name]()
for module in net.modules() if way == "checkpoint" else ():
    if isinstance(module, models.Checkpointed):
        module.again = True
hooks = torch.autograd.graph.saved_tensors_hooks(to_host, to_device) if way == "offload" else contextlib.nullcontext()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
# As `run --fit` makes it.
program = (
    berth.StepProgram(budget, host_memory=host, copy_rate=4 * 10**9 if budget else 0, plan_wait=60) if host else None
)
digest, ms, spilled = hashlib.sha256(), [], []
try:
    for _ in range(steps):
        x, target = batch()
        before = program.stats().spilled_out if program else 0
        start = time.perf_counter()
        with program.step() if program else contextlib.nullcontext():
            optimizer.zero_grad()
            with hooks:
                loss = loss_of(net(x), target)
            loss.backward()
            optimizer.step()
        ms.append(1000 * (time.perf_counter() - start))
        spilled.append((program.stats().spilled_out if program else 0) - before)
        digest.update(loss.item().hex().encode())
    for parameter in net.parameters():
        for one in (parameter, parameter.grad, *optimizer.state[parameter].values()):
            digest.update(one.detach().clone().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
except torch.OutOfMemoryError as error:
    json.dump({"error": str(error).splitlines()[0]}, open(path, "w"))
    sys.exit(0)
stats, memory = program.stats() if program else None, berth.stats()
json.dump(
    {
        "peak": memory.reserved_peak,
        "live": memory.live_peak,
        "ms": ms,
        "spilled": spilled,
        "digest": digest.hexdigest(),
        "program": {
            one: getattr(stats, one)
            for one in (
                "scheduled",
                "recomputed",
                "offloaded_bytes",
                "spill_ns",
                "spilled_out",
                "spilled_in",
                "resident",
            )
        }
        if stats
        else None,
    },
    open(path, "w"),
)
