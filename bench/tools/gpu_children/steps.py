"""One model trained side by side in one process: as written, with torch.utils.checkpoint, and by step programs of several planners and budgets.
Every turn each takes one step, in an order that changes; all begin with the same weights and read the same batches, so that step k of each has the
same loss. Says what each took, and what its program had said before."""

import copy
import functools
import os
import pathlib
import struct
import sys
import time
import tomllib
import types

import child

parser = child.parser(__doc__)
parser.add_argument("--library", type=pathlib.Path, required=True, help="libberth_torch_cuda_allocator.so")
parser.add_argument("--model", required=True)
parser.add_argument("--size", default="full")
parser.add_argument("--batch", type=int, default=0)
parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
parser.add_argument("--steps", type=int, default=10, help="that are timed")
parser.add_argument("--algorithms", type=pathlib.Path, help="the file of what was measured of cuDNN's algorithms")
arguments = parser.parse_args()
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
if arguments.algorithms:
    os.environ["BERTH_ALGORITHMS"] = str(arguments.algorithms)

import torch  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import models  # noqa: E402

WARMUP = 5  # steps until every program is recorded and planned


def package_without_core():
    """The package's adapter of one library: all of the package is more than a machine with a GPU may be able to build."""
    package, build = types.ModuleType("berth"), types.ModuleType("berth._build")
    shim = pathlib.Path(__file__).resolve().parents[3] / "python_shim"
    build.VERSION = tomllib.loads((shim / "pyproject.toml").read_text())["project"]["version"]
    package.__path__, package._build = [str(shim / "berth")], build
    sys.modules["berth"], sys.modules["berth._build"] = package, build
    from berth import _library

    return _library.Adapter(arguments.library)


adapter = package_without_core()


class Program:
    def __init__(self, engine="auto", share=0.0, other_bits=False):
        self.here = adapter.make_step_program(
            engine, "", 0, share, -1.0, 0, 0, other_bits, False, float("inf")
        )  # waits for its plans

    def __enter__(self):
        adapter.begin_step(self.here)

    def __exit__(self, kind, *_):
        adapter.end_step(self.here, kind is not None)

    def stats(self):
        return adapter.step_program_stats(self.here)


torch.manual_seed(1)
torch.set_float32_matmul_precision("high")
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.backends.cudnn.deterministic = True
problem = models.make(arguments.model, arguments.size, arguments.batch, fused=False, device="cuda")
kind = torch.bfloat16 if arguments.precision == "bf16" else None


class Run:
    """A copy of the model with an optimizer of its own."""

    def __init__(self, label, program=None, again=False):
        self.label, self.program, self.model = label, program, copy.deepcopy(problem.model)
        for module in self.model.modules() if again else ():
            if isinstance(module, (models.Gpt2Block, models.Bottleneck)):
                module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
        sgd = arguments.model == "resnet50"
        self.optimizer = (
            torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
            if sgd
            else torch.optim.AdamW(self.model.parameters(), 1e-4)
        )
        self.losses, self.ms, self.queued_ms, self.peak = [], [], [], 0

    def body(self, x, target):
        with torch.autocast("cuda", kind, enabled=kind is not None):
            loss = problem.loss(self.model(x), target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def step(self):
        x, target = (one.cuda() for one in problem.batches[len(self.losses) % len(problem.batches)])
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, start = torch.cuda.memory_allocated(), time.perf_counter()
        if self.program is None:
            loss = self.body(x, target)
        else:
            with self.program:
                loss = self.body(x, target)
        queued = time.perf_counter()
        torch.cuda.synchronize()
        self.ms.append(1e3 * (time.perf_counter() - start))
        self.queued_ms.append(1e3 * (queued - start))
        self.peak = torch.cuda.max_memory_allocated() - before
        self.losses.append(struct.pack(">f", loss.item()).hex())

    def answer(self):
        found = {
            "label": self.label,
            "ms": self.ms,
            "queued_ms": self.queued_ms,
            "peak": self.peak,
            "losses_hex": self.losses,
        }
        if self.program is not None:
            stats = found["program"] = self.program.stats()
            found["predicted"] = stats["predicted_peak"] - stats["resident"]
        return found


def settled(run):
    for _ in range(WARMUP):
        run.step()
    return run


runs = [
    settled(Run("eager")),
    settled(Run("checkpoint", again=True)),
    settled(Run("release", Program("release"))),
    settled(Run("auto", Program())),
]
for share in (0.9, 0.75, 0.6):
    runs.append(settled(Run(f"auto, {share:.0%}", Program(share=share))))
if arguments.model == "resnet50":
    runs.append(settled(Run("monet, 75%", Program("monet", 0.75))))
    runs.append(settled(Run("auto, 75%, other bits", Program(share=0.75, other_bits=True))))
for run in runs:
    run.ms, run.queued_ms = [], []
for turn in range(arguments.steps):
    for k in range(len(runs)):
        runs[(turn + k) % len(runs)].step()
child.write(
    arguments,
    {
        "description": f"{problem.text}, {arguments.precision}",
        "cudnn": torch.backends.cudnn.version(),
        "runs": [run.answer() for run in runs],
    },
)
