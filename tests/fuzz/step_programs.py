#!/usr/bin/env python3
"""Random bodies of training steps, run as written and in a step program: all that a program can see must be equal, to the bit.

A body is a list of statements, drawn from a seed: operators of torch's on random values, in place and on views, with gradients, hooks and
optimizers; operators of its own that count, keep state, draw, or write what they do not say; NumPy, DLPack and pointers; shapes and errors
that data decide; generators; what a process can set; compiled parts; other threads; and some that are others in some steps. It needs torch
and berth.

    tests/fuzz/step_programs.py --programs 3000 --seed 1     # 0: all equal, 1: a body differed; prints its seed
    tests/fuzz/step_programs.py --only 1234 --tell           # one of them, with its statements
    tests/fuzz/step_programs.py --spills --programs 300      # in so little memory that tensors leave for the host
"""

import argparse
import contextlib
import random
import sys
import threading
import time
import traceback
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import berth

N = 6  # values are N x N
WIDE = 64  # with --spills: what is small stays on the device
STEPS = 7

calls_of_state = [0]
hidden = [None]  # a tensor of each run


@torch.library.custom_op("step_fuzz::count", mutates_args=())
def count(x: torch.Tensor) -> int:
    return int((x > 0).sum())


@torch.library.custom_op("step_fuzz::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@torch.library.custom_op("step_fuzz::stateful", mutates_args=())
def stateful(x: torch.Tensor) -> torch.Tensor:
    calls_of_state[0] += 1
    hidden[0].add_(1)
    return x + calls_of_state[0]


@torch.library.custom_op("step_fuzz::draws", mutates_args=())
def draws(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand(x.shape)


@torch.library.custom_op("step_fuzz::writes", mutates_args=("x",))
def writes(x: torch.Tensor) -> None:
    x.mul_(0.5)


@torch.library.custom_op("step_fuzz::pure", mutates_args=())
def pure(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


berth.pure("step_fuzz::pure")


def apart(value):
    """A copy that takes none of the memory of steps."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return value
    room = torch.frombuffer(bytearray(value.numel() * value.element_size()), dtype=value.dtype)
    return room.view(value.shape).copy_(value.detach())


class Run:
    """What a body works on, and what it has seen."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        calls_of_state[0] = 0
        hidden[0] = torch.zeros(N, N)
        self.net = nn.Sequential(
            nn.Linear(N, N), nn.ReLU(inplace=True), nn.Linear(N, N), nn.Dropout(0.2), nn.LayerNorm(N)
        )
        self.norm = nn.BatchNorm1d(N)
        self.table = nn.Embedding(10, N)
        self.lstm = nn.LSTM(N, N)
        self.parameters = [
            *self.net.parameters(),
            *self.norm.parameters(),
            *self.table.parameters(),
            *self.lstm.parameters(),
        ]
        kinds = [
            lambda: torch.optim.SGD(self.parameters, 0.05, momentum=0.9),
            lambda: torch.optim.AdamW(self.parameters, 0.01),
            lambda: torch.optim.Adam(self.parameters, 0.01, foreach=True),
            lambda: torch.optim.SGD(self.parameters, 0.05, foreach=False),
        ]
        self.optimizer = kinds[seed % len(kinds)]()
        self.buffer = torch.zeros(N, N)
        self.room = torch.empty(0)
        self.array = np.linspace(-1, 1, N * N, dtype=np.float32).reshape(N, N)
        self.view_of_weight = self.net[0].weight.detach().numpy() if seed % 7 == 0 else None
        self.generator = torch.Generator().manual_seed(seed)
        self.values, self.log = [], []

    def begin(self, step):
        self.step = step
        self.values = [torch.linspace(-1, 1, N * N).reshape(N, N) * (1 + step % 2)]

    def see(self, value):
        self.log.append(value.detach().clone() if isinstance(value, torch.Tensor) else value)

    def everything(self):
        found = [
            *self.parameters,
            *(p.grad for p in self.parameters),
            *self.norm.buffers(),
            self.buffer,
            hidden[0],
            torch.get_rng_state(),
            torch.from_numpy(self.array.copy()),
            self.generator.get_state(),
        ]
        for state in self.optimizer.state.values():
            found += [value for value in state.values() if isinstance(value, torch.Tensor)]
        return [apart(one) for one in found + self.values]


def pick(run, n):
    return run.values[n % len(run.values)]


UNARY = [
    "x.relu()",
    "x.tanh()",
    "x.sigmoid()",
    "x.sin()",
    "x.neg()",
    "x.abs()",
    "x.square()",
    "x.softmax(-1)",
    "x.cumsum(0)",
    "x.flip(0)",
    "x.clone()",
    "x.t().contiguous()",
    "x.t()",
    "x.reshape(-1).reshape(N, N)",
    "x.clamp(-1, 1)",
    "x.double().float()",
    "x.bfloat16().float()",
    "x.sort(0)[0]",
    "x.roll(1, 0)",
    "x.triu()",
    "nn.functional.gelu(x)",
    "nn.functional.layer_norm(x, (N,))",
    "nn.functional.dropout(x, 0.3)",
    "x + torch.tensor(1.5)",
    "x * k",
    "x.exp().clamp(max=9)",
    "x.mean(0, keepdim=True).expand(N, N)",
    "x[:, :3].repeat(1, 2)",
    "x.logsumexp(0).expand(N, N)",
    "torch.fft.fft(x).real",
    "x.std(0, keepdim=True) + x",
    "x.unfold(0, 3, 1).sum(-1).repeat(2, 1)[:N]",
    "x.new_zeros(N, N) + x",
    "x.detach()",
]
BINARY = [
    "x + y",
    "x * y",
    "x - y",
    "x @ y",
    "torch.maximum(x, y)",
    "torch.where(x > 0, x, y)",
    "torch.addmm(x, x, y)",
    "torch.cat([x, y])[3:9]",
    "torch.stack([x, y]).mean(0)",
    "nn.functional.linear(x, y)",
    "x.lerp(y, 0.3)",
    "torch.einsum('ij,jk->ik', x, y)",
    "nn.functional.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None])[0, 0]",
]
IN_PLACE = [
    "x.add_(1)",
    "x.mul_(0.5)",
    "x.clamp_(-2, 2)",
    "x.copy_(y)",
    "x.fill_(0.25)",
    "x[0].add_(1)",
    "x.t().mul_(0.9)",
    "x[:, 1:3].zero_()",
    "x.add_(y, alpha=0.1)",
    "nn.functional.relu_(x)",
    "x[1:].copy_(y[:-1])",
    "x.masked_fill_(x > 1, 0.5)",
    "x.index_add_(0, torch.tensor([0, 2]), y[:2])",
    "torch.ops.step_fuzz.writes(x)",
    "run.buffer.add_(x.detach())",
    "run.buffer.mul_(0.9).add_(y.detach().mean())",
]
LEAVE = [
    "x.sum().item()",
    "x.tolist()",
    "repr(x)",
    "x.argmax().item()",
    "bool((x > 0).any())",
    "x.shape",
    "x.numpy(force=True).sum().item()",
    "torch.ops.step_fuzz.count(x)",
    "x.nonzero().shape",
    "x.unique().shape",
    "torch.equal(x, y)",
    "x.is_contiguous()",
    "x._version",
    "torch.get_rng_state().sum().item()",
    "float(run.array.sum())",
    "torch.allclose(x, y)",
    "run.view_of_weight is not None and float(run.view_of_weight.sum())",
]
BY_DATA = [
    "x[x > 0].sum() + x",
    "torch.ops.step_fuzz.keep(x).sum() * x",
    "x.masked_select(x > y).mean() + y",
    "x[x > y].exp().mul(2).clamp(max=5).sum() * y",
    "torch.zeros(N, N).index_put(tuple((x > 0).nonzero().t()), x[x > 0].tanh())",
    "torch.mul(x.detach(), y.detach(), out=torch.empty(0))",
    "torch.add(x.detach(), y.detach(), out=run.room.resize_(0)) + 1",
    "torch.cat([x.detach(), y.detach()], out=run.room)[:N] * x",
    "torch.ops.step_fuzz.stateful(x)",
    "torch.ops.step_fuzz.draws(x)",
    "torch.ops.step_fuzz.pure(x)",
    "x.index_select(0, torch.arange(N).flip(0))",
    "x.gather(0, x.argsort(0))",
    "run.table(torch.arange(N))",
    "x.repeat_interleave(torch.tensor([2, 0, 1, 1, 1, 1]), 0)",
    "torch.linalg.qr(x + torch.eye(N))[0]",
    "run.lstm(x[None])[0][0]",
    "run.norm(x)",
    "run.net(x)",
    "checkpoint(run.net, x, use_reentrant=False)",
    "nn.functional.max_pool1d(x[None], 3, 1, 1)[0]",
    "x.tensor_split(torch.tensor([3]))[0].repeat(2, 1)",
    "run.lstm(nn.utils.rnn.pack_padded_sequence(x[:, None], torch.tensor([N])))[0].data",
]
OUTSIDE = [
    "torch.tensor(run.array) + x",
    "torch.from_numpy(run.array) * x",
    "torch.from_numpy(run.array).clone()",
    "torch.as_tensor(run.array)[0] + x",
    "torch.from_dlpack(x.detach().contiguous()) + 1",
    "torch.frombuffer(run.array, dtype=torch.float32).reshape(N, N) - x",
]
OUTSIDE_DO = [
    "run.array += 0.5",
    "run.array[0] = 3",
    "x.detach().numpy()[0, 0] = 2",
    "torch.from_numpy(run.array).mul_(0.9)",
    "np.copyto(run.array, x.numpy(force=True))",
    "x.detach().apply_(lambda v: v * 0.5)",
    "run.array[:] = 1; torch.from_numpy(run.array).add_(x.detach())",
]
DRAW = [
    "torch.rand(N, N)",
    "torch.randn(N, N) + x",
    "x + torch.rand_like(x)",
    "torch.bernoulli(torch.full((N, N), 0.5)) * x",
    "torch.rand(N, N, generator=run.generator)",
    "torch.randperm(N).float() + x",
    "torch.normal(x.detach(), 0.1)",
    "torch.empty(N, N).uniform_(0, k + 1)",
]
DRAW_DO = ["torch.manual_seed(k)", "torch.set_rng_state(torch.get_rng_state())", "run.generator.manual_seed(k)"]
SET = [
    "torch.set_default_dtype(torch.float64); run.values.append(torch.arange(0, 1, 0.1).sum().float() + x); torch.set_default_dtype(torch.float32)",
    "torch.set_num_threads(1); run.values.append(x.sum() + x); torch.set_num_threads(2)",
    "torch.set_flush_denormal(True); run.values.append(x * 1e-39); torch.set_flush_denormal(False)",
    "torch.use_deterministic_algorithms(True); run.values.append(x.index_add(0, torch.tensor([0, 0]), y[:2])); torch.use_deterministic_algorithms(False)",
]
ERRORS = [
    "x.index_select(0, torch.tensor([N if k in {bad} else 1]))[0] + y",
    "torch.linalg.cholesky(torch.eye(N) * (-1 if k in {bad} else 1)) + x",
    "nn.functional.embedding(torch.tensor([N if k in {bad} else 0]), x)[0] + y",
    "torch.linalg.inv(x.detach() * (0 if k in {bad} else 1) + torch.eye(N) * (0 if k in {bad} else 3))",
]


class Statement:
    def __init__(self, kind, code, numbers, inner=()):
        self.kind, self.code, self.numbers, self.inner = kind, code, numbers, inner

    def __str__(self):
        return f"{self.kind}({self.code}; {self.numbers}" + "".join(f"\n    {one}" for one in self.inner) + ")"

    def run(self, run):
        scope = {
            "run": run,
            "k": run.step,
            "N": N,
            "torch": torch,
            "nn": nn,
            "np": np,
            "checkpoint": checkpoint,
            "x": pick(run, self.numbers[0]),
            "y": pick(run, self.numbers[1]),
        }
        getattr(self, "do_" + self.kind)(run, scope)

    def do_value(self, run, scope):
        run.values.append(eval(self.code, scope))

    def do_see(self, run, scope):
        run.see(eval(self.code, scope))

    def do_do(self, run, scope):
        exec(self.code, scope)

    def do_try(self, run, scope):
        try:
            run.values.append(eval(self.code, scope))
        except Exception as error:
            run.see(type(error).__name__)

    def do_with(self, run, scope):
        with eval(self.code, scope):
            for one in self.inner:
                one.run(run)

    def do_sometimes(self, run, scope):
        if run.step % 3 == self.numbers[0] % 3:
            for one in self.inner:
                one.run(run)

    def do_thread(self, run, scope):
        errors = []

        def work():
            # PyTorch sets a thread's count when the thread first runs an operator in parts: until then MKL uses another count,
            # and an FFT other sums. A copy from the host would set it, too.
            torch.get_num_threads()
            try:
                for one in self.inner:
                    one.run(run)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    def do_hook(self, run, scope):
        x = scope["x"]
        # On a view that was written in place PyTorch 2.11 itself ends in a segmentation fault.
        if x.requires_grad and not x._is_view():
            x.register_hook(lambda grad: (run.see(grad.sum().item()), grad * 0.5)[1])

    def do_backward(self, run, scope):
        run.optimizer.zero_grad(set_to_none=self.numbers[0] % 2 == 0)
        loss = sum(
            (run.values[n % len(run.values)].float().square().mean() for n in self.numbers), run.net[0].weight.sum() * 0
        )
        try:
            loss.backward()
        except RuntimeError as error:  # of what was written in place
            run.see(type(error).__name__)
        run.see(loss)

    def do_optimize(self, run, scope):
        run.optimizer.step()


def failing(random_):
    """The steps in which it fails: none, one, or some, so that what follows an error is known, too."""
    share = random_.choice((0.2, 0.6))
    return str([k for k in range(2, STEPS) if random_.random() < share])


def draw(random_, depth=0):
    """A list of statements."""

    def numbers():
        return [random_.randrange(100) for _ in range(3)]

    def one():
        choice = random_.random()
        for share, kind, codes in (
            (0.25, "value", UNARY),
            (0.15, "value", BINARY),
            (0.12, "do", IN_PLACE),
            (0.08, "see", LEAVE),
            (0.12, "value", BY_DATA),
            (0.05, "value", OUTSIDE),
            (0.05, "do", OUTSIDE_DO),
            (0.04, "value", DRAW),
            (0.02, "do", DRAW_DO),
            (0.02, "do", SET),
            (0.03, "try", ERRORS),
            (0.02, "hook", ["hook"]),
        ):
            if choice < share:
                return Statement(kind, random_.choice(codes).replace("{bad}", failing(random_)), numbers())
            choice -= share
        if depth == 0 and choice < 0.02:
            return Statement(
                "with",
                random_.choice(
                    [
                        "torch.no_grad()",
                        "torch.enable_grad()",
                        "torch.autocast('cpu', torch.bfloat16)",
                        "torch.inference_mode()",
                    ]
                ),
                numbers(),
                draw(random_, 1),
            )
        choice -= 0.02
        if depth == 0 and choice < 0.02:
            return Statement("thread", "", numbers(), draw(random_, 1))
        if depth == 0:
            return Statement("sometimes", "", numbers(), draw(random_, 1))
        return Statement("value", "x + 1", numbers())

    body = [one() for _ in range(random_.randint(2, 4) if depth else random_.randint(4, 14))]
    if depth == 0 and random_.random() < 0.7:
        body.append(Statement("backward", "", numbers()))
        if random_.random() < 0.8:
            body.append(Statement("optimize", "", numbers()))
        body += [one() for _ in range(random_.randint(0, 3))]
    return body


def outcome(seed, body, program):
    """What a program can see, step by step; and by whom a body was left."""
    torch.set_num_threads(2)  # a body before may have set others
    run, seen = Run(seed), []
    for step in range(STEPS):
        run.begin(step)
        run.log = []
        left = None
        try:
            with program.step() if program is not None else contextlib.nullcontext():
                for statement in body:
                    try:
                        statement.run(run)
                    finally:
                        torch.set_default_dtype(torch.float32)
        except Exception as error:
            left = type(error).__name__
            # A text: the exception keeps frames alive, and a checkpoint that it left would go on packing what later bodies save.
            outcome.last = traceback.format_exception(error)
        seen.append((left, [apart(one) for one in run.log], run.everything()))
    return seen


def alike(one, other):
    """If two tensors of the host have the same values; what differs in no bit takes no memory to compare."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    bits = [value.reshape(-1).view(torch.uint8).numpy() for value in (one, other)]
    if np.array_equal(*bits):
        return True
    return torch.equal(*(value.nan_to_num() if value.is_floating_point() else value for value in (one, other)))


def difference(a, b):
    """In words; empty where there is none."""
    for step, (left, right) in enumerate(zip(a, b)):
        if left[0] != right[0]:
            return f"step {step} is left by {left[0]} and {right[0]}"
        for what, these, those in (("what was seen", left[1], right[1]), ("what is there after it", left[2], right[2])):
            if len(these) != len(those):
                return f"step {step}: {what}: {len(these)} and {len(those)}"
            for n, (one, other) in enumerate(zip(these, those)):
                if isinstance(one, torch.Tensor):
                    same = isinstance(other, torch.Tensor) and alike(one, other)
                else:
                    same = (
                        one == other
                        or (one != one and other != other)
                        or (repr(one) == repr(other) and "nan" in repr(one))
                    )
                if not same:
                    return f"step {step}: {what}, number {n}: {one} and {other}"
    return ""


def options_of(random_):
    return random_.choice(
        [
            {},
            {},
            {},
            {"engine": "release"},
            {"engine": "order"},
            {"second_thread": True},
            {"memory_budget": "80%", "engine": "chen"},
        ]
    )


def away(seed, body, random_):
    """Options by which state has to be on the host: a share of what the step takes without a budget."""
    free = berth.StepProgram(plan_wait=1e9)
    outcome(seed, body, free)
    budget = int(random_.uniform(0.3, 1) * free.stats().predicted_peak)
    return {"memory_budget": max(budget, 1), "copy_rate": 10**10, "host_memory": "1GiB"}


def install_within(limit):
    """Values are wide from now on, and the device has room for so many bytes: tensors leave for the host."""
    global N
    N = WIDE
    berth.install("cpu", memory_limit=limit)
    berth.StepProgram(host_memory="1GiB")  # from now on


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first; default: %(default)s")
    parser.add_argument("--only", type=int, help="the one with this seed")
    parser.add_argument("--tell", action="store_true", help="print the statements")
    parser.add_argument("--spills", action="store_true", help="in so little memory that tensors leave for the host")
    parser.add_argument("--memory-limit", type=int, default=400_000, help="bytes, with --spills; default: %(default)s")
    parser.add_argument("--keep-going", action="store_true", help="after one that differs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = (
        [arguments.only] if arguments.only is not None else range(arguments.seed, arguments.seed + arguments.programs)
    )
    if arguments.spills:
        install_within(arguments.memory_limit)
    differ, scheduled, spilled, ran_out, began, shown = 0, 0, 0, 0, time.monotonic(), time.monotonic()
    for n, seed in enumerate(seeds):
        random_ = random.Random(seed)
        body, options = draw(random_), options_of(random_)
        try:
            if arguments.spills:  # half of them also plan with state on the host
                plain = {**options, "second_thread": False, "host_memory": "1GiB"}
                options = random_.choice([plain, away(seed, body, random_)])
            if arguments.tell:
                print(options, *body, sep="\n  ")
            # Some plans come while steps run.
            program = berth.StepProgram(**options, plan_wait=random_.choice([0, 1e9]))
            before = program.stats().spilled_out
            a, b = outcome(seed, body, None), outcome(seed, body, program)
        except torch.OutOfMemoryError:  # between steps
            if not arguments.spills:
                raise
            a = b = [("OutOfMemoryError",)]
        if arguments.spills and any(step[0] == "OutOfMemoryError" for step in a + b):
            ran_out += 1
            continue
        spilled += program.stats().spilled_out > before
        scheduled += program.stats().scheduled > 0
        if why := difference(a, b):
            differ += 1
            print(f"seed {seed}: {why[:600]}\n  {program.stats()}", flush=True)
            if arguments.tell and hasattr(outcome, "last"):
                print("".join(outcome.last), file=sys.stderr)
            if not arguments.keep_going:
                break
        if time.monotonic() - shown > 10 and sys.stderr.isatty():
            shown = time.monotonic()
            print(f"{n + 1} of {len(seeds)} programs", file=sys.stderr)
    left = f", {spilled} had tensors on the host, {ran_out} ran out of memory" if arguments.spills else ""
    print(f"{n + 1} programs, {differ} differ, {scheduled} had a schedule{left}, {time.monotonic() - began:.0f} s")
    if arguments.spills and spilled == 0:
        print("no tensor left for the host: a smaller --memory-limit is wanted", file=sys.stderr)
        return 1
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
