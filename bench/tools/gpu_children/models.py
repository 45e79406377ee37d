"""The models that bench/gpu trains, of plain torch.nn: GPT-2, a Llama, ResNet-50 and an MLP, in full size and in a size for tests."""

import dataclasses

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Problem:
    model: nn.Module
    batches: list  # of (input, target), pinned on the host
    text: str

    def loss(self, output, target):
        return F.cross_entropy(output.flatten(0, -2).float(), target.flatten())


class Attention(nn.Module):
    """Causal, by fused kernels or written out: not every fused kernel repeats to the last bit."""

    def __init__(self, width, heads, kv_heads, fused, bias, rotary):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.fused, self.rotary = heads, kv_heads, width // heads, fused, rotary
        self.into = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def turn(self, x):
        half = x.shape[-1] // 2
        angles = torch.arange(x.shape[-2], device=x.device)[:, None] * 10000 ** (
            -torch.arange(half, device=x.device) / half
        )
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        one, other = x[..., :half], x[..., half:]
        return torch.cat((one * cos - other * sin, one * sin + other * cos), -1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.into(x).split([self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size], -1)
        q, k, v = (y.view(batch, length, -1, self.size).transpose(1, 2) for y in (q, k, v))
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        if self.kv_heads != self.heads:
            k, v = (y.repeat_interleave(self.heads // self.kv_heads, 1) for y in (k, v))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * self.size**-0.5
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Gpt2Block(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads, heads, fused, True, False)
        self.between, self.into, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.out(F.gelu(self.into(self.between(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, words, length, width, layers, heads, fused):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Gpt2Block(width, heads, fused) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return F.linear(self.norm(self.blocks(x)), self.words.weight)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, inner, fused):
        super().__init__()
        self.before, self.attention = nn.RMSNorm(width), Attention(width, heads, kv_heads, fused, False, True)
        self.between = nn.RMSNorm(width)
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((width, inner), (width, inner), (inner, width))
        )

    def forward(self, x):
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words, width, layers, heads, kv_heads, inner, fused):
        super().__init__()
        self.words, self.norm, self.head = (
            nn.Embedding(words, width),
            nn.RMSNorm(width),
            nn.Linear(width, words, bias=False),
        )
        self.blocks = nn.Sequential(*(LlamaBlock(width, heads, kv_heads, inner, fused) for _ in range(layers)))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.words(x))))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if inputs != outputs or stride != 1
            else nn.Identity()
        )

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, blocks, width, classes):
        super().__init__()
        layers = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        inputs = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                layers.append(Bottleneck(inputs, width << stage, 4 * width << stage, 2 if block == 0 and stage else 1))
                inputs = 4 * width << stage
        self.body, self.head = nn.Sequential(*layers), nn.Linear(inputs, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def tokens(words, batch, length, count, pin):
    made = [torch.randint(words, (batch, length + 1)) for _ in range(count)]
    made = [one.pin_memory() if pin else one for one in made]
    return [(one[:, :-1], one[:, 1:]) for one in made]


def make(name, size, batch, fused=True, pin=True, device="cpu"):
    """A problem in size `full` or `small`, the same for a seed that the caller has set. `batch`: 0 for the model's own. Its weights are made on
    `device`, its batches on the host."""
    small = size == "small"
    on_device = torch.device(device)
    if name == "gpt2":
        words, length, width, layers, heads, own = (512, 64, 64, 2, 4, 4) if small else (50257, 1024, 768, 12, 12, 8)
        with on_device:
            model = Gpt2(words, length, width, layers, heads, fused)
        batches, text = (
            tokens(words, batch or own, length, 4, pin),
            f"GPT-2, {layers} layers of width {width}, {batch or own} x {length}",
        )
    elif name == "llama":
        words, length, width, layers, heads, kv_heads, inner, own = (
            (512, 64, 64, 2, 4, 2, 160, 2) if small else (32000, 2048, 2048, 22, 32, 4, 5632, 2)
        )
        with on_device:
            model = Llama(words, width, layers, heads, kv_heads, inner, fused)
        batches, text = (
            tokens(words, batch or own, length, 4, pin),
            f"Llama, {layers} layers of width {width}, {batch or own} x {length}",
        )
    elif name == "resnet50":
        blocks, width, side, classes, own = ((1, 1, 1, 1), 8, 32, 10, 4) if small else ((3, 4, 6, 3), 64, 224, 1000, 64)
        with on_device:
            model = ResNet(blocks, width, classes)
        batches = [
            (torch.randn(batch or own, 3, side, side), torch.randint(classes, (batch or own,))) for _ in range(4)
        ]
        batches = [(x.pin_memory(), y) for x, y in batches] if pin else batches
        text = f"ResNet-{2 + 3 * sum(blocks)}, {batch or own} x 3 x {side} x {side}"
    elif name == "mlp":
        width, own = (64, 16) if small else (2048, 512)
        with on_device:
            model = nn.Sequential(
                nn.Linear(784, width),
                nn.ReLU(),
                nn.Dropout(0.1),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Linear(width, 10),
            )
        batches = [(torch.randn(batch or own, 784), torch.randint(10, (batch or own,))) for _ in range(4)]
        text = f"MLP of width {width}, batch {batch or own}"
    else:
        raise SystemExit(f"no model '{name}'")
    return Problem(model, batches, text)
