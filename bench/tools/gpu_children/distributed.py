"""NCCL with one rank: collectives on berth's memory, and DDP as its scripts begin, with set_device before the first tensor."""

import child

parser = child.parser(__doc__)
parser.add_argument("--steps", type=int, default=20)
arguments = parser.parse_args()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

torch.cuda.set_device(0)
child.must_be(child.wanted_allocator())
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
x = torch.arange(1 << 20, dtype=torch.float32).cuda()
gathered = torch.empty(1 << 20, device="cuda")
for _ in range(3):
    dist.all_reduce(x)
    dist.all_gather_into_tensor(gathered, x)
equal = bool(torch.equal(gathered.cpu(), torch.arange(1 << 20, dtype=torch.float32)))
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 16)).cuda(), device_ids=[0]
)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(arguments.steps):
    optimizer.zero_grad()
    model(torch.randn(256, 512, device="cuda")).square().mean().backward()
    optimizer.step()
# Registered memory: NCCL takes a pool's segments by their address.
registered = "not tried"
try:
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda:0"))
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        block = torch.ones(1 << 20, device="cuda")
    backend.register_mem_pool(pool)
    dist.all_reduce(block)
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)
    registered = "ran"
    del block
except (RuntimeError, AttributeError, TypeError) as error:
    registered = str(error).split("\n")[0][:200]
torch.cuda.synchronize()
dist.destroy_process_group()
child.write(arguments, {"equal": equal, "registered_pool": registered, "stats": child.berth_stats()})
