"""LoRA of litgpt (finetune/lora.py, rank 8 on queries and values, bfloat16), as in its docs/resource-tables.md: phi-1.5 and Llama-2-7B."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=("phi-1.5", "llama-2-7b", "tiny"), default="phi-1.5")
parser.add_argument("--micro-batch", type=int, default=1)
arguments = parser.parse_args()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

PHI = arguments.model != "llama-2-7b"  # parallel residuals, biases, gelu; else a gated feed-forward part
WIDTH, LAYERS, HEADS, HIDDEN, VOCABULARY, LENGTH, ROTARY = {
    "phi-1.5": (2048, 24, 32, 8192, 51200, 1044, 32),
    "llama-2-7b": (4096, 32, 32, 11008, 32000, 1304, 128),
    "tiny": (64, 2, 2, 128, 512, 256, 16),
}[arguments.model]
RANK, ALPHA, DROPOUT = 8, 16, 0.05


def parameter(*shape, trained=False):
    return nn.Parameter(torch.empty(*shape, device="cuda", dtype=torch.bfloat16), requires_grad=trained)


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = parameter(outputs, inputs), parameter(outputs) if PHI else None

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Projection(nn.Module):
    """Queries, keys and values at once, with low-rank additions to queries and values."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = parameter(3 * WIDTH, WIDTH), parameter(3 * WIDTH) if PHI else None
        self.a, self.b = parameter(2 * RANK, WIDTH, trained=True), parameter(2 * WIDTH, RANK, trained=True)
        self.register_buffer("places", torch.tensor([*range(WIDTH), *range(2 * WIDTH, 3 * WIDTH)], device="cuda"))

    def forward(self, x):
        whole = F.linear(x, self.weight, self.bias)
        low = F.linear(F.dropout(x, DROPOUT), self.a)
        added = F.conv1d(low.transpose(-2, -1), self.b.unsqueeze(-1), groups=2).transpose(-2, -1)
        zeros = added.new_zeros(*added.shape[:-1], 3 * WIDTH).view(-1, 3 * WIDTH)
        zeros = zeros.index_copy(1, self.places, added.reshape(-1, 2 * WIDTH) * (ALPHA / RANK))
        return whole + zeros.view(*added.shape[:-1], 3 * WIDTH)


class RootNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = parameter(WIDTH)

    def forward(self, x):
        kind, x = x.dtype, x.float()
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)).to(kind)


def norm():
    if not PHI:
        return RootNorm()
    layer = nn.LayerNorm(WIDTH, device="cuda", dtype=torch.bfloat16)
    layer.requires_grad_(False)
    return layer


def rotate(x, cosine, sine):
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return ((x * cosine) + (turned * sine)).type_as(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = norm(), None if PHI else norm()
        self.projection, self.output = Projection(), Linear(WIDTH, WIDTH)
        self.up, self.down = Linear(WIDTH, HIDDEN), Linear(HIDDEN, WIDTH)
        self.gate = None if PHI else Linear(WIDTH, HIDDEN)

    def attend(self, x, cosine, sine):
        batch, length, _ = x.shape
        size = WIDTH // HEADS
        parts = self.projection(x).view(batch, length, HEADS, 3, size).permute(0, 2, 3, 1, 4).split((1, 1, 1), 2)
        query, key, value = (one.reshape(batch, -1, length, size) for one in parts)
        query = torch.cat((rotate(query[..., :ROTARY], cosine, sine), query[..., ROTARY:]), -1)
        key = torch.cat((rotate(key[..., :ROTARY], cosine, sine), key[..., ROTARY:]), -1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, WIDTH))

    def feed_forward(self, x):
        return self.down(F.gelu(self.up(x)) if PHI else F.silu(self.up(x)) * self.gate(x))

    def forward(self, x, cosine, sine):
        if PHI:
            normed = self.first(x)
            return self.feed_forward(normed) + self.attend(normed, cosine, sine) + x
        x = self.attend(self.first(x), cosine, sine) + x
        return self.feed_forward(self.second(x)) + x


embedding, head, blocks, last = (
    parameter(VOCABULARY, WIDTH),
    Linear(WIDTH, VOCABULARY),
    nn.ModuleList(Block() for _ in range(LAYERS)),
    norm(),
)
optimizer = torch.optim.AdamW([one for one in blocks.parameters() if one.requires_grad], lr=3e-4)
angles = torch.arange(2048 if PHI else 4096, device="cuda").float()[:, None] * (
    1 / 10000 ** (torch.arange(0, ROTARY, 2, device="cuda").float() / ROTARY)
)
angles = angles.repeat(1, 2)
cosine, sine = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
for step in range(4):
    tokens = torch.zeros(arguments.micro_batch, LENGTH, dtype=torch.long).cuda()
    x = F.embedding(tokens, embedding)
    for block in blocks:
        x = block(x, cosine[:LENGTH], sine[:LENGTH])
    # lm_head_chunk_size; Fabric's HalfPrecision.convert_output() makes what a model returns float32.
    logits = [one.float() for one in [head(one) for one in last(x).split(128, dim=1)]]
    logits[-1] = logits[-1][..., :-1, :]
    losses = [
        F.cross_entropy(one.reshape(-1, VOCABULARY), wanted.reshape(-1), ignore_index=-1, reduction="none")
        for one, wanted in zip(logits, tokens[..., 1:].split(128, dim=1))
    ]
    (torch.cat(losses).mean() / 128).backward()
    if step % 2 == 1:
        optimizer.step()
        optimizer.zero_grad()
