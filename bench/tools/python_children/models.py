"""Small models as people write them. MODELS: name -> function that makes a net, a function that draws a batch, and the loss of output and
target. Blocks of `again` are run by torch.utils.checkpoint."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    """Runs blocks; those that it is told to it runs again in the backward part."""

    again = False

    def run(self, block, *inputs):
        return checkpoint(block, *inputs, use_reentrant=False) if self.again and self.training else block(*inputs)


class Block(nn.Module):
    """A residual block of ResNet-18."""

    def __init__(self, width_in, width, stride):
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(width_in, width, 3, stride, 1, bias=False),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
        )
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = (
            nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x):
        y = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(y)) + self.short(x))


class Chain(Checkpointed):
    """Layers one after the other."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = self.run(layer, x) if isinstance(layer, Block) else layer(x)
        return x


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    net = Chain([*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)])
    return net, lambda: (torch.randn(8, 3, 128, 128), torch.randint(0, 10, (8,))), F.cross_entropy


class Layer(nn.Module):
    """Attention and a perceptron."""

    def __init__(self, width, heads, causal, dropout):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, nn.Dropout(dropout)
        self.norm, self.mix, self.join = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self.heads, -1).transpose(1, 2) for part in self.mix(self.norm(x)).chunk(3, -1)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(width / self.heads)
        if self.causal:
            scores = scores.masked_fill(
                torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1), -math.inf
            )
        x = x + self.dropout(self.join((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width)))
        return x + self.dropout(self.mlp(self.norm_mlp(x)))


class Transformer(Checkpointed):
    """Of patches or of tokens."""

    def __init__(self, embed, layers, width, heads, length, out, causal, dropout=0.0):
        super().__init__()
        self.embed = embed
        self.place = nn.Parameter(torch.zeros(1, length, width))
        self.blocks = nn.ModuleList(Layer(width, heads, causal, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, out)

    def forward(self, x):
        x = self.embed(x) + self.place
        for block in self.blocks:
            x = self.run(block, x)
        return self.head(self.norm(x))


def tokens_loss(out, target):
    return F.cross_entropy(out.flatten(0, 1), target.flatten())


def gpt():
    net = Transformer(nn.Embedding(512, 256), 4, 256, 4, 256, 512, True)
    tokens = lambda: torch.randint(0, 512, (4, 256))  # noqa: E731
    return net, lambda: (tokens(), tokens()), tokens_loss


@torch.library.custom_op("bench::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


double.register_autograd(lambda context, gradient: double(gradient))


class Doubled(Layer):
    """With an operator of somebody's own, of which libtorch knows nothing."""

    def forward(self, x):
        return double(super().forward(x))


def gpt_operator():
    net, batch, loss_of = gpt()
    net.blocks[2] = Doubled(256, 4, True, 0.0)
    return net, batch, loss_of


class Varied(Transformer):
    """Of batches of several lengths."""

    def forward(self, x):
        x = self.embed(x) + self.place[:, : x.shape[1]]
        for block in self.blocks:
            x = self.run(block, x)
        return self.head(self.norm(x))


def gpt_lengths():
    net = Varied(nn.Embedding(512, 256), 4, 256, 4, 192, 512, True)

    def batch():
        length = 16 * (1 + torch.randint(0, 12, ()).item())
        tokens = lambda: torch.randint(0, 512, (4, length))  # noqa: E731
        return tokens(), tokens()

    return net, batch, tokens_loss


def bert():
    net = Transformer(nn.Embedding(512, 256), 4, 256, 4, 128, 512, False, dropout=0.1)
    tokens = lambda: torch.randint(0, 512, (8, 128))  # noqa: E731
    return net, lambda: (tokens(), tokens()), tokens_loss


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Conv2d(3, 192, 16, 16), nn.Flatten(2))

    def forward(self, x):
        return self.embed(x).transpose(1, 2)


def vit():
    net = Transformer(Patches(), 4, 192, 3, 196, 10, False)
    return (
        net,
        lambda: (torch.randn(4, 3, 224, 224), torch.randint(0, 10, (4,))),
        lambda out, target: F.cross_entropy(out.mean(1), target),
    )


class Lstm(Checkpointed):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.head = (
            nn.Embedding(512, 128),
            nn.LSTM(128, 256, 2, batch_first=True),
            nn.Linear(256, 512),
        )

    def forward(self, x):
        return self.head(self.run(self.lstm, self.embed(x))[0])


def lstm():
    tokens = lambda: torch.randint(0, 512, (16, 64))  # noqa: E731
    return Lstm(), lambda: (tokens(), tokens()), tokens_loss


class UNet(Checkpointed):
    """Down three times and up again, with what was seen on the way down."""

    def __init__(self, width=24, depth=3):
        super().__init__()
        widths = [width * 2**k for k in range(depth + 1)]
        twice = lambda a, b: nn.Sequential(
            nn.Conv2d(a, b, 3, 1, 1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(),  # noqa: E731
            nn.Conv2d(b, b, 3, 1, 1, bias=False),
            nn.BatchNorm2d(b),
            nn.ReLU(),
        )
        self.down = nn.ModuleList(twice(a, b) for a, b in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(twice(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        seen = []
        for k, block in enumerate(self.down):
            x = self.run(block, x if k == 0 else F.max_pool2d(x, 2))
            seen.append(x)
        for k in reversed(range(len(self.up))):
            x = self.run(self.join[k], torch.cat([self.up[k](x), seen[k]], 1))
        return self.head(x)


def unet():
    return UNet(), lambda: (torch.randn(2, 3, 96, 96), torch.randint(0, 2, (2, 96, 96))), F.cross_entropy


MODELS = {
    "resnet18": resnet18,
    "gpt": gpt,
    "vit": vit,
    "lstm": lstm,
    "unet": unet,
    "bert": bert,
    "gpt_operator": gpt_operator,
    "gpt_lengths": gpt_lengths,
}
