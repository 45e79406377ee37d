"""Programs of several CUDA streams. Each makes the body of a step; what the body returns has been made by copies alone, which move real bytes on the stand-in."""

HEAD = """
import ctypes, contextlib, hashlib, json, os, sys, threading, time
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)
mark_of = getattr(ctypes.CDLL(None), "berth_test_mark", lambda text: None)
STEPS = 14

def mark(text):
    mark_of(text.encode())

def side():
    return torch.cuda.Stream()

def mlp(width=64, layers=3):
    return nn.Sequential(*(one for _ in range(layers) for one in (nn.Linear(width, width), nn.GELU()))).cuda()

def numbered(k, size=1024):
    return torch.full((size,), float(k)).pin_memory()

seen = hashlib.sha256()

def see(tensors):
    for one in tensors or ():
        seen.update(one.detach().cpu().contiguous().numpy().tobytes())

def main(make):
    how = sys.argv[1]
    program = None
    if how != "eager":
        import berth
        berth.install()
        options = {
            "plain": {},
            "budget": {"memory_budget": "70%"},
            "offload": {"memory_budget": "70%", "copy_rate": 10**10},
            "spills": {"memory_budget": "70%", "copy_rate": 10**10, "host_memory": "1GiB"},
        }[how]
        program = berth.StepProgram(**options, plan_wait=1e9)
    body = make()
    outside = getattr(body, "outside", None)
    for k in range(STEPS):
        torch.cuda.synchronize()
        mark(f"step {k}")
        try:
            with program.step() if program is not None else contextlib.nullcontext():
                left = body(k)
        except ZeroDivisionError:
            left = None
        torch.cuda.synchronize()
        mark(f"behind {k}")
        see(left)
        if outside is not None:
            see(outside(k))
    stats = program.stats() if program is not None else None
    print(seen.hexdigest())
    if stats is not None:
        print(json.dumps({name: getattr(stats, name) for name in ("steps", "scheduled", "refused", "diverged", "recomputed", "offloaded_bytes", "barrier_operators", "last_refusal", "last_divergence", "budget_not_met")}), file=sys.stderr)
"""

# By name: the program, and the steps that run by a schedule at least (of 14; the first two are recorded).
PROGRAMS = {
    "two_towers": (
        """
def make():
    a, b, head, two = mlp(), mlp(), nn.Linear(64, 1).cuda(), side()
    optimizer = torch.optim.SGD([*a.parameters(), *b.parameters(), *head.parameters()], 0.1)
    def body(k):
        x = torch.randn(256, 64, device="cuda")
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            right = b(x)
        left = a(x)
        torch.cuda.current_stream().wait_stream(two)
        head(left + right).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return body
""",
        10,
    ),
    "prefetch": (
        """
def make():
    net, copies = mlp(), side()
    optimizer = torch.optim.AdamW(net.parameters())
    source = [torch.randn(256, 64).pin_memory() for _ in range(20)]
    def load(k):
        with torch.cuda.stream(copies):
            return source[k].cuda(non_blocking=True)
    batch = [load(0)]
    def body(k):
        torch.cuda.current_stream().wait_stream(copies)
        x = batch.pop()
        x.record_stream(torch.cuda.current_stream())
        batch.append(load(k + 1))
        kept = x.clone()
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return [kept]
    return body
""",
        10,
    ),
    "prefetch_by_events": (
        """
def make():
    net, copies = mlp(), side()
    ready, used = torch.cuda.Event(), torch.cuda.Event()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    buffer = torch.empty(256, 64, device="cuda")
    used.record()
    def body(k):
        copies.wait_event(used)
        with torch.cuda.stream(copies):
            buffer.copy_(torch.full((256, 64), float(k)).pin_memory(), non_blocking=True)
            ready.record()
        ready.wait()
        kept = buffer.clone()
        net(buffer).square().mean().backward()
        used.record()
        optimizer.step()
        optimizer.zero_grad()
        return [kept]
    return body
""",
        10,
    ),
    "loader_thread": (
        """
import queue
def make():
    net, asked, batches = mlp(), queue.Queue(), queue.Queue()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def load():
        stream = side()
        while True:
            k = asked.get()
            with torch.cuda.stream(stream):
                x = torch.full((256, 64), float(k)).pin_memory().cuda(non_blocking=True)
                ready = torch.cuda.Event()
                ready.record()
            batches.put((x, ready))
    threading.Thread(target=load, daemon=True).start()
    asked.put(0)
    ahead = [batches.get()]
    def body(k):
        asked.put(k + 1)  # beside this step; each step has one batch's work, however fast the thread is
        x, ready = ahead.pop()
        torch.cuda.current_stream().wait_event(ready)
        x.record_stream(torch.cuda.current_stream())
        kept = x.clone()
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ahead.append(batches.get())
        return [kept]
    return body
""",
        10,
    ),
    "saved_tensors_away": (
        """
def make():
    net, copies = mlp(layers=5), side()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def pack(tensor):
        if tensor.numel() < 4096:
            return tensor
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(copies)
        return host
    def unpack(host):
        if host.is_cuda:
            return host
        with torch.cuda.stream(copies):
            back = host.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        back.record_stream(torch.cuda.current_stream())
        return back
    def body(k):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = net(torch.randn(256, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return body
""",
        8,
    ),
    "checkpoints": (
        """
def make():
    parts, two = nn.ModuleList(mlp(layers=1) for _ in range(4)), side()
    optimizer = torch.optim.SGD(parts.parameters(), 0.1)
    def body(k):
        x = torch.randn(256, 64, device="cuda", requires_grad=True)
        for n, part in enumerate(parts):
            if n == 2:
                two.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(two):
                    x = checkpoint(part, x, use_reentrant=False)
                torch.cuda.current_stream().wait_stream(two)
            else:
                x = checkpoint(part, x, use_reentrant=False)
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return body
""",
        10,
    ),
    "nested_contexts": (
        """
def make():
    one, two = side(), side()
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        x = source[k].cuda(non_blocking=True)
        one.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(one):
            y = x.clone()
            two.wait_stream(one)
            with torch.cuda.stream(two):
                z = y.clone()
                one.wait_stream(two)
                with torch.cuda.stream(one):
                    w = z.clone()
            v = w.clone()
        torch.cuda.current_stream().wait_stream(one)
        return [v.clone(), w.clone()]
    return body
""",
        10,
    ),
    "ping_pong": (
        """
def make():
    two = side()
    source = [numbered(k, 4096) for k in range(STEPS)]
    def body(k):
        here, left = torch.cuda.current_stream(), []
        x = source[k].cuda(non_blocking=True)
        for n in range(6):
            two.wait_stream(here)
            with torch.cuda.stream(two):
                y = x.clone()
                y[n * 16 : n * 16 + 16].copy_(x[:16])
            here.wait_stream(two)
            x = y.clone()
            left.append(x[:64].clone())
        return left
    return body
""",
        10,
    ),
    "events_used_again": (
        """
def make():
    one, two, event = side(), side(), torch.cuda.Event()
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        here = torch.cuda.current_stream()
        x = source[k].cuda(non_blocking=True)
        event.record()
        one.wait_event(event)
        y = x.clone()
        event.record()
        two.wait_event(event)
        with torch.cuda.stream(one):
            p = x.clone()
            event.record()
        here.wait_event(event)
        with torch.cuda.stream(two):
            q = y.clone()
            event.record(two)
        here.wait_event(event)
        return [p.clone(), q.clone()]
    return body
""",
        10,
    ),
    "record_stream": (
        """
def make():
    two = side()
    source = [numbered(k, 1 << 16) for k in range(STEPS)]
    def body(k):
        left = []
        for n in range(4):
            x = source[(k + n) % STEPS].cuda(non_blocking=True)
            two.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(two):
                left.append(x.clone())
            x.record_stream(two)
            del x
        torch.cuda.current_stream().wait_stream(two)
        return left
    return body
""",
        10,
    ),
    "begins_on_the_side": (
        """
def make():
    net, two = mlp(), side()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            x = torch.randn(256, 64, device="cuda")
            x = x * 2
        torch.cuda.current_stream().wait_stream(two)
        x.record_stream(torch.cuda.current_stream())
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return body
""",
        10,
    ),
    "warm_up": (
        """
def make():
    net, two = mlp(), side()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            net(torch.randn(256, 64, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.current_stream().wait_stream(two)
    return body
""",
        10,
    ),
    "synchronizes_never": (
        """
def make():
    net, two = mlp(), side()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        torch.cuda.set_sync_debug_mode("error")  # a wait of the host for a stream raises
        try:
            x = torch.randn(256, 64, device="cuda")
            two.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(two): y = x.relu()
            torch.cuda.current_stream().wait_stream(two)
            optimizer.zero_grad()
            loss = net(y).square().mean()
            loss.backward()
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return [loss, *net.parameters()]
    return body
""",
        8,
    ),
    "synchronizes": (
        """
def make():
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        loss = net(torch.randn(256, 64, device="cuda")).square().mean()
        torch.cuda.synchronize()
        loss.backward()
        torch.cuda.current_stream().synchronize()
        optimizer.step()
        optimizer.zero_grad()
    return body
""",
        10,
    ),
}

# FSDP2 on two ranks, for torchrun.
SHARDED = """
import ctypes, json, os, sys, time
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

mark = getattr(ctypes.CDLL(None), "berth_test_mark", lambda text: None)
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("nccl", device_id=device)
net = nn.Sequential(*(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(3))).to(device)
for part in (*net, net):
    fully_shard(part, mesh=init_device_mesh("cuda", (2,)))
optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
loop = sys.modules.get("berth._loop")
for step in range(16):
    torch.cuda.synchronize()
    mark(f"step {step}".encode())
    net(torch.randn(512, 64, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    mark(b"behind")
    if loop is not None and loop.stats() is not None and loop.stats().planning:
        time.sleep(1)  # the loop has waited for plans as long as it may
if loop is not None:
    stats = loop.stats()
    os.write(2, (json.dumps({name: getattr(stats, name) for name in ("scheduled", "recomputed", "offloaded_bytes", "last_refusal")}) + "\\n").encode())
dist.destroy_process_group()
"""
