"""Networks that the benches train, with random weights, in full size: from torchvision, transformers and plain torch.nn (modules.py). Those that
OLLA was measured on (Steiner et al. 2022) have its names.

Each comes with a batch on the host and its loss. Weights are made where they are used and never drawn: they mean nothing on the stand-in, whose
memory costs the host only what is written."""

import dataclasses
import functools
from typing import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import modules


def made(make, device="cuda"):
    """The model that the call makes, its weights on the device as they were there: tied ones once."""
    with torch.device("meta"):
        model = make()
    owners, tied = {}, []
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None and owners.setdefault(id(weight), (module, name)) != (module, name):
                tied.append((module, name, *owners[id(weight)]))
    for module, name, *_ in tied:
        module._parameters[name] = None
    model.to_empty(device=device)
    for module, name, owner, owned in tied:
        module._parameters[name] = owner._parameters[owned]
    return model


@dataclasses.dataclass
class Problem:
    model: nn.Module
    inputs: tuple  # on the host
    loss: Callable  # of the model and inputs
    blocks: tuple = ()  # classes of modules that gradient checkpointing runs again

    def checkpoint(self):
        """From here on each block keeps its input alone and is run again in the backward part."""
        if hasattr(self.model, "gradient_checkpointing_enable"):
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            return
        blocks = [one for one in self.model.modules() if isinstance(one, self.blocks)]
        if not blocks:
            raise ValueError("this network names no blocks that could be run again")
        for block in blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def classified(output, target):
    if isinstance(output, tuple):  # with the heads on the way that GoogleNet trains
        return sum(weight * F.cross_entropy(one, target) for weight, one in zip((1, 0.3, 0.3), output))
    return F.cross_entropy(output, target)


def of_classes(model, x, target):
    return classified(model(x), target)


def of_words(model, x, target):
    return classified(model(x).flatten(0, 1), target.flatten())


# Names of torchvision are taken as they are.
IMAGES = {
    "vgg": "vgg16",
    "mobilenet": "mobilenet_v2",
    "mnasnet": "mnasnet1_0",
    "efficientnet": "efficientnet_b0",
    "vit": "vit_b_16",
}


def image(name, batch, side=224):
    import torchvision
    from torchvision.models.resnet import BasicBlock, Bottleneck

    extra = {"init_weights": False} if name == "googlenet" else {}
    model = made(lambda: getattr(torchvision.models, IMAGES.get(name, name))(weights=None, **extra))
    return Problem(
        model, (torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))), of_classes, (BasicBlock, Bottleneck)
    )


def video(batch, frames=16, side=112):
    import torchvision

    model = made(lambda: torchvision.models.video.r3d_18(weights=None))
    return Problem(model, (torch.randn(batch, 3, frames, side, side), torch.randint(400, (batch,))), of_classes)


TEXTS = {  # of transformers: model, configuration, what of it differs from the default
    "bert": ("BertForMaskedLM", "BertConfig", {}),
    "xlmr": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", {"vocab_size": 250002, "max_position_embeddings": 514}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"decoder_start_token_id": 0}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {}),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {}),
}


def never_packed():
    """transformers asks the device whether sequences are packed: noise on the stand-in, where no mask would be right. It asks on, and is told no."""
    from transformers import masking_utils

    asked = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda places: (asked(places), None)[1]


def text(name, batch, length=512, **shape):
    import transformers

    never_packed()
    model_class, configuration, own = TEXTS[name]
    config = getattr(transformers, configuration)(**{**own, **shape})
    model = made(lambda: getattr(transformers, model_class)(config).to(config.dtype or torch.float32))
    return Problem(
        model,
        (torch.randint(5, min(config.vocab_size, 1000), (batch, length)),),
        lambda model, x: model(input_ids=x, labels=x).loss,
    )


def translator(batch, words=32000, length=128, layers=6):
    source, target = torch.randint(words, (batch, length)), torch.randint(words, (batch, length))
    return Problem(
        made(lambda: modules.Translator(words, layers)),
        (source, target),
        lambda model, x, y: classified(model(x, y).flatten(0, 1), y.flatten()),
    )


def unet(batch, side=256, width=64):
    return Problem(
        made(lambda: modules.UNet(width=width)),
        (torch.randn(batch, 3, side, side), torch.randint(2, (batch, side, side))),
        of_classes,
    )


def lstm(batch, words=10000, length=35, width=1500):
    shape = (batch, length)
    return Problem(
        made(lambda: modules.Lstm(words, width)), (torch.randint(words, shape), torch.randint(words, shape)), of_words
    )


SPECIAL = {"resnet3d": video, "transformer": translator, "unet": unet, "lstm": lstm}
SMALL = {
    "vit": {},
    "resnet3d": {"frames": 4, "side": 32},
    "transformer": {"words": 500, "length": 16, "layers": 1},
    "unet": {"side": 32, "width": 8},
    "lstm": {"words": 500, "length": 8, "width": 32},
    "gpt2": {"length": 32, "vocab_size": 500, "n_layer": 2},
    **{name: {"length": 32, "vocab_size": 500, "num_hidden_layers": 2} for name in ("bert", "xlmr")},
}


def make(name, batch, small=False, **shape):
    """`small`: a size for tests. `shape`: what differs from the network as it was published."""
    shape = {**shape, **(SMALL.get(name, {"side": 64}) if small else {})}
    return (SPECIAL[name] if name in SPECIAL else functools.partial(text if name in TEXTS else image, name))(
        batch, **shape
    )


def written_out(name, batch, small=False):
    """As the planners of order take it: attention is operators of its own."""
    return make(name, batch, small, **({"attn_implementation": "eager"} if name in TEXTS else {}))
