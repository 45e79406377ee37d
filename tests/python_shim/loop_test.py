"""`berth run --budget`, `--fit`: loops of all kinds, unchanged, end as they do without berth, and say how many of their steps ran by a schedule."""

import json
import signal
import subprocess
import sys
import unittest

from support import STANDIN, ProgramCase, run

# What each program begins with; `finish` prints what it leaves.
HEAD = """
import hashlib, json, os, sys, time
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)

def finish(*tensors):
    print(hashlib.sha256(b"".join(t.detach().clone().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors)).hexdigest())
    print(torch.get_rng_state().sum().item())
    loop = sys.modules.get("berth._loop")
    if loop is not None and loop.stats() is not None:
        stats = loop.stats()
        print(json.dumps({name: getattr(stats, name) for name in ("steps", "scheduled", "refused", "spilled_out", "operators", "last_refusal")}), file=sys.stderr)

def net_of(width=32, layers=3):
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width)) for _ in range(layers)))
"""

PROGRAMS = {
    # Logging, a schedule of rates, evaluation and saving between steps.
    "plain": """
net = net_of()
optimizer = torch.optim.AdamW(net.parameters())
rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
for epoch in range(2):
    for _ in range(10):
        x = torch.randn(16, 32)
        loss = (net(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        rates.step()
        print(loss.item().hex())
    net.eval()
    with torch.no_grad():
        print(net(x).sum().item().hex())
    net.train()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "saved.pt")
finish(*torch.load("saved.pt")["net"].values())
""",
    # Two optimizers that take turns, one of them more often.
    "gan": """
made, told = net_of(), nn.Sequential(net_of(), nn.Linear(32, 1))
optimizers = [torch.optim.Adam(one.parameters()) for one in (told, made)]
for step in range(14):
    for _ in range(2):
        optimizers[0].zero_grad()
        (told(made(torch.randn(8, 32)).detach()).mean() - told(torch.randn(8, 32)).mean()).backward()
        optimizers[0].step()
    optimizers[1].zero_grad()
    loss = -told(made(torch.randn(8, 32))).mean()
    loss.backward()
    optimizers[1].step()
    print(loss.item().hex())
finish(*made.parameters(), *told.parameters())
""",
    # One optimizer after the other. The first is kept, and the last ones may have the address of one that is gone.
    "phases": """
first = None
for phase in range(4):
    net = net_of()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    first = first or optimizer
    for step in range(40 if phase < 2 else 9):
        loss = net(torch.randn(16, 32)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item().hex())
finish(*net.parameters())
""",
    # Several backward passes a step, and a scaler of gradients.
    "accumulates": """
net = net_of()
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cpu")
for step in range(12):
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.randn(16, 32)).pow(2).mean() / 3
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(loss.item().hex())
finish(*net.parameters())
""",
    # Batches are slices: of a tensor, of one that another step made, and those of a loader of single items.
    "slices": """
net = net_of()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
data = torch.randn(192, 32)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), 32, shuffle=True)
def step(x):
    optimizer.zero_grad()
    loss = (net(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
for epoch in range(2):
    for x in data.split(32):
        step(x)
    for index in torch.randperm(192).split(32):
        step(data[index])
    for (x,) in loader:
        step(x)
finish(*net.parameters())
""",
    # A loader calls something else for each item. It takes what the step has made, and draws numbers between those of the model.
    "loader": """
net, last = net_of(), [torch.ones(())]
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, item):
        own = torch.Generator().manual_seed(item)
        parts = [torch.rand(8, generator=own) for _ in range(1 + item % 4)]
        return torch.cat([*parts, torch.zeros(32 - 8 * len(parts))])
def collate(items):
    x = torch.stack(items)
    return x * last[0] + 0.1 * torch.randn(x.shape) + net[0][0].bias[:32]
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for epoch in range(3):
    for n, x in enumerate(torch.utils.data.DataLoader(Items(), 4, shuffle=True, collate_fn=collate)):
        loss = (net(x) - x.detach()).pow(2).mean()
        last[0] = 1 + loss.detach()
        loss.backward()
        if n % 2:
            optimizer.step()
            optimizer.zero_grad()
            print(loss.item().hex())
finish(*net.parameters())
""",
    # More rounds than a window of calls holds.
    "rounds": """
nets = [net_of(8, 1) for _ in range(2)]
optimizers = [torch.optim.SGD(net.parameters(), 0.01) for net in nets]
for step in range(40):
    for net, optimizer in zip(nets, optimizers):
        optimizer.zero_grad()
        loss = net(torch.randn(16, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(loss.item().hex())
finish(*nets[0].parameters(), *nets[1].parameters())
""",
    # No two steps are alike.
    "unlike": """
net = net_of(8, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(20):
    optimizer.zero_grad()
    net(torch.randn(16 + step, 8)).pow(2).mean().backward()
    optimizer.step()
finish(*net.parameters())
""",
    # As before, where the calls are the same ones but for a number that decides what they do.
    "diagonals": """
net = net_of()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(20):
    optimizer.zero_grad()
    net(torch.randn(32, 32).tril(step)).pow(2).mean().backward()
    optimizer.step()
finish(*net.parameters())
""",
    # Steps that were the same before, up to a shape that data decide.
    "masks": """
net = net_of()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(40):
    optimizer.zero_grad()
    x = torch.randn(16 + 4 * (step % 2), 32)
    net(x[torch.arange(len(x)) < 1 + step // 4]).pow(2).mean().backward()
    optimizer.step()
finish(*net.parameters())
""",
    # A buffer that fills, of which any rows are drawn, and a shift by another number each time.
    "replay": """
net, buffer = net_of(), torch.zeros(64, 32)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(24):
    buffer[step] = torch.randn(32)
    x = buffer[torch.randint(0, step + 1, (16,))].roll(step, 1)
    x = x * torch.randint_like(x, 1, 3 + step) + torch.empty(16, 32).random_(step, 2 * step + 3)
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
finish(*net.parameters())
""",
    # Spectra: complex tensors that are conjugate or negated by a flag, and their numbers.
    "spectra": """
weight = nn.Parameter(torch.randn(16, 16, dtype=torch.cfloat) * 0.1)
optimizer = torch.optim.Adam([weight], 0.01)
for step in range(20):
    optimizer.zero_grad()
    x = torch.fft.rfft(torch.randn(8, 30))
    y = torch.fft.irfft(torch.einsum("bi,io->bo", x.conj(), weight.conj()) + x @ weight.mH)
    part = x.clone().conj()
    part[0] = x[1]
    part += weight[0].conj()
    loss = y.pow(2).mean() + x.conj().imag.neg().mean() + part.abs().mean()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), x.conj()[0].tolist()[1], x.mH.imag.numpy(force=True).sum(), x[0, :2].conj())
finish(torch.view_as_real(weight))
""",
    # A profiler asks for the pointers of what operators take, before these have it on the device.
    "profiled": """
net = net_of()
optimizer = torch.optim.AdamW(net.parameters())
def step():
    optimizer.zero_grad()
    net(torch.randn(16, 32)).pow(2).mean().backward()
    optimizer.step()
for _ in range(12):
    step()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
    step()
for _ in range(4):
    step()
for found in sorted((one.key, str(one.input_shapes), one.count) for one in profile.key_averages(group_by_input_shape=True)):
    print(*found)
finish(*net.parameters())
""",
    "closure": """
net = net_of(8, 1)
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
x = torch.randn(16, 8)
def closure():
    optimizer.zero_grad()
    loss = (net(x) - x).pow(2).mean()
    loss.backward()
    return loss
for step in range(8):
    print(optimizer.step(closure).item().hex())
finish(*net.parameters())
""",
    # A step that fails is left out, and another one is not taken.
    "fails": """
net = net_of()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(14):
    x = torch.randn(16, 32 if step != 9 else 31)
    try:
        loss = net(x).pow(2).mean()
    except RuntimeError:
        print("left out")
        continue
    optimizer.zero_grad()
    loss.backward()
    if loss.item() < 1e9 and step != 11:
        optimizer.step()
finish(*net.parameters(), *(p.grad for p in net.parameters()))
""",
    "compiled": """
net = torch.compile(net_of(), backend="aot_eager")
optimizer = torch.optim.AdamW(net.parameters())
for step in range(8):
    loss = net(torch.randn(16, 32)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
finish(*net.parameters())
""",
    # Dynamo does not trace what ends the step, and says nothing of it.
    "compiled_optimizer": """
import warnings
warnings.filterwarnings("error", message="Dynamo does not know")
net = net_of()
optimizer = torch.optim.AdamW(net.parameters())
ends = torch.compile(optimizer.step, backend="eager")
for step in range(12):
    loss = net(torch.randn(16, 32)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    ends()
    print(loss.item().hex())
finish(*net.parameters())
""",
    # Another thread trains than the one that evaluates and ends.
    "thread": """
import threading
net = net_of()
optimizer = torch.optim.AdamW(net.parameters())
def train():
    torch.set_num_threads(1)
    for step in range(12):
        optimizer.zero_grad()
        loss = net(torch.randn(16, 32)).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
for _ in range(2):
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    print(net(torch.randn(4, 32)).sum().item().hex(), net[0][0].weight.detach().numpy().sum().item().hex())
finish(*net.parameters())
""",
    # It makes step programs itself: they are left to it.
    "own": """
import contextlib
scope = contextlib.nullcontext
if os.environ.get("BERTH_BUDGET"):
    import berth
    scope = berth.StepProgram().step
net = net_of()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(8):
    with scope():
        loss = net(torch.randn(16, 32)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item().hex())
finish(*net.parameters())
""",
    # No optimizer of torch's.
    "by_hand": """
weights = [torch.randn(32, 32, requires_grad=True) for _ in range(3)]
for step in range(8):
    x = torch.randn(16, 32)
    for weight in weights:
        x = torch.tanh(x @ weight)
    loss = x.pow(2).mean()
    gradients = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients):
            weight.sub_(gradient)
    print(loss.item().hex())
finish(*weights)
""",
    "exits": """
net = net_of()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(20):
    optimizer.zero_grad()
    net(torch.randn(16, 32)).pow(2).mean().backward()
    optimizer.step()
    if step == 12:
        net(torch.randn(16, 32))
        finish(*net.parameters())
        sys.exit(3)
""",
    # Each parameter's optimizer steps within the backward pass; a library's operators are watched there.
    "steps_in_backward": """
net = net_of()
optimizers = {p: torch.optim.Adam([p]) for p in net.parameters()}
def step(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in net.parameters():
    p.register_post_accumulate_grad_hook(step)
if "berth" in sys.modules:
    torch.ops.berth.watch_backward()
for _ in range(14):
    x = torch.randn(16, 32)
    loss = (net(x) - x).pow(2).mean()
    loss.backward()
    print(loss.item().hex())
finish(*net.parameters())
""",
}
# Batches of two sizes in turn: neither fits the budget, each has two plans.
NOT_MET = """
net = nn.Sequential(nn.Conv1d(4, 32, 5, padding=2), nn.GLU(1), nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 60, 3))
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
for step in range(40):
    batch = 33 + step % 2
    loss = nn.functional.cross_entropy(net(torch.randn(batch, 4, 60)), torch.randint(0, 3, (batch,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ENDS_EARLY = """
net = net_of()
optimizer = torch.optim.SGD(net.parameters(), 0.01)
for step in range(4):
    optimizer.zero_grad()
    net(torch.randn(4 if step < 2 else 5, 32)).sum().backward()
    optimizer.step()
"""
# All of them without berth, in one process: what each printed, and its exit code.
ALONE = """
import contextlib, io, json
found = {}
for name, text in json.load(open("programs.json")).items():
    printed, code = io.StringIO(), 0
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(text, name, "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            code = end.code
    found[name] = [printed.getvalue(), code]
print(json.dumps(found))
"""
# The least steps that run by a schedule.
SCHEDULED = {
    "plain": 10,
    "steps_in_backward": 6,
    "gan": 6,
    "phases": 40,
    "accumulates": 6,
    "slices": 18,
    "loader": 20,
    "rounds": 34,
    "unlike": 0,
    "diagonals": 0,
    "masks": 0,
    "replay": 18,
    "spectra": 14,
    "profiled": 8,
    "closure": 0,
    "fails": 5,
    "compiled": 0,
    "compiled_optimizer": 7,
    "thread": 6,
    "own": None,
    "by_hand": None,
    "exits": 6,
}

# Data in parallel, in five ways; in one a rank leaves its program, which the other does not.
RANKS = """
import contextlib
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
rank, parallel = dist.get_rank(), nn.parallel.DistributedDataParallel

class Net(nn.Module):
    def __init__(self, unused):
        super().__init__()
        self.body, self.norm, self.unused = net_of(), nn.BatchNorm1d(32), nn.Linear(4, 4) if unused else None
    def forward(self, x):
        return self.norm(self.body(x))

told, scheduled, barriers = [], [], ""
loop = sys.modules.get("berth._loop")
for variant in ("plain", "views", "unused", "sharded", "leaves"):
    torch.manual_seed(0)
    net = Net(variant == "unused")
    if variant == "sharded":
        for part in (*(one for one in net.body if list(one.parameters())), net):
            fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
    else:
        net = parallel(net, gradient_as_bucket_view=variant == "views", find_unused_parameters=variant == "unused")
    optimizer = torch.optim.AdamW(net.parameters())
    torch.manual_seed(rank)
    for step in range(9):
        for last in (False, True) if variant == "views" else (True,):
            with contextlib.nullcontext() if last else net.no_sync():
                loss = net(torch.randn(16, 32)).pow(2).mean()
                if variant == "leaves" and step > 5 and rank == 0:
                    loss = loss * loss.detach()
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.append(loss.item().hex())
        if loop is not None and loop.stats() is not None and loop.stats().planning:
            time.sleep(1)  # the loop has waited for plans as long as it may
    told.append(hashlib.sha256(b"".join((p.to_local() if variant == "sharded" else p).detach().clone().numpy().tobytes() for p in net.parameters())).hexdigest())
    if loop is not None:
        scheduled.append(loop.stats().scheduled)
        barriers = loop.stats().barrier_operators
os.write(1, f"{rank} {' '.join(told)}\\n".encode())  # both ranks write there
os.write(2, f"stats {json.dumps([scheduled, barriers])}\\n".encode())
dist.destroy_process_group()
"""


class Loops(ProgramCase):
    def go(self, *options, text=None, launcher=(), **variables):
        if text is not None:
            self.write("train.py", HEAD + text)
        berth = [sys.executable, "-m", "berth", "run", "--device", "cpu", *options] if options else [sys.executable]
        if launcher and not options:
            berth = []
        return run([*berth, *launcher, "train.py"], folder=self.folder, standin=(), **variables)

    def test_programs_end_as_without_berth(self):
        """Under `berth run`, and where they install berth themselves, which takes a fifth of the time."""
        self.write("programs.json", json.dumps({name: HEAD + text for name, text in PROGRAMS.items()}))
        self.write("all.py", ALONE)
        alone = json.loads(run([sys.executable, "all.py"], folder=self.folder, standin=()).stdout)
        for name, text in PROGRAMS.items():
            with self.subTest(name):
                if name in ("plain", "fails", "exits", "loader"):
                    under = self.go("--budget", "60%", text=text)
                else:
                    self.write("installs.py", "import berth\nberth.install('cpu')\n" + HEAD + text)
                    under = run([sys.executable, "installs.py"], folder=self.folder, standin=(), BERTH_BUDGET="60%")
                self.assertEqual([under.stdout, under.returncode], alone[name], under.stderr[-2000:])
                self.assertNotIn("Traceback", under.stderr)
                self.assertEqual("loop-unmarked" in under.stderr, name == "by_hand", under.stderr)
                self.assertEqual("[loop-unscheduled]" in under.stderr, name == "closure", under.stderr)
                if SCHEDULED[name] is None:
                    continue
                stats = json.loads([line for line in under.stderr.splitlines() if line.startswith("{")][-1])
                self.assertGreaterEqual(stats["scheduled"], SCHEDULED[name], under.stderr)
                if name == "rounds":
                    self.assertLessEqual(stats["steps"], 41)
                if name == "phases":
                    self.assertEqual(stats["steps"], 98)
                self.assertEqual(
                    "no two of 16 were the same" in under.stderr, name in ("unlike", "diagonals"), under.stderr
                )
                self.assertEqual("differed from all that berth knows" in under.stderr, name == "masks", under.stderr)
                self.assertNotIn("RecordFunction", under.stderr)
                self.assertNotIn("callback", under.stderr)

    def test_fits(self):
        """The program holds 1.2 MiB between steps."""
        text = PROGRAMS["plain"].replace("net_of()", "net_of(64, 4)").replace("randn(16, 32)", "randn(512, 64)")
        alone = self.go(text=text)
        under = self.go("--fit", "--memory-limit", "2500KiB", BERTH_STATS="stats.json")
        self.assertEqual(under.stdout, alone.stdout, under.stderr[-2000:])
        stats = json.loads([line for line in under.stderr.splitlines() if line.startswith("{")][-1])
        self.assertGreater(stats["spilled_out"], 0)
        self.assertGreater(stats["scheduled"], 10)
        self.assertEqual(under.stderr.count("did not fit the device"), 4, under.stderr)
        self.assertLessEqual(json.loads((self.folder / "stats.json").read_text())["reserved_peak"], 2500 << 10)
        unfit = self.go("--memory-limit", "2500KiB")
        self.assertNotEqual(unfit.returncode, 0)
        self.assertIn("OutOfMemoryError", unfit.stderr)

    def test_a_program_that_fails_before_an_optimizer_is_not_told_of_one(self):
        under = self.go("--budget", "60%", text="torch.ones(3, requires_grad=True).sum().backward()\n1 / 0\n")
        self.assertIn("ZeroDivisionError", under.stderr)
        self.assertNotIn("loop-unmarked", under.stderr)

    def test_a_loop_that_ends_once_its_steps_are_known_is_told_so(self):
        ended = self.go("--budget", "60%", text=ENDS_EARLY)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("none came again once it was known [loop-unscheduled]", ended.stderr)

    def test_a_budget_that_is_not_met_is_told_once(self):
        ended = self.go("--budget", "60%", text=NOT_MET)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stderr.count("[step-budget]"), 1, ended.stderr)

    def test_a_program_that_installs_berth_reads_the_budget(self):
        alone = self.go(text=PROGRAMS["plain"])
        self.write("installs.py", "import berth\nberth.install('cpu')\n" + HEAD + PROGRAMS["plain"])
        under = run([sys.executable, "installs.py"], folder=self.folder, standin=(), BERTH_BUDGET="60%")
        self.assertEqual(under.stdout, alone.stdout, under.stderr[-2000:])
        stats = json.loads([line for line in under.stderr.splitlines() if line.startswith("{")][-1])
        self.assertGreaterEqual(stats["scheduled"], 10)

    def test_the_environment_may_have_a_time_budget_alone(self):
        self.write("train.py", HEAD + PROGRAMS["plain"])
        for under in (
            run(
                [sys.executable, "-m", "berth", "run", "--device", "cpu", "train.py"],
                folder=self.folder,
                standin=(),
                BERTH_TIME_BUDGET="0.2",
            ),
            run(
                [sys.executable, "-c", "import berth; berth.install('cpu'); import runpy; runpy.run_path('train.py')"],
                folder=self.folder,
                standin=(),
                BERTH_TIME_BUDGET="0.2",
            ),
        ):
            stats = json.loads([line for line in under.stderr.splitlines() if line.startswith("{")][-1])
            self.assertGreaterEqual(stats["scheduled"], 10)

    def test_an_optimizer_for_each_parameter(self):
        """They step in the backward pass, each once in a step. The first calls may be steps of their own."""
        text = """
net = nn.Sequential(*(layer for _ in range(30) for layer in (nn.Linear(32, 32), nn.GELU())))
each = {p: torch.optim.AdamW([p], 1e-3) for p in net.parameters()}
def update(p):
    each[p].step()
    each[p].zero_grad()
for p in net.parameters():
    p.register_post_accumulate_grad_hook(update)
for step in range(30):
    loss = net(torch.randn(256, 32)).square().mean()
    loss.backward()
finish(loss, *net.parameters())
"""
        alone, under = self.go(text=text), self.go("--budget", "60%", text=text)
        self.assertEqual(under.stdout, alone.stdout, under.stderr[-2000:])
        stats = json.loads([line for line in under.stderr.splitlines() if line.startswith("{")][-1])
        self.assertLessEqual(stats["steps"], 60 + 30)
        self.assertGreater(stats["operators"], 60 * 8, "the last program is no whole step")

    def test_inductor_is_watched_when_it_comes(self):
        """Its kernels take pointers. A program imports it with its first compiled call, long after torch."""
        self.write(
            "train.py",
            HEAD
            + "import torch._inductor.output_code as code; print(hasattr(code.CompiledFxGraph.__call__, '__wrapped__'))",
        )
        under = self.go("--budget", "60%")
        self.assertEqual(under.stdout.strip(), "True", under.stderr[-2000:])

    def test_ranks(self):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29731"]
        alone = self.go(text=RANKS, launcher=launcher)
        self.assertEqual(alone.returncode, 0, alone.stderr[:2000])
        under = self.go("--budget", "60%", launcher=["torchrun", *launcher[3:]], PATH=f"{sys.prefix}/bin:/usr/bin:/bin")
        self.assertEqual(sorted(under.stdout.split("\n")), sorted(alone.stdout.split("\n")), under.stderr[-2000:])
        stats = [json.loads(line[6:]) for line in under.stderr.splitlines() if line.startswith("stats ")]
        self.assertEqual(len(stats), 2, under.stderr[-2000:])
        for scheduled, barriers in stats:
            each = [after - before for before, after in zip([0, *scheduled], scheduled)]
            self.assertTrue(all(one >= 3 for one in each), each)
            self.assertIn("c10d::allreduce_", barriers)

    def test_interrupted(self):
        self.write(
            "train.py",
            HEAD
            + PROGRAMS["plain"]
            .replace("range(10)", "range(10**6)")
            .replace("print(loss.item().hex())", "print(1, flush=True)"),
        )
        process = subprocess.Popen(
            [STANDIN, "--", sys.executable, "-m", "berth", "run", "--device", "cpu", "--budget", "60%", "train.py"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        for _ in range(30):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT, errors[-2000:])
        self.assertIn("KeyboardInterrupt", errors)

    def test_wrong_budgets_are_told(self):
        self.write("train.py", "")
        for options, text in (
            (("--budget", "much"), "--budget is 'much'"),
            (("--budget", "1GiB", "--host-memory", "x"), "--host-memory is 'x'"),
            (("--time-budget", "nan"), "--time-budget is 'nan'"),
        ):
            result = self.go(*options)
            self.assertEqual(result.returncode, 2)
            self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
