"""The transformer of Stanford's CS336, assignment 2, as in kkaitlyn111/cs336-a2-systems: batch 4, vocabulary 10,000, its own AdamW."""

import argparse
import contextlib
import math

parser = argparse.ArgumentParser()
parser.add_argument("--context", type=int, default=128)
parser.add_argument("--mode", choices=("full", "forward", "inference"), default="full")
parser.add_argument("--mixed", action="store_true", help="bfloat16 by autocast")
parser.add_argument("--size", choices=("tiny", "small", "2.7b"), default="2.7b")
arguments = parser.parse_args()

import torch  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, HIDDEN, LAYERS, HEADS = {"tiny": (64, 128, 2, 2), "small": (768, 3072, 12, 12), "2.7b": (2560, 10240, 32, 32)}[
    arguments.size
]
VOCABULARY, BATCH, LENGTH = 10000, 4, arguments.context


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, device="cuda"))

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH, device="cuda"))

    def forward(self, x):
        return x / torch.sqrt(torch.mean(x**2, -1, keepdim=True) + 1e-5) * self.gain


def softmax(x):
    x = x - torch.max(x, dim=-1, keepdim=True)[0]
    e = torch.exp(x)
    return e / torch.sum(e, dim=-1, keepdim=True)


class Rotary(nn.Module):
    def __init__(self, size):
        super().__init__()
        frequencies = 10000.0 ** (-torch.arange(0, size, 2, device="cuda") / size)
        angles = torch.arange(LENGTH, device="cuda")[:, None] * frequencies
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, x, positions):
        cosine, sine = self.cosine[positions].unsqueeze(1), self.sine[positions].unsqueeze(1)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cosine - odd * sine, odd * cosine + even * sine), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (Linear(WIDTH, WIDTH) for _ in range(4))
        self.rotary = Rotary(WIDTH // HEADS)

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = (
            one(x).view(batch, length, HEADS, -1).transpose(1, 2) for one in (self.query, self.key, self.value)
        )
        positions = torch.arange(length, device=x.device).unsqueeze(0).expand(batch, -1)
        query = self.rotary(query, positions)
        key = self.rotary(key, positions)
        mask = ~torch.triu(torch.ones(length, length, device=x.device), diagonal=1).to(torch.bool)
        mask = mask[None, None].expand(batch, HEADS, -1, -1)
        scores = torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(mask == False, -1e9)  # noqa: E712
        mixed = torch.einsum("...qk,...kd->...qd", softmax(scores), value)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = Linear(WIDTH, HIDDEN), Linear(WIDTH, HIDDEN), Linear(HIDDEN, WIDTH)

    def forward(self, x):
        gate = self.gate(x)
        gate = gate * torch.sigmoid(gate)
        return self.down(gate * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_feed_forward, self.attention, self.feed_forward = (
            Norm(),
            Norm(),
            Attention(),
            FeedForward(),
        )

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.feed_forward(self.before_feed_forward(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCABULARY, WIDTH, device="cuda"))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = Norm(), Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding[tokens]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class AdamW(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state, gradient = self.state[parameter], parameter.grad
                first, second = (
                    state.get("first", torch.zeros_like(parameter)),
                    state.get("second", torch.zeros_like(parameter)),
                )
                first.mul_(0.9).add_(gradient, alpha=0.1)
                second.mul_(0.95).addcmul_(gradient, gradient, value=0.05)
                parameter.data.sub_(1e-4 * first / (torch.sqrt(second) + 1e-8))
                state["first"], state["second"] = first, second


model = Model()
optimizer = AdamW(model.parameters())
tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH)).to("cuda")
with torch.autocast("cuda", dtype=torch.bfloat16) if arguments.mixed else contextlib.nullcontext():
    torch.cuda.empty_cache()
    if arguments.mode == "forward":
        logits = model(tokens)
    elif arguments.mode == "inference":
        for _ in range(3):
            with torch.no_grad():
                logits = model(tokens)
    else:
        optimizer.zero_grad()
        logits = model(tokens)
        shifted = logits - logits.max(-1, keepdim=True)[0]
        loss = (torch.logsumexp(shifted, -1) - shifted.gather(-1, tokens[..., None]).squeeze(-1)).mean()
        loss.backward()
        optimizer.step()
torch.cuda.synchronize()
