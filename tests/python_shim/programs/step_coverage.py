"""Small steps over most of what torch.nn, its losses and optimizers have, as written and by a step program.

step_coverage.py DEVICE: prints a JSON object with a list for each of: `different` (results are not equal to the bit: on the CPU, since
the stand-in computes nothing), `failed` (an error that the step as written has not), `as_written` (never scheduled, with why), `ran`.
"""

import copy
import io
import json
import sys
import warnings

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import berth

warnings.filterwarnings("ignore")
device = sys.argv[1]
ROWS, WIDTH, STEPS = 8, 16, 7


class Applied(nn.Module):
    """Modules used in a way of their own, or a function of the input times a weight."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.modules_, self.weight = (
            function,
            nn.ModuleList(modules),
            nn.Parameter(torch.randn(WIDTH, WIDTH)),
        )

    def forward(self, x):
        return self.function(*self.modules_, x) if self.modules_ else self.function(x @ self.weight)


def dense(layer):
    return nn.Sequential(nn.Linear(WIDTH, 32), layer, nn.Linear(32, WIDTH)), (ROWS, WIDTH)


def image(*layers, shape=(4, 8, 12, 12)):
    return nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), *layers), shape


def sequence(function, *modules):
    return Applied(function, *modules), (4, 5, WIDTH)


def words(layer):
    return Applied(lambda layer, x: layer((5 * x).long().abs().clamp(max=9)), layer), (4, 5)


def positive(x):
    return x.T @ x + 10 * torch.eye(WIDTH, device=x.device)


def written(x):
    copied = x.detach().cpu()
    array = copied.numpy()
    array *= 2
    return x + copied.to(x.device)


def assigned(x):
    copied = x.clone()
    copied[:, 0] = x[:, 1]
    return copied


def saved(x):
    torch.save(x.detach(), io.BytesIO())
    return 2 * x


ACTIVATIONS = [
    "ELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardtanh",
    "Hardswish",
    "LeakyReLU",
    "LogSigmoid",
    "PReLU",
    "ReLU",
    "ReLU6",
    "RReLU",
    "SELU",
    "CELU",
    "GELU",
    "Sigmoid",
    "SiLU",
    "Mish",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Dropout",
    "AlphaDropout",
    "FeatureAlphaDropout",
]
IN_PLACE = ["ReLU", "SiLU", "ELU", "LeakyReLU", "Hardtanh", "Hardswish", "Mish", "SELU", "CELU", "RReLU", "Dropout"]
LAYERS = {
    **{name: lambda name=name: dense(getattr(nn, name)()) for name in ACTIVATIONS},
    **{f"{name} in place": lambda name=name: dense(getattr(nn, name)(inplace=True)) for name in IN_PLACE},
    **{name: lambda name=name: dense(getattr(nn, name)(dim=1)) for name in ("Softmin", "Softmax", "LogSoftmax")},
    "Threshold": lambda: dense(nn.Threshold(0.1, 0.2)),
    "GLU": lambda: (nn.Sequential(nn.Linear(WIDTH, 32), nn.GLU()), (ROWS, WIDTH)),
    "BatchNorm1d": lambda: (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)), (ROWS, WIDTH)),
    "BatchNorm2d": lambda: image(nn.BatchNorm2d(8)),
    "InstanceNorm2d": lambda: image(nn.InstanceNorm2d(8, affine=True, track_running_stats=True)),
    "GroupNorm": lambda: image(nn.GroupNorm(2, 8)),
    "LocalResponseNorm": lambda: image(nn.LocalResponseNorm(2)),
    "LayerNorm": lambda: image(nn.LayerNorm([8, 12, 12])),
    "RMSNorm": lambda: image(nn.RMSNorm([12])),
    "MaxPool2d": lambda: image(nn.MaxPool2d(2)),
    "AvgPool2d": lambda: image(nn.AvgPool2d(2)),
    "AdaptiveAvgPool2d": lambda: image(nn.AdaptiveAvgPool2d(3)),
    "AdaptiveMaxPool2d": lambda: image(nn.AdaptiveMaxPool2d(3)),
    "LPPool2d": lambda: image(nn.LPPool2d(2, 3)),
    "FractionalMaxPool2d": lambda: image(nn.FractionalMaxPool2d(2, output_size=5)),
    **{
        f"Upsample, {mode}": lambda mode=mode: image(nn.Upsample(scale_factor=2, mode=mode))
        for mode in ("nearest", "bilinear", "bicubic")
    },
    "PixelShuffle": lambda: image(nn.PixelShuffle(2)),
    "ChannelShuffle": lambda: image(nn.ChannelShuffle(2)),
    "pads": lambda: image(nn.ReflectionPad2d(1), nn.ReplicationPad2d(1), nn.ZeroPad2d(1), nn.CircularPad2d(1)),
    "Dropout2d": lambda: image(nn.Dropout2d()),
    "ConvTranspose2d": lambda: image(nn.ConvTranspose2d(8, 4, 2, 2)),
    "convolutions": lambda: image(
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Conv2d(8, 8, 3, dilation=2),
        nn.Conv2d(8, 4, 3, stride=2, padding=1, padding_mode="reflect"),
    ),
    "channels last": lambda: (image(nn.BatchNorm2d(8))[0].to(memory_format=torch.channels_last), (4, 8, 12, 12)),
    "Unfold": lambda: image(nn.Unfold(3)),
    "Conv1d": lambda: (nn.Sequential(nn.Conv1d(4, 8, 3), nn.MaxPool1d(2), nn.AvgPool1d(2)), (4, 4, 32)),
    "Conv3d": lambda: (
        nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.MaxPool3d(2)),
        (2, 2, 8, 8, 8),
    ),
    **{
        name: lambda name=name: sequence(
            lambda net, x: net(x)[0],
            getattr(nn, name)(WIDTH, WIDTH, num_layers=2, dropout=0.3, bidirectional=True, batch_first=True),
        )
        for name in ("RNN", "LSTM", "GRU")
    },
    "LSTM, projected": lambda: sequence(lambda net, x: net(x)[0], nn.LSTM(WIDTH, WIDTH, proj_size=8, batch_first=True)),
    "LSTMCell": lambda: sequence(lambda cell, x: cell(x[:, 0], cell(x[:, 1]))[0], nn.LSTMCell(WIDTH, WIDTH)),
    "MultiheadAttention": lambda: sequence(
        lambda net, x: net(x, x, x)[0], nn.MultiheadAttention(WIDTH, 4, dropout=0.1, batch_first=True)
    ),
    "TransformerEncoder": lambda: (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 4, 32, activation="gelu", norm_first=True, batch_first=True), 2
        ),
        (4, 5, WIDTH),
    ),
    "TransformerDecoder": lambda: sequence(
        lambda net, x: net(x, x), nn.TransformerDecoderLayer(WIDTH, 4, 32, batch_first=True)
    ),
    "Embedding": lambda: words(nn.Embedding(10, WIDTH)),
    "Embedding, renormed": lambda: words(nn.Embedding(10, WIDTH, padding_idx=0, max_norm=1.0)),
    "Embedding, sparse": lambda: words(nn.Embedding(10, WIDTH, sparse=True)),
    "EmbeddingBag": lambda: words(nn.EmbeddingBag(10, WIDTH)),
    "Bilinear": lambda: (Applied(lambda net, x: net(x, x), nn.Bilinear(WIDTH, WIDTH, WIDTH)), (ROWS, WIDTH)),
}
FUNCTIONS = {
    "attention": lambda x: F.scaled_dot_product_attention(
        x.view(2, 2, 4, 8), x.view(2, 2, 4, 8), x.view(2, 2, 4, 8), is_causal=True
    ),
    "attention, dropout": lambda x: F.scaled_dot_product_attention(
        x.view(2, 2, 4, 8), x.view(2, 2, 4, 8), x.view(2, 2, 4, 8), dropout_p=0.2
    ),
    "attention, half": lambda x: F.scaled_dot_product_attention(*[x.bfloat16().view(2, 2, 4, 8)] * 3).float(),
    "cdist": lambda x: torch.cdist(x, x.detach() + 1),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(3, 1)[0],
    "gather": lambda x: x.gather(1, x.argsort(1)),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, x.argsort(1), x),
    "index": lambda x: x[:, [0, 2, 4]] + x[torch.arange(ROWS, device=x.device), :3],
    "index, put": lambda x: torch.zeros_like(x).index_put((torch.arange(ROWS, device=x.device),), x, accumulate=True),
    "index, mask": lambda x: x[x > 0],
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.5),
    "where": lambda x: torch.where(x > 0, x, 2 * x),
    "einsum": lambda x: torch.einsum("bi,bj->bij", x, x),
    "reductions": lambda x: (
        x.logsumexp(1) + x.norm(dim=1) + x.std(1) + torch.var_mean(x, 1)[0] + x.median(1)[0] + x.max(1)[0] + x.amax(1)
    ),
    "shapes": lambda x: (
        torch.stack(torch.cat(x.flip(1).roll(1, 1).chunk(4, 1)[::-1], 1).unbind(1)).repeat(2, 3).unfold(1, 4, 2)
    ),
    "as_strided": lambda x: x.as_strided((4, 4), (16, 2)),
    "repeat_interleave": lambda x: x.repeat_interleave(
        torch.ones(ROWS, dtype=torch.long, device=x.device), 0, output_size=ROWS
    ),
    "fft": lambda x: torch.fft.rfft(x).abs(),
    "complex": lambda x: torch.view_as_complex(x.reshape(8, 8, 2)).abs(),
    "linear algebra": lambda x: (
        torch.linalg.inv(positive(x)) + torch.linalg.cholesky(positive(x)) + torch.logdet(positive(x))
    ),
    "elementwise": lambda x: (
        x.abs().pow(1.5)
        + torch.atan2(x, x + 1)
        + x.erf()
        + x.clamp(-1, 1)
        + torch.addcmul(x, x, x)
        + torch.lerp(x, 2 * x, 0.3)
    ),
    "interpolate": lambda x: F.interpolate(x.unsqueeze(1), scale_factor=2, mode="linear"),
    "grid_sample": lambda x: F.grid_sample(
        x.reshape(2, 4, 4, 4), 2 * torch.rand(2, 3, 3, 2, device=x.device) - 1, align_corners=False
    ),
    "one_hot": lambda x: F.one_hot((x > 0).long(), 2) * x.unsqueeze(-1),
    "draws": lambda x: (
        x + torch.randn_like(x) + x[torch.randperm(ROWS, device=x.device)] * torch.bernoulli(torch.full_like(x, 0.5))
    ),
    "multinomial": lambda x: x[torch.multinomial(torch.ones(ROWS, device=x.device), 4)],
    "gumbel_softmax": F.gumbel_softmax,
    "nonzero": lambda x: x.flatten()[(x > 0).flatten().nonzero().squeeze(1)],
    "unique": lambda x: x * len(torch.unique((3 * x).long())),
    "item": lambda x: x * x.sum().item(),
    "branch": lambda x: x * (2 if x.sum() > 0 else 3),
    "tolist": lambda x: x * sum(x[0].tolist()),
    "numpy": lambda x: x * float(x.detach().cpu().numpy().sum()),
    "numpy, forced": lambda x: x * float(x.numpy(force=True)[0, 0]),
    "numpy, written": written,
    "asarray": lambda x: x * float(numpy.asarray(x.detach().cpu()).sum()),
    "printed": lambda x: x * len(str(x.sum())) * len(repr(x)) * len(f"{x.sum():.3f}"),
    "deepcopy": lambda x: x + copy.deepcopy(x.detach()),
    "data_ptr": lambda x: x * (1 if x.data_ptr() else 2),
    "storage": lambda x: x * float(x.detach().cpu().untyped_storage()[0]),
    "dlpack": lambda x: x * torch.from_dlpack(x.detach()),
    "saved": saved,
    "other types": lambda x: x.double().sin().float() + x.bfloat16().sin(),
    "in place": lambda x: (
        x.clone().mul_(2).add_(1).sigmoid_() + x.detach().mul_(2) + assigned(x) + torch.empty_like(x).copy_(x)
    ),
    "made anew": lambda x: (
        x * torch.tensor([2.0] * WIDTH, device=x.device)
        + torch.arange(WIDTH, device=x.device)
        + torch.from_numpy(numpy.arange(WIDTH, dtype="float32")).to(x.device)
    ),
    "out": lambda x: torch.add(x.detach(), 1, out=torch.empty(ROWS, WIDTH, device=x.device)) + x,
    "checkpoint": lambda x: (
        checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False)
        + checkpoint(lambda y: y.cos(), x, use_reentrant=True)
    ),
    "hook": lambda x: (x.register_hook(lambda gradient: 2 * gradient), x)[1],
    "gradient of a gradient": lambda x: torch.autograd.grad(x.pow(2).sum(), x, create_graph=True)[0],
    "lists": lambda x: sum(torch._foreach_mul([x, 2 * x], 2.0)),
    "vmap": lambda x: torch.vmap(lambda row: row.sin().sum())(x),
    "sparse": lambda x: torch.sparse.mm(torch.eye(ROWS, device=x.device).to_sparse(), x),
}
LOSSES = {
    "l1": F.l1_loss,
    "huber": F.huber_loss,
    "bce": lambda y, t: (
        F.binary_cross_entropy(y.sigmoid(), t.sigmoid()) + F.binary_cross_entropy_with_logits(y, t.sigmoid())
    ),
    "cross entropy": lambda y, t: F.cross_entropy(y, t.argmax(1), label_smoothing=0.1),
    "kl": lambda y, t: F.kl_div(y.log_softmax(1), t.softmax(1), reduction="batchmean"),
    "poisson": F.poisson_nll_loss,
    "embeddings": lambda y, t: (
        F.cosine_embedding_loss(y, t, torch.ones(ROWS, device=y.device)) + F.triplet_margin_loss(y, t, -t)
    ),
    "margins": lambda y, t: (
        F.multi_margin_loss(y, t.argmax(1)) + F.soft_margin_loss(y, t.sign()) + F.margin_ranking_loss(y, t, t.sign())
    ),
    "ctc": lambda y, t: F.ctc_loss(
        y.reshape(8, 4, 4).log_softmax(2), torch.tensor([[1, 2, 1]] * 4, device=y.device), (8,) * 4, (3,) * 4
    ),
}
OPTIMIZERS = {
    "SGD, Nesterov": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, nesterov=True),
    "Adam, lists": lambda p: torch.optim.AdamW(p, foreach=True, amsgrad=True),
    "Adam, fused": lambda p: torch.optim.AdamW(p, fused=True),
    "Muon": lambda p: torch.optim.Muon([one for one in p if one.ndim == 2]),
    **{
        name: lambda p, name=name: getattr(torch.optim, name)(p)
        for name in (
            "Adam",
            "Adagrad",
            "Adadelta",
            "Adamax",
            "RMSprop",
            "Rprop",
            "NAdam",
            "RAdam",
            "ASGD",
            "Adafactor",
            "LBFGS",
        )
    },
}


def train(make, loss, make_optimizer, habit, program):
    torch.manual_seed(3)
    net, shape = make()
    net, x, target = net.to(device), torch.randn(shape).to(device), torch.randn(ROWS, WIDTH).to(device)
    optimizer, seen = make_optimizer(net.parameters()), []
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10) if habit == "rates" else None
    scaler = torch.amp.GradScaler(device) if habit == "scaler" else None

    def closure():
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=habit == "autocast"):
            y = net(x)
            value = loss(y, target) if loss else y.float().pow(2).mean()
        (scaler.scale(value) if scaler else value).backward()
        if habit == "clipped":
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        return value

    def body():
        if isinstance(optimizer, torch.optim.LBFGS):
            value = optimizer.step(closure)
        else:
            value = closure()
            scaler.step(optimizer) if scaler else optimizer.step()
        if scaler:
            scaler.update()
        if rates:
            rates.step()
        if habit == "weights read":
            seen.append(torch.tensor(next(net.parameters()).detach().cpu().numpy().copy()))
            seen.append(torch.tensor(next(net.parameters()).tolist()))
        if habit == "losses kept":
            seen.append(torch.from_numpy(value.detach().cpu().numpy()))
        seen.append(value.detach().clone())

    for _ in range(STEPS):
        if program is None:
            body()
        else:
            with program.step():
                body()
    gradients = [one.grad for one in net.parameters() if one.grad is not None and not one.grad.is_sparse]
    return [*seen, *net.parameters(), *net.buffers(), *gradients, torch.get_rng_state()]


def same(a, b):
    return a.shape == b.shape and torch.equal(
        a.detach().contiguous().view(-1).view(torch.uint8), b.detach().contiguous().view(-1).view(torch.uint8)
    )


found = {"different": [], "failed": {}, "as_written": {}, "ran": []}


def compare(name, make, loss=None, make_optimizer=lambda p: torch.optim.SGD(p, 0.01), habit=""):
    try:
        expected = train(make, loss, make_optimizer, habit, None)
    except Exception:  # what the stand-in lacks, and shapes by data that it does not compute
        return
    program = berth.StepProgram(plan_wait=1e9)
    found["ran"].append(name)
    try:
        there = train(make, loss, make_optimizer, habit, program)
    except Exception as error:
        found["failed"][name] = str(error)[:300]
        return
    stats = program.stats()
    if device == "cpu" and not (len(there) == len(expected) and all(map(same, there, expected))):
        found["different"].append(name)
    if stats.scheduled == 0:
        found["as_written"][name] = stats.last_refusal or stats.last_divergence


def mlp():
    return dense(nn.Tanh())


for name, make in LAYERS.items():
    compare(name, make)
for name, function in FUNCTIONS.items():
    compare(name, lambda function=function: (Applied(function), (ROWS, WIDTH)))
for name, loss in LOSSES.items():
    compare(name, mlp, loss)
for name, make_optimizer in OPTIMIZERS.items():
    compare(name, mlp, None, make_optimizer)
for habit in ("rates", "autocast", "clipped", "scaler", "weights read", "losses kept"):
    for name in ("ReLU", "BatchNorm2d", "TransformerEncoder"):
        compare(f"{name}, {habit}", LAYERS[name], None, lambda p: torch.optim.AdamW(p, fused=True), habit)
print(json.dumps(found))
