"""The networks whose steps bench/schedule_recorded records, with random weights: those that OLLA was measured on (Steiner et al. 2022), from
torchvision and transformers, and a U-Net. Each comes with a batch and its loss."""

import dataclasses
from typing import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Problem:
    model: nn.Module
    inputs: tuple
    loss: Callable


class Twice(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__()
        for index in (0, 1):
            self.append(nn.Conv2d(outputs if index else inputs, outputs, 3, padding=1, bias=False))
            self.append(nn.BatchNorm2d(outputs))
            self.append(nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Ronneberger et al. 2015, with padding and norms: four times down and up again, 64 to 1,024 channels."""

    def __init__(self, classes=2, width=64, depth=4):
        super().__init__()
        widths = [width << k for k in range(depth + 1)]
        self.down = nn.ModuleList(Twice(a, b) for a, b in zip([3, *widths], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(Twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for stage in self.down[:-1]:
            kept.append(stage(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat((kept.pop(), up(x)), 1))
        return self.head(x)


def classified(output, target):
    if isinstance(output, tuple):  # with the heads on the way that GoogleNet trains
        return sum(weight * F.cross_entropy(one, target) for weight, one in zip((1, 0.3, 0.3), output))
    return F.cross_entropy(output, target)


def images(name, batch, small):
    import torchvision

    side, classes = (64 if small else 224), 1000
    makers = {"alexnet": "alexnet", "vgg": "vgg16", "googlenet": "googlenet", "resnet18": "resnet18", "resnet50": "resnet50",
              "mobilenet": "mobilenet_v2", "mnasnet": "mnasnet1_0", "efficientnet": "efficientnet_b0"}
    extra = {"init_weights": False} if name == "googlenet" else {}
    model = getattr(torchvision.models, makers[name])(weights=None, **extra)
    return Problem(model, (torch.randn(batch, 3, side, side), torch.randint(classes, (batch,))), lambda model, x, y: classified(model(x), y))


def video(batch, small):
    import torchvision

    frames, side = (4, 32) if small else (16, 112)
    model = torchvision.models.video.r3d_18(weights=None)
    return Problem(model, (torch.randn(batch, 3, frames, side, side), torch.randint(400, (batch,))), lambda model, x, y: classified(model(x), y))


def language(name, batch, small):
    import transformers

    kinds = {"bert": (transformers.BertConfig, transformers.BertForMaskedLM), "xlmr": (transformers.XLMRobertaConfig, transformers.XLMRobertaForMaskedLM),
             "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel)}
    make_config, make_model = kinds[name]
    length, words = (32, 500) if small else (512, {"bert": 30522, "xlmr": 250002, "gpt2": 50257}[name])
    shape = {"n_layer": 2} if small and name == "gpt2" else {"num_hidden_layers": 2} if small else {}
    if name == "xlmr":
        shape["max_position_embeddings"] = 514
    config = make_config(vocab_size=words, attn_implementation="eager", **shape)
    tokens = torch.randint(5, words, (batch, length))
    return Problem(make_model(config), (tokens,), lambda model, x: model(input_ids=x, labels=x).loss)


class Translator(nn.Module):
    """Vaswani et al. 2017, base."""

    def __init__(self, words, layers):
        super().__init__()
        self.words, self.body = nn.Embedding(words, 512), nn.Transformer(512, 8, layers, layers, 2048, batch_first=True)

    def forward(self, source, target):
        hidden = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return F.linear(self.body(self.words(source), self.words(target), tgt_mask=hidden), self.words.weight)


def translator(batch, small):
    words, length, layers = (500, 16, 1) if small else (32000, 128, 6)
    source, target = torch.randint(words, (batch, length)), torch.randint(words, (batch, length))
    return Problem(Translator(words, layers), (source, target), lambda model, x, y: classified(model(x, y).flatten(0, 1), y.flatten()))


def unet(batch, small):
    side = 32 if small else 256
    return Problem(UNet(width=8 if small else 64), (torch.randn(batch, 3, side, side), torch.randint(2, (batch, side, side))),
                   lambda model, x, y: classified(model(x), y))


def make(name, batch, small=False):
    if name in ("bert", "xlmr", "gpt2"):
        return language(name, batch, small)
    special = {"resnet3d": video, "transformer": translator, "unet": unet}
    return special[name](batch, small) if name in special else images(name, batch, small)
