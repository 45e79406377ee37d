"""Programs for bench/least_device, by name: unchanged PyTorch whose requests repeat, grow, change or run on several streams. Usage: programs.py NAME [small]"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SMALL = len(sys.argv) > 2
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__.replace("_", "-")] = function
    return function


def scaled(size):
    return max(1, size // 16) if SMALL else size


def trained(model, learning_rate=1e-4):
    return model.cuda(), torch.optim.AdamW(model.parameters(), learning_rate)


def update(optimizer, loss):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


class Words(nn.Module):
    def __init__(self, layers=6, width=512, checkpoints=False):
        super().__init__()
        self.embedding, self.head = nn.Embedding(8192, width, device="cuda"), nn.Linear(width, 8192, device="cuda")
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, device="cuda") for _ in range(layers)
        )
        self.checkpoints = checkpoints

    def forward(self, batch, length):
        tokens = torch.zeros(batch, length, dtype=torch.long, device="cuda")
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints and self.training else layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


@program
def growing_batches():
    model, optimizer = trained(nn.Linear(1024, 1024))
    for step in range(1, 13):
        batch = torch.empty(step << (24 if SMALL else 28), device="cuda", dtype=torch.uint8)
        update(optimizer, model(torch.randn(8, 1024, device="cuda")).sum())
        del batch


@program
def changing_lengths():
    model, optimizer = trained(Words())
    for length in (256, 512, 320, 704, 448, 960, 384, 832, 576, 1024, 640, 768):
        update(optimizer, model(scaled(16), length))


@program
def perceptron():
    model, optimizer = trained(nn.Sequential(*(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(12))))
    for _ in range(6):
        update(optimizer, model(torch.randn(scaled(16384), 2048, device="cuda")).square().mean())


@program
def convolutions():
    widths = (3, 64, 128, 256, 512)
    layers = [
        nn.Sequential(nn.Conv2d(a, b, 3, 2 if a > 3 else 1, 1), nn.BatchNorm2d(b), nn.ReLU())
        for a, b in zip(widths, widths[1:])
    ]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(6):
        update(optimizer, model(torch.randn(scaled(64), 3, 224, 224, device="cuda")).square().mean())


@program
def transformer():
    model, optimizer = trained(Words(8))
    for _ in range(6):
        update(optimizer, model(scaled(32), 512))


@program
def evaluation_between():
    model, optimizer = trained(Words())
    for step in range(8):
        update(optimizer, model(scaled(16), 512))
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                model(scaled(96), 640)
            model.train()


@program
def accumulation():
    model, optimizer = trained(Words())
    for step in range(4):
        for part in range(4):
            model(scaled(8 + 4 * part), 384 + 64 * ((step + part) % 3)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)


@program
def checkpoints():
    model, optimizer = trained(Words(12, checkpoints=True))
    for length in (512, 768, 512, 1024, 640):
        update(optimizer, model(scaled(24), length))


@program
def several_streams():
    model, optimizer = trained(nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)))
    side = torch.cuda.Stream()
    for step in range(10):
        with torch.cuda.stream(side):
            batch = torch.empty(scaled(8192 + 1024 * step), 1024, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        update(optimizer, model(batch).square().mean())
        del batch


@program
def emptied_cache():
    model, optimizer = trained(Words(4))
    for step in range(8):
        update(optimizer, model(scaled(12 + 4 * (step % 3)), 512 + 64 * step))
        torch.cuda.empty_cache()


@program
def generation():
    layers, heads, size, batch = 12, 16, 64, scaled(16)
    keys = [torch.empty(batch, heads, 64, size, device="cuda", dtype=torch.half) for _ in range(2 * layers)]
    for _ in range(160):
        for i in range(2 * layers):
            keys[i] = torch.cat([keys[i], torch.empty(batch, heads, 8, size, device="cuda", dtype=torch.half)], 2)


@program
def mixed_precision():
    model, optimizer = trained(Words(8))
    scaler = torch.amp.GradScaler("cuda")
    for length in (512, 640, 512, 896, 512, 768):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(scaled(24), length)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@program
def two_optimizers():
    make, judge = Words(4), Words(3, 384)
    makes, judges = torch.optim.AdamW(make.parameters()), torch.optim.SGD(judge.parameters(), lr=0.1, momentum=0.9)
    for step in range(6):
        update(judges, judge(scaled(24), 512) + make(scaled(8), 512).detach())
        update(makes, make(scaled(24), 448 + 64 * step))


@program
def recurrent():
    model = nn.LSTM(512, 1024, 2, batch_first=True).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for length in (128, 256, 192, 384, 224, 320):
        update(optimizer, model(torch.randn(scaled(64), length, 512, device="cuda"))[0].square().mean())


if __name__ == "__main__":
    torch.manual_seed(1)
    PROGRAMS[sys.argv[1]]()
    torch.cuda.synchronize()
