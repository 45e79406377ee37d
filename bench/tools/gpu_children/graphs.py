"""Trains through captured graphs: by hand, by make_graphed_callables, or by torch.compile; the losses of all steps."""

import os
import struct

import child

parser = child.parser(__doc__)
parser.add_argument("--how", choices=["graph", "callables", "compile"], required=True)
parser.add_argument("--size", default="full")
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
if arguments.how == "compile":
    # Compilers are started from here; they are to run without what was put under this program.
    os.environ.pop("LD_PRELOAD", None)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

child.must_be(child.wanted_allocator())
torch.use_deterministic_algorithms(True, warn_only=True)
torch.utils.deterministic.fill_uninitialized_memory = False
torch.manual_seed(1)
width, batch = (64, 16) if arguments.size == "small" else (2048, 512)
model = torch.nn.Sequential(
    torch.nn.Linear(width, 2 * width),
    torch.nn.GELU(),
    torch.nn.Linear(2 * width, width),
    torch.nn.GELU(),
    torch.nn.Linear(width, 10),
).cuda()
data = [(torch.randn(batch, width).cuda(), torch.randint(10, (batch,)).cuda()) for _ in range(4)]
losses = torch.zeros(arguments.steps, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def eager(x, target, call):
    optimizer.zero_grad()
    loss = F.cross_entropy(call(x), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


if arguments.how == "graph":
    x, target = data[0][0].clone(), data[0][1].clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            eager(x, target, model)
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = eager(x, target, model)
    between = []
    for index in range(arguments.steps):
        x.copy_(data[index % 4][0])
        target.copy_(data[index % 4][1])
        graph.replay()
        losses[index] = kept
        # The program goes on asking for memory beside the graph's, and gives some back.
        between.append(torch.full((1 << 20,), float(index), device="cuda"))
        if index % 5 == 4:
            between.clear()
            torch.cuda.empty_cache()
elif arguments.how == "callables":
    call = torch.cuda.make_graphed_callables(model, (torch.randn(batch, width, device="cuda"),))
    for index in range(arguments.steps):
        losses[index] = eager(*data[index % 4], call)
else:
    call = torch.compile(model, mode="reduce-overhead")
    for index in range(arguments.steps):
        torch.compiler.cudagraph_mark_step_begin()
        losses[index] = eager(*data[index % 4], call)
        if index == arguments.steps // 2:
            # Another path through the graphs' tree: forward alone, so that a saved state of the pool comes back.
            with torch.no_grad():
                call(data[0][0]).sum().item()
torch.cuda.synchronize()
child.write(
    arguments,
    {
        "losses_hex": [struct.pack(">f", value).hex() for value in losses.tolist()],
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "stats": child.berth_stats(),
    },
)
