#!/usr/bin/env python3
"""Random training steps in which data decide shapes, run as written and in a step program: all that is left must be equal, to the bit, and no step may be refused.

A body is a list of statements, drawn from a seed, on rows of a fixed width: masks, indices of what is not zero, unique ids, slices by a
number that the body has read, experts, counts that repeat rows, sparse gradients, and what works on rows as many as they are. Some
statements come in some steps only, so that steps leave their programs. It needs torch and berth.

    tests/fuzz/step_shapes.py --programs 1000 --seed 1   # 0: all equal and none refused
    tests/fuzz/step_shapes.py --only 12 --tell           # one of them, with its statements
"""

import argparse
import contextlib
import random
import sys
import time
import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import berth

WIDTH, ROWS, STEPS = 8, 24, 14


class Marked(torch.autograd.Function):
    """Writes what it takes."""

    @staticmethod
    def forward(context, x):
        x.mul_(0.5)
        context.mark_dirty(x)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient * 0.5


@torch.library.custom_op("step_shapes::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 0.75


@torch.library.custom_op("step_shapes::scaled_backward", mutates_args=())
def scaled_backward(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 0.75


scaled.register_autograd(lambda context, gradient: scaled_backward(gradient))


@torch.library.custom_op("step_shapes::halve", mutates_args=("x",))
def halve(x: torch.Tensor) -> None:
    x.mul_(0.5)


class Halved(torch.autograd.Function):
    """Has an operator of its own write what it takes."""

    @staticmethod
    def forward(context, x):
        halve(x)
        context.mark_dirty(x)
        context.save_for_backward(x)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient * (0.5 + 0 * context.saved_tensors[0])


@torch.library.custom_op("step_shapes::weighed", mutates_args=())
def weighed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (x * weight).tanh()


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs, output)


def weighed_backward(context, gradient):
    x, weight, result = context.saved_tensors
    gradient = gradient * (1 - result * result)
    return gradient * weight, (gradient * x).sum(0)


weighed.register_autograd(weighed_backward, setup_context=keep)


@torch.library.custom_op("step_shapes::count", mutates_args=("counts",))
def count(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    counts.add_(x.gt(0).sum(0))
    return x.sign()


@torch.library.custom_op("step_shapes::chosen", mutates_args=())
def chosen(x: torch.Tensor) -> torch.Tensor:
    return x[x[:, 0] > 0]


def chosen_backward(context, gradient):
    (x,) = context.saved_tensors
    return torch.zeros_like(x).index_put((x[:, 0] > 0,), gradient)


chosen.register_autograd(chosen_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


class Run:
    """What a body works on."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.enter, self.router = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)) for _ in range(3)
        )
        self.norm, self.table = nn.LayerNorm(WIDTH), nn.Embedding(12, WIDTH)
        self.counts = torch.zeros(WIDTH, dtype=torch.long)
        self.sparse = nn.Embedding(12, WIDTH, sparse=True)
        modules = (self.enter, self.router, self.experts, self.norm, self.table)
        self.parameters = [one for module in modules for one in module.parameters()]
        kinds = [
            lambda: torch.optim.SGD(self.parameters, 0.05, momentum=0.9),
            lambda: torch.optim.AdamW(self.parameters, 0.01),
        ]
        self.optimizers = [kinds[seed % 2](), torch.optim.SparseAdam(list(self.sparse.parameters()), 0.01)]

    def moe(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for n, expert in enumerate(self.experts):
            token, rank = torch.where(chosen == n)
            out = out.index_add(0, token, weights[token, rank, None] * expert(x[token]))
        return out

    def below(self, x):
        """A number of rows that data decide."""
        return int(x.detach().gt(0).sum().item()) % (len(x) + 1)

    def ids(self, x):
        return (x.detach()[:, 0].nan_to_num().abs().clamp(max=2) * 5).long()


CHOOSES = [
    "x[x.detach().sum(1) > 0]",
    "x[(x.detach()[:, 0] > 0.1).nonzero().squeeze(1)]",
    "x[:run.below(x)]",
    "x[run.below(x):]",
    "x.split([run.below(x), len(x) - run.below(x)])[0]",
    "run.table(torch.unique(run.ids(x)))",
    "run.table(torch.unique(run.ids(x), return_inverse=True)[1])",
    "x.repeat_interleave(run.ids(x) % 3, 0)",
    "x.masked_select((x.detach()[:, :1] > 0)).view(-1, WIDTH)",
    "x.index_select(0, torch.argwhere(x.detach()[:, 1] < 0.3)[:, 0])",
    "torch.cat([x[x.detach()[:, 0] > 0], x[x.detach()[:, 0] <= 0]])",
    "torch.cat([x[:run.below(x)], first])",
    "x[x.detach().mean(1).gt(torch.rand(len(x)) - 0.5)]",
    "run.sparse(torch.unique(run.ids(x)))",
]
WORKS = [
    "run.moe(x)",
    "run.enter(x)",
    "run.norm(x)",
    "x.relu()",
    "functional.gelu(x) * 2",
    "functional.dropout(x, 0.2)",
    "x + y.sum(0)",
    "x - x.detach().mean(0, keepdim=True)",
    "x.clone().mul_(0.5).add_(1)",
    "x * torch.rand(len(x), 1)",
    "x.softmax(-1)",
    "x.cumsum(0) * 0.1",
    "torch.zeros(ROWS, WIDTH).index_add(0, torch.arange(len(x)) % ROWS, x)",
    "functional.pad(x, (0, 0, 0, 2))",
    "x[x.detach()[:, 2] > 0].sum(0) + first",
    "run.experts[0](x) + x",
    "x @ (y.t() @ y) * 0.01",
    "x.masked_scatter(x.detach() > 1, x.flip(0) * 0.5)",
    "torch.where(x > 0, x, x * 0.1)",
    "run.sparse(run.ids(x)) + x",
    "checkpoint(run.experts[1], x, use_reentrant=False)",
]
OWN = [
    "Marked.apply(x.clone()) + 1",
    "scaled(x) + x",
    "(lambda z: (halve(z), z)[1])(x.detach().clone()) + x",
    "Halved.apply(x * 1) + 1",
    "Halved.apply(x.clone())",
    "weighed(x, run.enter.bias)",
    "count(x.detach(), run.counts) + x",
    "chosen(x)",
]


class Statement:
    def __init__(self, code, numbers, when=None):
        self.code, self.numbers, self.when = code, numbers, when

    def __str__(self):
        return f"{self.code}; {self.numbers}" + (f" in steps {self.when}" if self.when else "")


def draw(random_, own):
    """A list of statements."""

    def one():
        codes = random_.choices([CHOOSES, WORKS, OWN], [5, 6, 2 if own else 0])[0]
        when = sorted(random_.sample(range(STEPS), 5)) if random_.random() < 0.12 else None
        return Statement(random_.choice(codes), [random_.randrange(100) for _ in range(2)], when)

    return [one() for _ in range(random_.randint(2, 9))]


def run_body(run, body, step):
    first = torch.randn(ROWS, WIDTH)
    values = [run.enter(first)]
    for statement in body:
        if statement.when is not None and step not in statement.when:
            continue
        x, y = (values[n % len(values)] for n in statement.numbers)
        scope = {**globals(), "run": run, "x": x, "y": y, "first": first}
        values.append(eval(statement.code, scope))
    for optimizer in run.optimizers:
        optimizer.zero_grad()
    loss = sum(one.square().sum() for one in values) / 100
    loss.backward()
    for optimizer in run.optimizers:
        optimizer.step()
    return [loss, *values, *(one.grad for one in run.parameters)]


def outcome(seed, body, program):
    run, seen = Run(seed), []
    for step in range(STEPS):
        with program.step() if program is not None else contextlib.nullcontext():
            left = run_body(run, body, step)
        left += [*run.parameters, *run.sparse.parameters(), run.counts, torch.get_rng_state()]
        for optimizer in run.optimizers:
            for state in optimizer.state.values():
                left += [one for one in state.values() if isinstance(one, torch.Tensor)]
        seen.append([None if one is None else one.detach().clone() for one in left])
    return seen


def same(one, other):
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())


def difference(a, b):
    """In words; empty where there is none."""
    for step, (these, those) in enumerate(zip(a, b)):
        if len(these) != len(those):
            return f"step {step} leaves {len(these)} and {len(those)} tensors"
        for n, (one, other) in enumerate(zip(these, those)):
            if not same(one, other):
                return f"step {step}, tensor {n}: {one} and {other}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first; default: %(default)s")
    parser.add_argument("--only", type=int, help="the one with this seed")
    parser.add_argument("--tell", action="store_true", help="print the statements, and the counters")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    first, count = (arguments.only, 1) if arguments.only is not None else (arguments.seed, arguments.programs)
    differ, refused, scheduled, steps, began = 0, 0, 0, 0, time.monotonic()
    for seed in range(first, first + count):
        random_ = random.Random(seed)
        body = draw(random_, own=seed % 2 == 0)
        options = random_.choice(
            [{}, {}, {"memory_budget": "80%", "engine": "chen"}, {"engine": "release"}, {"second_thread": True}]
        )
        program = berth.StepProgram(**options, plan_wait=1e9)
        a, b = outcome(seed, body, None), outcome(seed, body, program)
        stats = program.stats()
        if arguments.tell:
            print(f"seed {seed}: {options}", *body, sep="\n  ")
            print(stats)
        steps += stats.steps
        scheduled += stats.scheduled
        if why := difference(a, b):
            differ += 1
            print(f"seed {seed} differs: {why[:400]}\n  {stats}", flush=True)
        if stats.refused:
            refused += 1
            print(f"seed {seed} is refused: {stats.last_refusal}", flush=True)
    print(
        f"{count} programs, {differ} differ, {refused} are refused, {scheduled} of {steps} steps were scheduled, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if differ or refused else 0


if __name__ == "__main__":
    sys.exit(main())
