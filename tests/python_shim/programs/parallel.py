"""DDP, FSDP2 and a pipeline of two ranks with gloo on the CPU; FSDP2 of one rank on CUDA, whose NCCL is a fake one."""

import os

import torch
import torch.distributed as dist
from common import DEVICE, batch, network, show
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

world = 2 if DEVICE == "cpu" else 1


def train(net, rank):
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    for _ in range(40):
        x = batch()
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        show(loss)


def main(rank):
    dist.init_process_group(
        "gloo" if DEVICE == "cpu" else "fake",
        rank=rank,
        world_size=world,
        store=None if DEVICE == "cpu" else torch.testing._internal.distributed.fake_pg.FakeStore(),
    )
    if world == 2:
        train(DistributedDataParallel(network()), rank)
    sharded = network(1)
    mesh = init_device_mesh(DEVICE, (world,))
    for layer in sharded:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    train(sharded, rank)
    if world == 2:
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        stage = PipelineStage(network(rank), rank, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).square().mean())
        optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.1)
        torch.manual_seed(9)
        for _ in range(20):
            x = batch()
            losses = []
            if rank == 0:
                schedule.step(x)
            else:
                schedule.step(target=x, losses=losses)
            optimizer.step()
            optimizer.zero_grad()
        if rank == 1:
            show(sum(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    if world == 1:
        import torch.testing._internal.distributed.fake_pg

        main(0)
    else:
        main(int(os.environ["RANK"]))
