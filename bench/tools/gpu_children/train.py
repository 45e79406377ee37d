"""Trains a model and says what each step lost, took and asked for."""

import hashlib
import os
import struct
import time
import warnings

import child

parser = child.parser(__doc__)
parser.add_argument("--model", required=True)
parser.add_argument("--size", default="full")
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--warmup", type=int, default=10, help="steps before those that are timed")
parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32", help="fp16: with a GradScaler")
parser.add_argument("--deterministic", action="store_true")
parser.add_argument("--benchmark", action="store_true", help="cuDNN tries its algorithms")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--written-out", action="store_true", help="attention without fused kernels")
parser.add_argument("--accumulate", type=int, default=1, help="batches a step")
parser.add_argument("--clip", action="store_true")
parser.add_argument("--fused-optimizer", action="store_true")
parser.add_argument("--weights", action="store_true", help="a checksum of all weights at the end")
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()
if arguments.deterministic:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402

import models  # noqa: E402

child.must_be(child.wanted_allocator())
seen = set()
warnings.showwarning = lambda message, *_, **__: seen.add(str(message).split("\n")[0][:200])
if arguments.deterministic:
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # a block in the wrong place is not to be painted over
    torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = arguments.benchmark
if not arguments.deterministic:
    torch.set_float32_matmul_precision("high")
torch.manual_seed(arguments.seed)
problem = models.make(arguments.model, arguments.size, arguments.batch, fused=not arguments.written_out, device="cuda")
model = problem.model
if arguments.channels_last:
    model = model.to(memory_format=torch.channels_last)
how = {"fused": True} if arguments.fused_optimizer else {}
if arguments.model == "resnet50":
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **how)
else:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, **how)
scaler = torch.amp.GradScaler("cuda", enabled=arguments.precision == "fp16")
kind = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[arguments.precision]
total = arguments.warmup + arguments.steps
losses = torch.zeros(total, device="cuda")


def step(index):
    optimizer.zero_grad()
    for part in range(arguments.accumulate):
        x, target = problem.batches[(index * arguments.accumulate + part) % len(problem.batches)]
        x, target = x.cuda(non_blocking=True), target.cuda(non_blocking=True)
        if arguments.channels_last:
            x = x.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", kind, enabled=kind is not None):
            loss = problem.loss(model(x), target)
        losses[index] += loss.detach()
        scaler.scale(loss / arguments.accumulate).backward()
    if arguments.clip:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


learning = os.environ.get("BERTH_MODE") == "learn"
steps, waited = [], 0.0
before = child.berth_stats()
torch.cuda.synchronize()
for index in range(total):
    if learning and index >= 4 and not child.berth_stats().get("plans_learned") and waited < 3:
        time.sleep(0.1)  # the plan is made beside the program
        waited += 0.1
    start = time.perf_counter()
    step(index)
    queued = time.perf_counter()
    torch.cuda.synchronize()
    end = time.perf_counter()
    after = child.berth_stats()
    count = lambda *names: sum(after.get(name, 0) - before.get(name, 0) for name in names)  # noqa: E731
    steps.append(
        {
            "ms": 1e3 * (end - start),
            "queue_ms": 1e3 * (queued - start),
            "requests": count("requests"),
            "hits": count("hits"),
            "misses": count("lent", "misses_size", "misses_busy", "misses_lane"),
            "unplanned": count("unplanned"),
            "driver_calls": count("driver_calls"),
        }
    )
    before = after

memory = torch.cuda.memory_stats()
free, all_memory = torch.cuda.mem_get_info()
result = {
    "description": f"{problem.text}, {arguments.precision}",
    "allocator": torch.cuda.get_allocator_backend(),
    "warmup": arguments.warmup,
    "steps": steps,
    "losses_hex": [struct.pack(">f", value).hex() for value in losses.tolist()],
    "last_loss": str(losses[-1].item()),
    "allocated_peak_bytes": memory["allocated_bytes.all.peak"],
    "requested_peak_bytes": memory.get("requested_bytes.all.peak", 0),
    "reserved_peak_bytes": memory["reserved_bytes.all.peak"],
    "device_used_bytes": all_memory - free,
    "stats": child.berth_stats(),
    "warnings": sorted(seen),
}
if arguments.weights:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    result["weights_sha256"] = digest.hexdigest()
child.write(arguments, result)
