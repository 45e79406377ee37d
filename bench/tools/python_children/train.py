"""An unchanged training script, as anybody writes it. train.py MODEL STEPS WARMUP JSON: knows nothing of allocators but how to wait for one
that learns (WAIT_FOR_PLAN)."""

import gc
import json
import math
import os
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

name, steps, warmup, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.manual_seed(1)


class Block(nn.Module):
    """A residual block of ResNet-18."""

    def __init__(self, width_in, width, stride):
        super().__init__()
        self.one, self.two = nn.Conv2d(width_in, width, 3, stride, 1, bias=False), nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width)) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(y)) + self.short(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return net, lambda: (torch.randn(8, 3, 128, 128), torch.randint(0, 10, (8,))), F.cross_entropy


class Transformer(nn.Module):
    """Of patches or of tokens."""

    def __init__(self, embed, layers, width, heads, length, out, causal):
        super().__init__()
        self.embed, self.causal = embed, causal
        self.place = nn.Parameter(torch.zeros(1, length, width))
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm": nn.LayerNorm(width), "mix": nn.Linear(width, 3 * width), "join": nn.Linear(width, width),
            "norm_mlp": nn.LayerNorm(width), "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
        }) for _ in range(layers))
        self.heads, self.norm, self.head = heads, nn.LayerNorm(width), nn.Linear(width, out)

    def forward(self, x):
        x = self.embed(x) + self.place
        rows, length, width = x.shape
        for block in self.blocks:
            q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in block["mix"](block["norm"](x)).chunk(3, -1))
            scores = q @ k.transpose(-1, -2) / math.sqrt(width / self.heads)
            if self.causal:
                scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
            x = x + block["join"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width))
            x = x + block["mlp"](block["norm_mlp"](x))
        return self.head(self.norm(x))


def gpt():
    net = Transformer(nn.Embedding(512, 256), 4, 256, 4, 256, 512, True)
    tokens = lambda: torch.randint(0, 512, (4, 256))  # noqa: E731
    return net, lambda: (tokens(), tokens()), lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten())


def vit():
    embed = nn.Sequential(nn.Conv2d(3, 192, 16, 16), nn.Flatten(2))
    patches = nn.Module()
    patches.embed = embed
    patches.forward = lambda x: embed(x).transpose(1, 2)
    net = Transformer(patches, 4, 192, 3, 196, 10, False)
    return net, lambda: (torch.randn(4, 3, 224, 224), torch.randint(0, 10, (4,))), lambda out, target: F.cross_entropy(out.mean(1), target)


def lstm():
    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm, self.head = nn.Embedding(512, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 512)

        def forward(self, x):
            return self.head(self.lstm(self.embed(x))[0])

    tokens = lambda: torch.randint(0, 512, (16, 64))  # noqa: E731
    return Lstm(), lambda: (tokens(), tokens()), lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten())


net, batch, loss_of = {"resnet18": resnet18, "gpt": gpt, "vit": vit, "lstm": lstm}[name]()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
losses, measured = [], []


def step():
    x, target = batch()
    loss = loss_of(net(x), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())


for _ in range(warmup):
    step()
settled = 0
if os.environ.get("WAIT_FOR_PLAN"):
    import berth

    for settled in range(200):
        before = berth.stats("cpu")
        step()
        after = berth.stats("cpu")
        if after.hits - before.hits > 0.95 * (after.requests - before.requests):
            break
gc.collect()
for _ in range(steps):
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    step()
    measured.append({"ms": 1000 * (time.perf_counter() - start), "minor_faults": resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt})
usage = resource.getrusage(resource.RUSAGE_SELF)
with open(path, "w") as file:
    json.dump({"steps": measured, "losses_hex": losses, "settled_after": settled, "peak_rss_bytes": usage.ru_maxrss * 1024,
               "system_seconds": usage.ru_stime}, file)
