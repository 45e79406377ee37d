"""Programs whose steps are larger than the device. Each prints what it leaves as a line of JSON."""

from step_case import BLOCK
from support import PREAMBLE

# A program trains on the CPU or on CUDA and prints what it leaves; the arguments are a device, a limit in bytes, host memory, and a variant.
PROGRAM = (
    PREAMBLE
    + """
import contextlib, hashlib, io, os, time
import berth
from torch import nn

device, limit, host, variant = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
own = variant == "own"  # PyTorch's own allocator
if own:
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
elif limit or device == "cuda":
    berth.install(device, **({"memory_limit": limit} if limit else {}))

"""
    + BLOCK
    + """
class Net(nn.Module):
    def __init__(self, width=96, layers=3):
        super().__init__()
        self.embed, self.out = nn.Embedding(200, width), nn.Linear(width, 200)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(x)

def digest(tensors):
    return [hashlib.sha256(t.detach().cpu().clone().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest() for t in tensors]

def program_of(**options):
    if "BUDGET" in os.environ:
        options = {**options, "memory_budget": os.environ["BUDGET"], "copy_rate": 10**10, "plan_wait": 1e9}
    if "TIME" in os.environ:
        options = {**options, "time_budget": float(os.environ["TIME"]), "copy_rate": 10**10, "plan_wait": 1e9}
    return berth.StepProgram(host_memory=host, **{"plan_wait": 1e9, **options})

def state_of(net, optimizer):
    return [*net.parameters(), *(p.grad for p in net.parameters() if p.grad is not None), *(v for p in net.parameters() for v in optimizer.state[p].values())]

def said(**what):
    live = berth.stats(device) if (limit or device == "cuda") and not own else None
    print(json.dumps({**what, "peak": torch.cuda.max_memory_reserved() if own else live.reserved_peak if live else 0}))
"""
)

TRAINS = (
    PROGRAM
    + """
rows = 8 if device == "cpu" else 64
net = Net().to(device)
optimizer = torch.optim.AdamW(net.parameters(), foreach=variant == "lists")
program = program_of() if host else None
losses = []
for step in range(6):
    ids = torch.randint(200, (rows, 64), device=device)
    with program.step() if program else contextlib.nullcontext():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(ids).view(-1, 200), ids.view(-1))
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
stats = program.stats() if program else None
said(losses=losses, state=digest(state_of(net, optimizer)), generator=digest([torch.get_rng_state()]),
     spilled=stats.spilled_out if stats else 0, back=stats.spilled_in if stats else 0, scheduled=stats.scheduled if stats else 0)
"""
)

# The schedule itself keeps state on the host: once it is there nothing leaves that it does not name.
PLANNED = (
    PROGRAM
    + """
rows, width = (8, 96) if device == "cpu" else (8, 384)
net = Net(width).to(device)
optimizer = torch.optim.AdamW(net.parameters(), foreach=variant == "lists")
program = program_of()
losses, spilled, missed = [], [], []
for step in range(int(os.environ.get("STEPS", 10))):
    ids = torch.randint(200, (rows, 64), device=device)
    with program.step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(ids).view(-1, 200), ids.view(-1))
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
    spilled.append(program.stats().spilled_out)
    if limit:
        missed.append(berth.stats(device).misses_busy + berth.stats(device).misses_size)
stats = program.stats()
there = berth.stats(device).live if limit else 0  # between steps
said(missed=missed, losses=losses, state=digest(state_of(net, optimizer)), generator=digest([torch.get_rng_state()]), spilled=spilled, there=there,
     offloaded=stats.offloaded_bytes, host_peak=stats.host_peak, predicted=stats.predicted_peak, recorded=stats.recorded_peak, scheduled=stats.scheduled, refined=stats.refined, not_met=stats.budget_not_met)
"""
)

# The same for an unchanged loop, in what the device has.
LOOP = (
    PROGRAM
    + """
import berth._loop
net = Net(384).to(device)
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
spilled, left = [], 20
while left and len(spilled) < 60:
    ids = torch.randint(200, (8, 64), device=device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(ids).view(-1, 200), ids.view(-1))
    loss.backward()
    optimizer.step()
    stats = berth._loop.stats()
    spilled.append(stats.spilled_out)
    if stats.planning:
        time.sleep(2)
    elif stats.scheduled:
        left -= 1
said(spilled=spilled, predicted=stats.predicted_peak, offloaded=stats.offloaded_bytes, not_met=stats.budget_not_met)
"""
)

# What the body does with bytes behind torch's operators, and what lies between steps.
READS = (
    PROGRAM
    + """
program = program_of(plan_wait=0.1) if host else None

def run(variant):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    found = []
    views = [p.detach().view(-1)[:7] for p in net.parameters()]  # made before the first step
    for step in range(5):
        ids = torch.randint(200, (8, 64))
        with program.step() if program else contextlib.nullcontext():
            optimizer.zero_grad()
            x = net.embed(ids)
            kept = []
            for block in net.blocks:
                x = block(x)
                kept.append(x)
            loss = nn.functional.cross_entropy(net.out(x).view(-1, 200), ids.view(-1))
            if variant == "numpy":
                found.append(float(kept[0].detach().numpy().sum()).hex())
            if variant == "tolist":
                found.append(kept[1].detach()[0, 0].tolist())
            if variant == "pointer":
                import ctypes
                found.append((ctypes.c_float * 4).from_address(kept[2].data_ptr())[:])
            loss.backward()
            optimizer.step()
        found.append([v.sum().item().hex() for v in views])
        if variant == "save":
            file = io.BytesIO()
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            saved = torch.load(file)
            found.append(digest([*saved["net"].values(), *(v for one in saved["optimizer"]["state"].values() for v in one.values())]))
            del saved  # nobody allocated it by an operator: it would stay
        if variant == "evaluate":
            net.eval()
            with torch.no_grad():
                found.append(net(ids).sum().item().hex())
            net.train()
        if variant == "grows":
            net.blocks.append(Block(96))
            optimizer.add_param_group({"params": list(net.blocks[-1].parameters())})
        if variant == "fork":
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writer, digest(net.parameters())[0].encode())
                os._exit(0)
            os.waitpid(child, 0)
            found.append(os.read(reader, 64).decode())
    return found, digest(state_of(net, optimizer))

found = {variant: run(variant) for variant in ("numpy", "tolist", "pointer", "save", "evaluate", "grows", "fork")}
said(found=found, spilled=program.stats().spilled_out if program else 0)
"""
)

# An exception in the body at each of its operators, in turn; then training goes on.
FAILS = (
    PROGRAM
    + """
import signal
net = Net(layers=1)
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
program = program_of(plan_wait=0.1) if host else None

class Stop(Exception):
    pass
stop, calls = 0, 0
def count(*_):
    global calls
    calls += 1
    if calls == stop and variant == "signal":
        signal.raise_signal(signal.SIGINT)
    elif calls == stop:
        raise Stop
for module in net.modules():
    module.register_forward_hook(count)
    if not any(True for _ in module.children()):
        module.register_full_backward_hook(count)
found = []
for step in range(24):
    ids = torch.randint(200, (8, 64))
    stop, calls = step if step % 2 else 0, 0
    try:
        with program.step() if program else contextlib.nullcontext():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(ids).view(-1, 200), ids.view(-1))
            loss.backward()
            optimizer.step()
        found.append(loss.item().hex())
    except (Stop, KeyboardInterrupt):
        found.append(digest(p.grad for p in net.parameters() if p.grad is not None))
said(found=found, state=digest(state_of(net, optimizer)), spilled=program.stats().spilled_out if program else 0)
"""
)

# Operators on sparse tensors, lists with a tensor of numbers, writes by a thread of the program's own, a profiler that begins within a step.
HARD = (
    PROGRAM
    + """
import threading
program = program_of(plan_wait=0.1) if host else None
def step():
    return program.step() if program else contextlib.nullcontext()
def use(mebibytes):
    return sum(one.sum().item() for one in [torch.ones(1 << 18) for _ in range(mebibytes)])

found = []
table = nn.Embedding(2000, 256, sparse=True)
optimizer = torch.optim.SparseAdam(table.parameters())
for _ in range(3):
    with step():
        optimizer.zero_grad()
        table(torch.randperm(2000)[:1000]).pow(2).sum().backward()
        use(8)
        table.weight.grad.mul_(2.0)
        use(8)
        found += digest([table.weight.grad.coalesce().values()])
        optimizer.step()
found += digest(table.parameters())
lists = [[torch.randn(64, 1024 + n) for n in range(12)] for _ in range(3)]
with step():
    torch._foreach_addcdiv_(*lists, torch.arange(1.0, 13.0))
found += digest(lists[0])
many = [torch.rand(512, 512) for _ in range(16)]
for _ in range(3):
    with step():  # the first results leave before the last ones are there
        roots = torch._foreach_sqrt(many)
        found += digest(roots)
    del roots
del many
net, kept = nn.Linear(512, 512), [torch.zeros(512, 512) for _ in range(8)]
def write():
    with torch.no_grad():
        kept[-1].add_(1)
for _ in range(5):
    with step():
        net(torch.randn(8, 512)).sum().backward()
        [one.sum().item() for one in kept]
    kept[-1].sum().item()  # there again
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    use(10)
    found += digest(kept)
for n in range(5):
    with step():
        loss = net(torch.randn(8, 512)).sum()
        if n == 3:
            with torch.profiler.profile(profile_memory=True):
                loss = loss + net(torch.randn(8, 512)).sum() + use(10)
        loss.backward()
    found += digest(net.parameters()) + digest(p.grad for p in net.parameters())
import torch.autograd.forward_ad as forward_ad
for _ in range(2):  # tensors of zeros without memory, which kernels of their own take
    with step(), forward_ad.dual_level():
        y = net(forward_ad.make_dual(torch.randn(512, 512), torch.randn(512, 512)))
        use(11)
        tangent = forward_ad.unpack_dual((net(y) * y).mean()).tangent
        use(11)
        tangent.backward()
    found += digest([tangent]) + digest(p.grad for p in net.parameters())
    with step():  # a subclass of Python's
        net.zero_grad()
        rows = torch.nested.nested_tensor([torch.randn(200, 512), torch.randn(300, 512)], layout=torch.jagged)
        use(11)
        y = net(rows)
        use(11)
        y.values().square().mean().backward()
    found += digest(p.grad for p in net.parameters())
said(found=found, spilled=program.stats().spilled_out if program else 0)
"""
)

# A kernel that calls operators inside, with less room each time, until there is none: it has the addresses of what these made.
NESTED = (
    PROGRAM
    + """
program = program_of()
net, x = nn.LSTM(64, 128, 2), torch.randn(12, 4, 64)
right = digest([net(x)[0]])
held, ends = [], []
while len(held) < 60:
    held.append(torch.ones(1 << 14))
    held[-1].numpy()
    try:
        ends.append(digest([net(x)[0]]) == right)
    except torch.OutOfMemoryError:
        ends.append("no room")
said(ends=ends, spilled=program.stats().spilled_out)
"""
)

# All activations of a recurrent network on packed sequences are made inside of one operator.
PACKED = (
    PROGRAM
    + """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
program = program_of() if host else None
losses, state = [], []
for kind in (nn.RNN, nn.GRU, nn.LSTM):
    net = kind(64, 128, 2, batch_first=True, dropout=0.1, bidirectional=True)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    for step in range(3):
        x, lengths = torch.randn(32, 40, 64), torch.randint(10, 41, (32,))
        with program.step() if program else contextlib.nullcontext():
            optimizer.zero_grad()
            y, _ = pad_packed_sequence(net(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[0], batch_first=True)
            loss = y.square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item().hex())
    state += digest(state_of(net, optimizer))
said(losses=losses, state=state, spilled=program.stats().spilled_out if program else 0)
"""
)

# Threads whose operators fit one by one, and not together: with results only, with memory inside, with writes, with draws.
CROWD = (
    PROGRAM
    + """
import threading
program = program_of() if host else None
found, errors = {}, []
def work(name):
    generator = torch.Generator().manual_seed(name)
    a, b = (torch.randn(512, 512, generator=generator) for _ in range(2))
    try:
        for turn in range(30):
            c = torch.where(a > 0, a, b)
            b = torch.addcmul(b, c, a, value=0.1).tanh()
            a = nn.functional.gelu(c @ b * 0.01).sort(1).values
            a.add_(b.t()).cumsum_(1)
            a = nn.functional.layer_norm(a, (512,)) + torch.rand(512, 512, generator=generator)
        found[name] = a, b
    except Exception as error:
        errors.append(str(error)[:300])
threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
begun = time.time()
for one in threads:
    one.start()
for one in threads:
    one.join()
# Not in the threads: what NumPy has stays, and would be none of the operators'.
said(found=[digest(found[name]) for name in sorted(found)], errors=errors, seconds=time.time() - begun, spilled=program.stats().spilled_out if program else 0)
"""
)

# A checkpoint that chooses by operator runs operators under a mode in Python: barriers, of which what one made may be on the host at the next one's end.
CHOSEN = (
    PROGRAM
    + """
import functools
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
def choose(context, op, *_, **__):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE
contexts = functools.partial(create_selective_checkpoint_contexts, choose)
net = nn.Sequential(*[part for _ in range(3) for part in (nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.1))])
optimizer = torch.optim.AdamW(net.parameters())
program = program_of() if host else None
losses = []
for step in range(6):
    with program.step() if program else contextlib.nullcontext():
        x = torch.randn(2048, 128, requires_grad=True)
        loss = checkpoint(net, x, use_reentrant=False, context_fn=contexts).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append((loss.item().hex(), digest([x.grad])))
said(losses=losses, state=digest(state_of(net, optimizer)), spilled=program.stats().spilled_out if program else 0)
"""
)

# Of twelve tensors of 1 MiB, each read once a step in turn, eight fit; a tensor that the step makes lives over all reads.
IN_TURN = (
    PROGRAM
    + """
program = program_of(engine="eager")
tensors = [torch.full((1 << 18,), float(n)) for n in range(12)]
back, last = [], 0
for step in range(5):
    with program.step():
        made = tensors[0] + 1
        assert [int(t.max()) for t in tensors] == list(range(12))
        assert int(made.min()) == 1
        del made
    now = program.stats().spilled_in
    back.append((now - last) >> 20)
    last = now
said(back=back)
"""
)

# The second program's step needs next to nothing.
SECOND = (
    PROGRAM
    + """
first = program_of(engine="eager")
tensors = [torch.full((1 << 18,), float(n)) for n in range(12)]
with first.step():
    assert [int(t.max()) for t in tensors] == list(range(12))
second = program_of(engine="eager")
print("THE SECOND", file=sys.stderr, flush=True)
with second.step():
    torch.ones(4).sum()
said()
"""
)

# Operators of the program's own use tensors that are no argument of theirs, and have left for the host: in steps that are refused, on other threads,
# where they are declared pure, and where a schedule runs them.
CLOSURES = (
    PROGRAM
    + """
import threading
counted, table = torch.zeros(64, 64), torch.arange(4096.0).view(64, 64)
@torch.library.custom_op("spill_test::count", mutates_args=())
def count(x: torch.Tensor) -> torch.Tensor:
    counted.add_(1)
    return x + table[0, 1]
@torch.library.custom_op("spill_test::look_up", mutates_args=())
def look_up(x: torch.Tensor) -> torch.Tensor:
    return x * table[1]
look_up.register_fake(torch.empty_like)
berth.pure("spill_test::look_up")
program = program_of(plan_wait=1e9) if host else None
def squeeze():
    assert sum(float(one[0]) for one in [torch.ones(1 << 14) for _ in range(20)]) == 20
def work():
    if variant == "pure":
        return look_up(torch.ones(64))
    return count(torch.ones(64))
def call():
    if variant != "thread":
        return work()
    made = []
    thread = threading.Thread(target=lambda: made.append(work()))
    thread.start()
    thread.join()
    return made[0]
found = []
for step in range(7):
    try:
        with program.step() if program else contextlib.nullcontext():
            squeeze()
            assert counted.sum() >= 0 and table.sum() > 0
            if variant == "refused":
                torch.nested.nested_tensor([torch.ones(8)])
            for _ in range(2):
                made = call()
                squeeze()
                found.append((digest([made]), counted[0, 0].item()))
                squeeze()
            if variant != "pure":
                raise KeyError  # such a step is recorded anew each time
    except KeyError:
        pass
if variant == "pure" and program:
    assert program.stats().scheduled > 3, program.stats()
said(found=found, spilled=program.stats().spilled_out if program else 0)
"""
)

# Six tensors lie apart, on all pages that there are, and one operator takes them all: 15 MiB with its result.
APART = (
    PROGRAM
    + """
program = program_of(engine="eager")
parts, between = [], []
with program.step():
    for n in range(6):
        parts.append(torch.ones(5 << 16, device=device))
        between.append(torch.ones(5 << 16, device=device))
    del between
    whole = torch.cat(parts)
said(whole=whole.numel(), spilled=program.stats().spilled_out)
"""
)

# Operators of two and three tensors that lie apart, whose memory is all but the page of what stays.
LAID_OUT = (
    PROGRAM
    + """
import random
program = program_of(engine="eager")
stay = torch.ones(1 << 15, device=device)
stay.data_ptr()
without_room = []
for seed in range(60):
    draw = random.Random(seed)
    count, all_of_them = draw.choice((2, 3)), draw.uniform(19, 23.5)  # MiB, with the result
    elements = int(all_of_them / (count + 1) * (1 << 18))
    try:
        with program.step():
            taken, others = [], []
            for _ in range(count):
                for others_before in (True, False):
                    if draw.random() < 0.7:
                        others.append(torch.ones(draw.randint(1 << 14, 3 << 18), device=device))
                    if others_before:
                        taken.append(torch.ones(elements, device=device))
                if others and draw.random() < 0.5:
                    others.pop(draw.randrange(len(others)))
            made = torch.ops.aten.silu_backward(*taken) if count == 2 else torch.addcmul(*taken)
    except torch.OutOfMemoryError:
        without_room.append(seed)
    taken = others = made = None
said(without_room=without_room, spilled=program.stats().spilled_out)
"""
)

# Weights of 16 MiB that the first step reads last, if at all.
MADE_BEFORE = (
    PROGRAM
    + """
first, later = nn.Linear(512, 512), nn.ModuleList(nn.Linear(512, 512) for _ in range(16))
gc.freeze()  # hides them from gc.get_objects()
program = program_of()
with program.step():
    x = first(torch.ones(4096, 512))
said(sum=x.sum().item(), spilled=program.stats().spilled_out)
"""
)

# What is copied, pickled, saved and loaded may leave later: ten copies of a model of 2 MiB and its state in room for 14 MiB.
COPIES = (
    PROGRAM
    + """
import copy, pickle
net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
program = program_of() if host else None
kept = []
for step in range(4):
    x = torch.randn(64, 256)
    with program.step() if program else contextlib.nullcontext():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        if step == 3:
            kept.append(pickle.loads(pickle.dumps([p.grad for p in net.parameters()])))
            kept.append(copy.deepcopy([p.grad for p in net.parameters()]))
    for older in (False, True):
        file = io.BytesIO()
        torch.save([*net.parameters(), *state_of(net, optimizer)], file, _use_new_zipfile_serialization=not older)
        file.seek(0)
        kept.append(torch.load(file))
    kept.append(list(copy.deepcopy(net.state_dict()).values()))
    kept.append(list(pickle.loads(pickle.dumps(net)).parameters()))
said(found=[digest(one) for one in kept], spilled=program.stats().spilled_out if program else 0)
"""
)

# Two step programs in turn, each with a model of its own; the second one reads the weights of the first.
TWO = (
    PROGRAM
    + """
nets = [Net(layers=2), Net(layers=2)]
optimizers = [torch.optim.AdamW(net.parameters(), foreach=False) for net in nets]
programs = [program_of(), program_of()] if host else [None, None]
losses = []
for step in range(18):
    which = step % 2
    ids = torch.randint(200, (8, 64))
    with programs[which].step() if host else contextlib.nullcontext():
        optimizers[which].zero_grad()
        loss = nn.functional.cross_entropy(nets[which](ids).view(-1, 200), ids.view(-1))
        if which:
            loss = loss + (nets[1].out.weight - nets[0].out.weight.detach()).pow(2).mean()
        loss.backward()
        optimizers[which].step()
    losses.append(loss.item().hex())
state = [digest(state_of(*one)) for one in zip(nets, optimizers)]
assert not host or all(one.stats().scheduled > 4 for one in programs)
said(losses=losses, state=state, spilled=sum(one.stats().spilled_out for one in programs) if host else 0)
"""
)

# A room that the body fills by its address, as torch.tensor(list) does, leaves before an operator takes it.
FILLED = (
    PROGRAM
    + """
net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.GELU())))
optimizer = torch.optim.AdamW(net.parameters())
program = program_of() if host else None
losses = []
for step in range(9):
    with program.step() if host else contextlib.nullcontext():
        x, y, z = (torch.randn(512, 128) for _ in range(3))
        filled = torch.tensor([step * 0.01] * 128)
        h = net(x + y * 0.1 + z * 0.1 + filled)
        array = h.detach().numpy()
        loss = h.square().mean() + (h.detach() * h).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
said(losses=losses, state=digest(state_of(net, optimizer)), spilled=program.stats().spilled_out if host else 0)
"""
)

# Batches that wait in turn are inputs, which no schedule moves, so its plan is larger than the device: what it copied back early has to leave once more.
WAITING = (
    PROGRAM
    + """
layers = [layer for _ in range(4) for layer in (nn.Linear(128, 128), nn.GELU(), nn.BatchNorm1d(128))]
net = nn.Sequential(*layers)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
program = program_of(memory_budget=int(0.95 * limit), copy_rate=4 * 10**9) if host else None
batches = [torch.randn(2048, 128) for _ in range(3)]
losses = []
for step in range(10):
    with program.step() if program else contextlib.nullcontext():
        loss = nn.functional.huber_loss(net(batches[step % 3]), batches[(step + 1) % 3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
stats = program.stats() if program else None
assert not program or stats.scheduled > 5 and stats.predicted_peak > limit, stats
said(losses=losses, state=digest([*net.parameters(), *net.buffers()]), spilled=stats.spilled_out if program else 0)
"""
)

# No room on the host, or none for one operator: one error, and the program goes on with a smaller batch.
ENDS = (
    PROGRAM
    + """
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
program = program_of(plan_wait=0.1)
errors, sizes = [], (8, 64, 8) if variant == "host" else (8, 2048, 8)
def train(rows):
    ids = torch.randint(200, (rows, 64))
    with program.step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(ids).view(-1, 200), ids.view(-1))
        loss.backward()
        optimizer.step()
    return loss.item()
for rows in sizes:
    before = digest(net.parameters())
    try:
        train(rows)
        errors.append("")
    except torch.OutOfMemoryError as error:
        errors.append(str(error))
        assert digest(net.parameters()) == before
said(errors=errors, spilled=program.stats().spilled_out)
"""
)
