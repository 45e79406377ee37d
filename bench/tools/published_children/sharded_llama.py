"""Llama 3.1 8B under FSDP2, as in torchtitan's benchmarks: 8 ranks, 2 sequences of 8192 tokens each, selective checkpoints. Run it under torchrun."""

import argparse
import collections
import os

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--small", action="store_true")
arguments = parser.parse_args()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts  # noqa: E402

WIDTH, LAYERS, HEADS, GROUPS, VOCABULARY, LENGTH, BATCH, HIDDEN = (
    (64, 2, 4, 2, 512, 128, 2, 128) if arguments.small else (4096, 32, 32, 8, 128256, 8192, 2, 14336)
)
SIZE = WIDTH // HEADS
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


def turns():
    angles = torch.outer(torch.arange(LENGTH), 1.0 / (500000 ** (torch.arange(0, SIZE, 2).float() / SIZE)))
    return torch.polar(torch.ones_like(angles), angles)


def rotate(query, key, turned):
    turned = turned[: query.shape[1]].view(1, query.shape[1], 1, -1)
    pairs = [torch.view_as_complex(one.float().reshape(*one.shape[:-1], -1, 2)) for one in (query, key)]
    return [torch.view_as_real(one * turned).flatten(3).to(query.dtype) for one in pairs]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.output = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = nn.Linear(WIDTH, GROUPS * SIZE, bias=False), nn.Linear(WIDTH, GROUPS * SIZE, bias=False)

    def forward(self, x, turned):
        batch, length, _ = x.shape
        query, key, value = (one(x).view(batch, length, -1, SIZE) for one in (self.query, self.key, self.value))
        query, key = rotate(query, key, turned)
        key, value = (
            one[:, :, :, None, :]
            .expand(batch, length, GROUPS, HEADS // GROUPS, SIZE)
            .reshape(batch, length, HEADS, SIZE)
            for one in (key, value)
        )
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        return self.output(mixed.transpose(1, 2).contiguous().view(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(WIDTH, HIDDEN, bias=False),
            nn.Linear(WIDTH, HIDDEN, bias=False),
            nn.Linear(HIDDEN, WIDTH, bias=False),
        )

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.first, self.second = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)

    def forward(self, x, turned):
        x = x + self.attention(self.first(x), turned)
        return x + self.feed_forward(self.second(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.blocks = (
            nn.Embedding(VOCABULARY, WIDTH),
            nn.ModuleDict({str(i): Block() for i in range(LAYERS)}),
        )
        self.norm, self.head = nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("turned", turns(), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks.values():
            x = block(x, self.turned)
        return self.head(self.norm(x))


SAVED = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    torch.ops.aten.max.default,
}


def contexts():
    """torchtitan's: every second matrix product is computed again."""
    products = collections.defaultdict(int)

    def policy(context, function, *_, **__):
        mode = "again" if context.is_recompute else "forward"
        product = function == torch.ops.aten.mm.default
        products[mode] += product
        saved = function in SAVED and not (product and products[mode] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


with torch.device("meta"):
    model = Model()
for name, block in list(model.blocks.named_children()):
    model.blocks.register_module(name, checkpoint_wrapper(block, context_fn=contexts, preserve_rng_state=False))
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
blocks = list(model.blocks.values())
for i, block in enumerate(blocks):
    fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=i < len(blocks) - 1)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
model.turned = turns().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for _ in range(arguments.steps):
    tokens, labels = (torch.zeros(BATCH, LENGTH, dtype=torch.long).cuda() for _ in range(2))
    optimizer.zero_grad()
    predicted = model(tokens)
    loss = F.cross_entropy(predicted.flatten(0, 1).float(), labels.flatten(0, 1))
    del predicted
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
dist.destroy_process_group()
