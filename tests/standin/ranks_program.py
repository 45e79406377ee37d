#!/usr/bin/env python3
"""What one rank of a job does, on the stand-in: run by torchrun, see ranks_test.py. Any number of ranks.

Collectives add up what is there, and tensors that were copied to the device have their values, so results are checked.
"""

import ctypes
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
device = torch.device("cuda", local % torch.cuda.device_count())
runtime = ctypes.CDLL(None)
runtime.berth_standin_violations.restype = ctypes.c_size_t
runtime.berth_standin_calls.restype = ctypes.c_uint64


def calls(name):
    return runtime.berth_standin_calls(name.encode())


def equal(tensor, values):
    found = tensor.cpu().tolist()
    assert found == values, f"rank {rank} has {found}, wanted {values}"


def on_device(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).to(device)


def collectives():
    total = world * (world - 1) / 2
    for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.float16, torch.float64, torch.int32):
        x = on_device(rank, 1, dtype=dtype)
        dist.all_reduce(x)
        equal(x, [total, world])
    x = on_device(rank + 1.0)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    equal(x, [world])
    x = on_device(2.0 * rank)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    equal(x, [world - 1])
    x = on_device(4.0)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    equal(x, [2.0 * world])
    x = on_device(rank, rank, rank)
    dist.broadcast(x, world - 1)
    equal(x, [world - 1] * 3)
    x = on_device(1.0)
    dist.reduce(x, 0)
    equal(x, [world if rank == 0 else 1])
    y = torch.zeros(2 * world).to(device)
    dist.all_gather_into_tensor(y, on_device(rank, -rank))
    equal(y, [sign * r for r in range(world) for sign in (1, -1)])
    y = torch.zeros(1).to(device)
    dist.reduce_scatter_tensor(y, on_device(*range(world)))
    equal(y, [rank * world])
    y = torch.zeros(world).to(device)
    dist.all_to_all_single(y, on_device(*(10 * rank + r for r in range(world))))
    equal(y, [10 * r + rank for r in range(world)])
    # Rank r sends s + 1 values to rank s, so every one gets rank + 1 from each.
    y = torch.zeros(world * (rank + 1)).to(device)
    dist.all_to_all_single(
        y,
        on_device(*(rank for s in range(world) for _ in range(s + 1))),
        [rank + 1] * world,
        [s + 1 for s in range(world)],
    )
    equal(y, [r for r in range(world) for _ in range(rank + 1)])
    parts = [torch.zeros(1).to(device) for _ in range(world)]
    dist.gather(on_device(rank), parts if rank == 0 else None, 0)
    if rank == 0:
        equal(torch.cat([part.cpu() for part in parts]), list(range(world)))
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(world)]
    dist.barrier()


def messages():
    right, left = (rank + 1) % world, (rank - 1) % world
    y = [torch.zeros(3).to(device) for _ in range(40)]
    work = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, on_device(rank, i, 0), right) for i in range(40)]
        + [dist.P2POp(dist.irecv, y[i], left) for i in range(40)]
    )
    for request in work:
        request.wait()
    for i in range(40):
        equal(y[i], [left, i, 0])


def groups():
    halves = [dist.new_group(list(range(r % 2, world, 2))) for r in range(2)]
    x = on_device(1.0)
    dist.all_reduce(x, group=halves[rank % 2])
    equal(x, [len(range(rank % 2, world, 2))])


def a_side_stream_has_its_own_order():
    stream = torch.cuda.Stream()
    x = on_device(*([1.0] * 1000))
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work = dist.all_reduce(x, async_op=True)
    x.record_stream(stream)
    work.wait()
    equal(x, [world] * 1000)


def graphs_hold_collectives():
    x, y = torch.ones(4).to(device), torch.zeros(4).to(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
        dist.all_reduce(y)
    for _ in range(3):
        graph.replay()
    equal(y, [world] * 4)


def model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))


def train(network, steps=3):
    optimizer = torch.optim.AdamW(network.parameters(), foreach=True)
    for _ in range(steps):
        network(torch.zeros(16, 64, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def data_parallel():
    before = calls("ncclAllReduce")
    train(nn.parallel.DistributedDataParallel(model().to(device), device_ids=[device.index]))
    assert calls("ncclAllReduce") - before >= 3


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cuda", (world,))
    for policy in (MixedPrecisionPolicy(), MixedPrecisionPolicy(torch.bfloat16, torch.float32)):
        network = model().to(device)
        for layer in network:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(network, mesh=mesh, mp_policy=policy)
        before = calls("ncclReduceScatter")
        train(network)
        assert calls("ncclReduceScatter") - before >= 3
    # What was sharded is put together again.
    weight = nn.Linear(4, 8, bias=False)
    values = torch.arange(32.0).reshape(8, 4)
    with torch.no_grad():
        weight.weight.copy_(values)
    weight.to(device)
    fully_shard(weight, mesh=mesh)
    equal(weight.weight.full_tensor(), values.tolist())


def main():
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    if len(sys.argv) == 2 and sys.argv[1] == "one dies":
        dist.barrier()
        torch.cuda.synchronize()
        if rank == world - 1:
            os._exit(7)
        dist.all_reduce(torch.ones(4, device=device))
        torch.cuda.synchronize()
        print("waited for a rank that is gone, and nothing happened")
        os._exit(8)
    for case in (
        collectives,
        messages,
        groups,
        a_side_stream_has_its_own_order,
        graphs_hold_collectives,
        data_parallel,
        sharded,
    ):
        case()
    torch.cuda.synchronize()
    assert runtime.berth_standin_violations() == 0
    dist.destroy_process_group()
    print(f"rank {rank} of {world} is done")


if __name__ == "__main__":
    main()
