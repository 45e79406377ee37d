"""Programs that change, for bench/changing: each yields, after a step, which kind of step it was. Unchanged PyTorch: nothing here knows berth.

Kernels do nothing on the stand-in, so inputs are made on the device and values mean nothing; sizes, order and streams are real. Random choices
are the same in every run. `size` is full, with several hundred MiB live, or small, for tests.
"""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import networks
from models import Gpt2  # of gpu_children

PROGRAMS = {}


def program(does, needs=None, settles=None):
    """`needs`: a package that torch does not bring. `settles`: after so many steps hits count as settled, where kinds are not told apart."""

    def add(function):
        PROGRAMS[function.__name__.replace("_", "-")] = (function, does, needs, settles)
        return function

    return add


class Words:
    """A GPT-2 and its steps at any batch and length."""

    def __init__(self, size, layers=4, longest=1024):
        self.words, width, layers = (512, 64, 2) if size == "small" else (8192, 768, layers)
        with torch.device("cuda"):
            self.model = Gpt2(self.words, longest, width, layers, 4 if size == "small" else 12, True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)

    def batch(self, batch, length):
        made = torch.randint(self.words, (batch, length + 1), device="cuda")
        return made[:, :-1], made[:, 1:]

    def loss(self, batch, length):
        x, target = self.batch(batch, length)
        return F.cross_entropy(self.model(x).flatten(0, 1), target.flatten())

    def train(self, batch, length):
        self.optimizer.zero_grad()
        self.loss(batch, length).backward()
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self, batch, length):
        self.model.eval()
        self.loss(batch, length)
        self.model.train()


def image_step(model, optimizer, x, target):
    optimizer.zero_grad()
    F.cross_entropy(model(x), target).backward()
    optimizer.step()


@program("lengths 128, 256, 384 and 512 in random turns, batch 16")
def buckets(size):
    words, turns = Words(size), random.Random(1)
    for _ in range(120):
        length = turns.choice((128, 256, 384, 512)) // (8 if size == "small" else 1)
        words.train(16, length)
        yield f"length {length}"


@program("8 steps of training, then 4 of evaluation at twice the batch")
def train_8_evaluate_4(size):
    words, length = Words(size), 64 if size == "small" else 512
    for index in range(120):
        if index % 12 < 8:
            words.train(8, length)
            yield "train"
        else:
            words.evaluate(16, length)
            yield "evaluate"


@program("an evaluation of 4 batches after every 10 steps of training")
def evaluate_every_10(size):
    words, length = Words(size), 64 if size == "small" else 512
    for index in range(112):
        if index % 14 < 10:
            words.train(8, length)
            yield "train"
        else:
            words.evaluate(8, length)
            yield "evaluate"


@program("epochs of 10 batches of 16, the last one of 5")
def short_last_batch(size):
    words, length = Words(size), 64 if size == "small" else 512
    for index in range(120):
        batch = 5 if index % 10 == 9 else 16
        words.train(batch, length)
        yield f"batch {batch}"


@program("the batch grows by 2 every 15 steps, from 2 to 16")
def growing_batch(size):
    words, length = Words(size), 64 if size == "small" else 512
    for index in range(120):
        batch = 2 + 2 * (index // 15)
        words.train(batch, length)
        yield f"batch {batch}"


@program("gradients of 4 micro-batches are added up before each step of the optimizer")
def accumulation_of_4(size):
    words, length = Words(size), 64 if size == "small" else 512
    for _ in range(60):
        words.optimizer.zero_grad()
        for _ in range(4):
            (words.loss(8, length) / 4).backward()
        words.optimizer.step()
        yield "step"


@program("FSDP2 (fully_shard) on one rank, each block a group")
def fsdp2(size):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=torch.device("cuda:0"))
    words, length = Words(size, layers=6), 64 if size == "small" else 512
    for block in words.model.blocks:
        fully_shard(block)
    fully_shard(words.model)
    words.optimizer = torch.optim.AdamW(words.model.parameters(), 1e-4)
    for _ in range(60):
        words.train(8, length)
        yield "step"
    del words, block
    dist.destroy_process_group()


@program("ViT-B/16 with AdamW, batch 16", needs="torchvision")
def vit_b_16(size):
    model = networks.image("vit", 16).model
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(60):
        image_step(
            model, optimizer, torch.randn(16, 3, 224, 224, device="cuda"), torch.randint(1000, (16,), device="cuda")
        )
        yield "step"


@program("ResNet-34, batch 32, the next batch copied on a second stream meanwhile", needs="torchvision")
def resnet34_prefetch(size):
    model = networks.image("resnet34", 32).model
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    side = torch.cuda.Stream()
    host = torch.zeros(32, 3, 224, 224).pin_memory(), torch.zeros(32, dtype=torch.long).pin_memory()

    def fetch():
        with torch.cuda.stream(side):
            return [part.cuda(non_blocking=True) for part in host]

    coming = fetch()
    for _ in range(60):
        torch.cuda.current_stream().wait_stream(side)
        batch = coming
        for part in batch:
            part.record_stream(torch.cuda.current_stream())
        coming = fetch()
        image_step(model, optimizer, *batch)
        del batch, part
        yield "step"


@program("a GAN on 64 x 64 images, one optimizer step each of critic and generator a round")
def gan(size):
    width = 16 if size == "small" else 64

    def up(inputs, outputs, stride=2):
        return [
            nn.ConvTranspose2d(inputs, outputs, 4, stride, 1 if stride == 2 else 0, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(True),
        ]

    def down(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2, True)]

    with torch.device("cuda"):
        generator = nn.Sequential(
            *up(100, 8 * width, 1),
            *up(8 * width, 4 * width),
            *up(4 * width, 2 * width),
            *up(2 * width, width),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
            nn.Tanh(),
        )
        critic = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            *down(width, 2 * width),
            *down(2 * width, 4 * width),
            *down(4 * width, 8 * width),
            nn.Conv2d(8 * width, 1, 4),
            nn.Flatten(0),
        )
    makes, judges = (torch.optim.Adam(model.parameters(), 2e-4, betas=(0.5, 0.999)) for model in (generator, critic))
    batch = 16 if size == "small" else 128
    for _ in range(60):
        real = torch.randn(batch, 3, 64, 64, device="cuda")
        fake = generator(torch.randn(batch, 100, 1, 1, device="cuda"))
        judges.zero_grad()
        F.binary_cross_entropy_with_logits(critic(real), torch.ones(batch, device="cuda")).backward()
        F.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(batch, device="cuda")).backward()
        judges.step()
        yield "critic"
        makes.zero_grad()
        F.binary_cross_entropy_with_logits(critic(fake), torch.ones(batch, device="cuda")).backward()
        makes.step()
        del real, fake
        yield "generator"


def turns_of(count):
    @program(f"{count} kinds of steps in random turns: batches and lengths of their own, every third an evaluation")
    def turns(size):
        words, turn = Words(size), random.Random(count)
        kinds = [(8, 512, True), (16, 384, True), (24, 256, False), (4, 768, True), (12, 320, True), (6, 1000, False)][
            :count
        ]
        for _ in range(120):
            batch, length, trains = turn.choice(kinds)
            length //= 8 if size == "small" else 1
            (words.train if trains else words.evaluate)(batch, length)
            yield f"{'train' if trains else 'evaluate'} {batch} x {length}"

    PROGRAMS[f"turns-of-{count}"] = PROGRAMS.pop("turns")


for kinds in range(2, 7):
    turns_of(kinds)


@program("lengths drawn from 20 values, 64 to 1,024, batch 8", settles=50)
def lengths_20(size):
    words, turn = Words(size), random.Random(20)
    lengths = sorted(turn.sample(range(64, 1025, 8), 20))
    for _ in range(150):
        words.train(8, turn.choice(lengths) // (8 if size == "small" else 1))
        yield "length"


@program("lengths drawn from 1 to 1,024, batch 8", settles=50)
def lengths_1024(size):
    words, turn = Words(size), random.Random(1024)
    for _ in range(150):
        words.train(8, max(1, turn.randint(1, 1024) // (8 if size == "small" else 1)))
        yield "length"


@program(
    "generation of 96 tokens after prompts of 32 to 160, each layer's cache one tensor that grows by a token",
    settles=15,
)
@torch.no_grad()
def generation(size):
    width, heads, layers, batch, words, turn = (
        (64, 4, 2, 4, 512, random.Random(7)) if size == "small" else (1024, 16, 6, 32, 8192, random.Random(7))
    )
    with torch.device("cuda"):
        embed, head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "into": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
    for _ in range(30):
        cache = [None] * layers
        fresh = torch.randint(
            words, (batch, turn.choice((32, 64, 96, 128, 160)) // (4 if size == "small" else 1)), device="cuda"
        )
        kind = f"prompt {fresh.shape[1]}"
        for _ in range(12 if size == "small" else 96):
            x = embed(fresh)
            for index, block in enumerate(blocks):
                q, k, v = (
                    part.view(batch, -1, heads, width // heads).transpose(1, 2)
                    for part in block["into"](block["norm"](x)).chunk(3, -1)
                )
                if cache[index] is not None:
                    k, v = torch.cat((cache[index][0], k), 2), torch.cat((cache[index][1], v), 2)
                cache[index] = k, v
                x = x + block["out"](
                    F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1).transpose(1, 2).reshape(x.shape)
                )
                x = x + block["down"](F.gelu(block["up"](x)))
            fresh = head(x[:, -1:]).argmax(-1)
        del cache, fresh, x, q, k, v
        yield kind


IMAGES = {  # torchvision: name, batch
    "alexnet": 256,
    "vgg16": 16,
    "resnet18": 32,
    "resnet50": 16,
    "densenet121": 16,
    "mobilenet_v3_large": 32,
    "efficientnet_b0": 16,
    "convnext_tiny": 16,
    "swin_t": 16,
    "shufflenet_v2_x1_0": 64,
}
TEXTS = {  # transformers: what differs from the default
    "bert": {"num_hidden_layers": 4},
    "gpt2": {"n_layer": 4},
    "t5": {"num_layers": 4},
    "distilbert": {"n_layers": 4},
    "llama": {
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
    },
}


def static(name, kind):
    """The same step again and again, without a period that changes."""
    package = "torchvision" if name in IMAGES else "transformers"

    @program(f"{name} of {package} with {kind}, always the same step", needs=package)
    def run(size):
        problem = networks.image(name, IMAGES[name]) if name in IMAGES else networks.text(name, 8, 256, **TEXTS[name])
        model = problem.model.train()
        optimizer = (
            torch.optim.AdamW(model.parameters(), 1e-4)
            if kind == "AdamW"
            else torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        )
        for _ in range(30):
            if name in IMAGES:
                batch = IMAGES[name]
                image_step(
                    model,
                    optimizer,
                    torch.randn(batch, 3, 224, 224, device="cuda"),
                    torch.randint(1000, (batch,), device="cuda"),
                )
            else:
                words = torch.randint(1000, (8, 256), device="cuda")
                optimizer.zero_grad()
                problem.loss(model, words).backward()
                optimizer.step()
                del words
            yield "step"

    PROGRAMS[f"static-{name}-{kind.lower()}"] = PROGRAMS.pop("run")


for name in (*IMAGES, *TEXTS):
    for kind in ("AdamW", "SGD"):
        static(name, kind)
