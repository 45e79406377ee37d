"""Programs whose steps are larger than the device, and whose tensors others read beside the step: threads, compilers, other ranks."""

from spill_programs import PROGRAM

# What is asked for a storage without its bytes: how many they are, and which storage it is. And tensors with others inside.
INSIDE = (
    PROGRAM
    + """
layers = nn.ModuleList(nn.Linear(96, 96) for _ in range(10))
optimizer = torch.optim.SGD(layers.parameters(), 0.1)
program = program_of() if host else None
found = []
def jagged():
    return torch.nested.nested_tensor([torch.randn(30, 96) for _ in range(40)], layout=torch.jagged)
for step in range(4):
    counted, first = 0, None
    with program.step() if program else contextlib.nullcontext():
        x = jagged() if variant == "jagged" else torch.randn(1200, 96)
        for layer in layers:
            x = x + nn.functional.gelu(layer(x))
            if variant == "sizes":
                counted += x.untyped_storage().nbytes() + len(x.untyped_storage()) + x.storage().size()
                first = first or x.untyped_storage()
                counted += first._cdata == x.untyped_storage()._cdata
        loss = (x.values() if x.is_nested else x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append((loss.item().hex(), counted, first[5] if first is not None else 0))
a = torch.nested.nested_tensor([torch.ones(30, 64) for _ in range(40)])
b = a.transpose(1, 2)
q = torch.quantize_per_channel(torch.ones(2000, 64), torch.full((2000,), 0.05), torch.zeros(2000), 0, torch.qint8)
large = [torch.ones(1 << 18) for _ in range(9)]
found += [sum(one.sum().item() for one in large), torch.matmul(a, b).unbind()[7].sum().item(), a.is_contiguous(), q.dequantize().sum().item()]
def press():
    return sum(one.sum().item() for one in [torch.ones(1 << 18) for _ in range(9)])
t, u = torch.ones(1 << 18), torch.full((1 << 18,), 2.0)
found.append(press())
t.untyped_storage().copy_(u.untyped_storage())
found += [press(), t.sum().item()]
u.untyped_storage().fill_(0)
found += [press(), u.sum().item(), t.untyped_storage()[7], press()]
said(found=found, spilled=program.stats().spilled_out if program else 0)
"""
)

# Threads of the program's own read, write and make tensors of the step while others leave. What they find is told where the program waits for them.
THREADS = (
    PROGRAM
    + """
import queue, threading
from concurrent.futures import ThreadPoolExecutor
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
average = [p.detach().clone() for p in net.parameters()]
program = program_of(plan_wait=0.1) if host else None
pool, found, done = ThreadPoolExecutor(2), [], threading.Event()
def follow():
    with torch.no_grad():
        for kept, p in zip(average, net.parameters()):
            kept.lerp_(p, 0.1)
def look():
    return [p.detach().sum().item().hex() for p in net.parameters()][:3], net.out.weight.detach().numpy()[0, :2].tolist(), net.out.bias.detach().tolist()[:2]
def stir():
    # Nobody waits for it: it takes all locks that there are, and holds Python's while tensors die.
    while not done.is_set():
        some = [p.detach() + 1 for p in net.parameters()]
        views = [one.untyped_storage() for one in some]
        del some
        views.clear()
stirring = threading.Thread(target=stir)
stirring.start()
for step in range(6):
    ids = pool.submit(lambda: torch.randint(200, (8, 64))).result()
    with program.step() if program else contextlib.nullcontext():
        optimizer.zero_grad()
        x = net.embed(ids)
        for block in net.blocks:
            x = block(x)
        made = pool.submit(lambda: x.detach() * 2)
        found.append(made.result().sum().item().hex())
        loss = nn.functional.cross_entropy(net.out(x).view(-1, 200), ids.view(-1))
        loss.backward()
        optimizer.step()
        pool.submit(follow).result()
    found.append(pool.submit(look).result())
done.set()
stirring.join()
said(found=found, state=digest(state_of(net, optimizer)), average=digest(average), spilled=program.stats().spilled_out if program else 0)
"""
)

# torch.compile describes what it traces: weights, buffers and the first batch may leave as any.
COMPILED = (
    PROGRAM
    + """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(128, 512), nn.Linear(512, 128)
        self.register_buffer("mean", torch.zeros(128))
    def forward(self, x):
        self.mean.lerp_(x.detach().mean(0), 0.05)
        return x + nn.functional.dropout(self.narrow(nn.functional.gelu(self.wide(x - self.mean))), 0.1, self.training)
net = nn.Sequential(*[Part() for _ in range(4)])
for part in net:
    part.compile(backend="aot_eager")
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
program = program_of() if host else None
losses = []
for step in range(6):
    with program.step() if program else contextlib.nullcontext():
        x = torch.randn(512, 128)
        loss = (net(x) - x.sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
said(losses=losses, state=digest([*state_of(net, optimizer), *net.buffers()]), spilled=program.stats().spilled_out if program else 0)
"""
)

# DistributedDataParallel compares storages that may be on the host, and its backend reads lists of lists by pointers.
RANKS = (
    PROGRAM
    + """
import tempfile
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
program = program_of(plan_wait=0.1) if host else None
net = Net()
net.unused = nn.Linear(3, 3)
net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True, find_unused_parameters=True)
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
losses = []
for step in range(6):
    ids = torch.randint(200, (8, 64))
    with program.step() if program else contextlib.nullcontext():
        optimizer.zero_grad()
        for last in (False, True):
            with contextlib.nullcontext() if last else net.no_sync():
                loss = nn.functional.cross_entropy(net(ids).view(-1, 200), ids.view(-1))
                loss.backward()
        optimizer.step()
    parts = [torch.empty(8, 64, dtype=torch.long)]
    big = [torch.randn(1 << 18) for _ in range(12)]
    dist.all_gather(parts, ids)
    losses.append((loss.item().hex(), digest(parts), sum(one.sum().item() for one in big)))
    del big
said(losses=losses, state=digest(state_of(net, optimizer)), spilled=program.stats().spilled_out if program else 0)
"""
)

# TorchScript fuses operators into kernels that read by pointers: forward, and in autograd's threads.
SCRIPTED = (
    PROGRAM
    + """
class Cell(nn.Module):
    def __init__(self, n: int):
        super().__init__()
        self.i, self.h = nn.Linear(n, 4 * n), nn.Linear(n, 4 * n)
    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        i, f, g, o = (self.i(x) + self.h(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

program = program_of() if host or variant == "scheduled" else None
cell, head = torch.jit.script(Cell(64).to(device)), nn.Linear(64, 8).to(device)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], 1e-3)
losses = []
for step in range(8):
    x, hidden = torch.randn(8, 256, 64, device=device), []
    with program.step() if program else contextlib.nullcontext():
        h = c = torch.zeros(256, 64, device=device)
        for one in x:
            h, c = cell(one, h, c)
            hidden.append(h)
        loss = nn.functional.cross_entropy(head(torch.stack(hidden)).flatten(0, 1), torch.randint(8, (2048,), device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item().hex())
said(losses=losses, state=digest([*cell.parameters(), *head.parameters()]), spilled=program.stats().spilled_out if program else 0)
"""
)
