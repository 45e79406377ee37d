"""Steps see what the program has set: modes, default types, generators, compilers, profilers."""

import unittest

from step_case import AS_EAGER, StepCase


class Modes(StepCase):
    def test_a_generator_gets_a_state_that_an_operator_made(self):
        self.check(
            """
def states():
    own, fixed = torch.Generator().manual_seed(3), torch.get_rng_state()
    def body(k):
        before, of_own = torch.get_rng_state().clone(), own.get_state().clone()
        a, b = torch.rand(4), torch.rand(4, generator=own)
        torch.set_rng_state(before)
        own.set_state(of_own)
        c, d = torch.rand(4), torch.rand(4, generator=own)
        torch.set_rng_state(fixed.clone())
        with torch.inference_mode(): torch.set_rng_state(torch.get_rng_state())
        return a, b, c, d, torch.rand(4)
    return body
def copied():
    import copy, io, pickle
    def body(k):
        state, file = torch.get_rng_state(), io.BytesIO()
        torch.save(state, file)
        copies = [copy.deepcopy(state), copy.copy(state), pickle.loads(pickle.dumps(state)), torch.load(io.BytesIO(file.getvalue()))]
        drawn = [torch.rand(4)]
        for one in copies:
            torch.set_rng_state(one)
            drawn.append(torch.rand(4))
        return *drawn, len(file.getvalue()), len(pickle.dumps(state))
    return body
say(states), say(copied)
""",
            2,
        )

    def test_copies_of_a_generator_draw_what_it_draws(self):
        self.check(
            """
def copied():
    import copy, pickle
    g = torch.Generator().manual_seed(3)
    sampler = torch.utils.data.RandomSampler(range(5), generator=g)
    def body(k):
        a = torch.rand(2, generator=g)
        copies = [copy.deepcopy(g), copy.deepcopy(sampler).generator, pickle.loads(pickle.dumps(g)), copy.copy(g)]
        return a, *[torch.rand(2, generator=one) for one in copies], torch.rand(2, generator=g)
    return body
say(copied)
""",
            1,
        )

    def test_torch_script_s_own_operations_find_the_bytes(self):
        # They are none of the dispatcher's: steps with them run as written.
        self.check(
            """
import copy, pickle, tempfile
from typing import List
@torch.jit.script
def named(x, n: int): return "{} of {}".format(x, n)
@torch.jit.script
def printed(x): print(x)
@torch.jit.script
def saved(x, f: str): torch.save(x, f)
@torch.jit.script
def listed(x):
    got: List[float] = x.tolist()
    return got
@torch.jit.script
def checked(x, n: int):
    assert n < 100, "{} is too many".format(n)
    return x.sum() * n
class Held(nn.Module):
    def __init__(self, t):
        super().__init__()
        self.register_buffer("t", t)
    def forward(self, x): return str(self.t) + str(listed(x))
file = tempfile.mkdtemp() + "/x.pt"
def of(see):
    def make():
        w = torch.randn(2)
        held = torch.jit.script(Held(w))
        def body(k):
            w.mul_(0.9)
            return see(w, held), see(w * 2, held)
        return body
    return make
def unscheduled(see): say(of(see), -100)
unscheduled(lambda x, held: named(x, 3))
unscheduled(lambda x, held: (saved(x, file), torch.load(file))[1])
unscheduled(lambda x, held: str(listed(x)))
unscheduled(lambda x, held: held(x))
unscheduled(lambda x, held: copy.deepcopy(held).t)
say(of(lambda x, held: checked(x, 3)))
def seeded():
    @torch.jit.script
    def seed(n: int): torch.manual_seed(n)
    def body(k):
        torch.manual_seed(3)
        a = torch.rand(2)
        if k > 3: seed(3)
        return a, torch.rand(2)
    return body
say(seeded)
def pickled():
    def body(k): return pickle.loads(pickle.dumps([torch.Tensor.tolist, torch.Tensor.numpy])) == [torch.Tensor.tolist, torch.Tensor.numpy], torch.ones(2) * k
    return body
say(pickled)
""",
            8,
        )

    def test_rpc_sends_what_the_step_has_made(self):
        self.check(
            """
import os, tempfile
import torch.distributed.rpc as rpc
os.environ.update(TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo")
meeting = "file://" + tempfile.mkdtemp() + "/meeting"
rpc.init_rpc("one", rank=0, world_size=1, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=meeting))
def total(x): return x.sum()
def sends():
    w = torch.randn(4)
    def body(k):
        w.mul_(0.9)
        return rpc.rpc_sync("one", total, args=(w,)), rpc.rpc_async("one", total, args=(w * 2,)).wait()
    return body
say(sends, -100)
rpc.shutdown()
""",
            1,
        )

    def test_observers_of_operators_see_what_they_would(self):
        self.check(
            """
import json, tempfile
def observed():
    net = nn.Linear(4, 4)
    def body(k):
        net.zero_grad()
        y, names = net(torch.randn(2, 4)) * 2, ""
        if k % 3 == 2:
            observer, file = torch.profiler.ExecutionTraceObserver(), tempfile.mkdtemp() + "/trace.json"
            observer.register_callback(file)
            observer.start()
            y.sin().sum().backward()
            observer.stop()
            observer.unregister_callback()
            names = " ".join(sorted(node["name"] for node in json.load(open(file))["nodes"]))
        return y, names
    return body
say(observed)
""",
            1,
        )

    def test_what_is_set_and_drawn_is_as_at_the_call(self):
        self.check(
            """
def default_type():
    def body(k):
        torch.set_default_dtype(torch.float64 if k == 4 else torch.float32)
        torch.manual_seed(k)
        r = torch.rand(4) * torch.ones(4, dtype=torch.float64)
        torch.set_default_dtype(torch.float32)
        return r, torch.rand(2)
    return body
def state():
    def body(k):
        a, kept, b = torch.rand(4), torch.get_rng_state(), torch.rand(4)
        after = torch.get_rng_state()
        torch.set_rng_state(kept)
        again = torch.rand(4)
        torch.set_rng_state(after)
        return a, b, again
    return body
say(default_type), say(state)
""",
            2,
        )

    def test_generators_that_a_step_makes(self):
        """One or two, which draw in turn or not, and are set again: each step has its own ones."""
        self.check(
            """
def anew():
    net = nn.Linear(8, 8)
    def body(k):
        one = torch.Generator().manual_seed(k)
        x = torch.rand(4, 8, generator=one)
        noise = torch.randn(4, 8, generator=one) + torch.rand(4, 8)
        return net(x + noise), x, one.get_state() if k > 4 else None
    return body
def kept():
    made = [torch.Generator().manual_seed(n) for n in range(3)]
    def body(k):
        a, b = made[k % 3], made[(k * k) % 3]  # they are one in some steps
        return torch.rand(4, generator=a), torch.rand(4, generator=b), torch.rand(4, generator=a) * 2
    return body
def set_again():
    def body(k):
        one = torch.Generator().manual_seed(k)
        a = torch.rand(4, generator=one)
        if k > 3: one.manual_seed(7)
        b = torch.rand(4, generator=one)
        one.manual_seed(9)
        return a, b, torch.rand(4)
    return body
say(anew, 3), say(kept, 4), say(set_again)
""",
            3,
        )

    def test_a_generator_s_methods_give_its_state_at_the_call(self):
        self.check(
            """
def default_one():
    def body(k):
        a, kept, b = torch.rand(4), torch.default_generator.get_state(), torch.rand(4)
        return a, kept, b, torch.default_generator.get_state()
    return body
def own_one():
    own = torch.Generator().manual_seed(3)
    def body(k):
        a, kept = torch.rand(4, generator=own), own.get_state()
        return a, kept, own.clone_state().get_state(), torch.rand(4, generator=own)
    return body
say(default_one), say(own_one)
""",
            2,
        )

    def test_what_is_set_is_seen(self):
        """One step leaves out what the others set between two operators: it is another one. Setting that is no step's part is unset."""
        found = self.python(
            AS_EAGER
            + """
import torch.backends.cuda as cuda, torch.backends.cudnn as cudnn, torch.backends.mkldnn as mkldnn, torch.backends.nnpack as nnpack
from torch.backends.quantized import supported_engines
def attribute(of, name, value):
    return (lambda: getattr(of, name)), (lambda one: setattr(of, name, one)), value
def fill(on): torch.utils.deterministic.fill_uninitialized_memory = on
engine = [one for one in supported_engines if one != torch.backends.quantized.engine]
settings = {
    "default type": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "threads": (torch.get_num_threads, torch.set_num_threads, 2),
    "near zero": (lambda: False, torch.set_flush_denormal, True),
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "fill": (lambda: torch.utils.deterministic.fill_uninitialized_memory, fill, not torch.utils.deterministic.fill_uninitialized_memory),
    "cudnn": attribute(cudnn, "enabled", False),
    "cudnn.benchmark": attribute(cudnn, "benchmark", True),
    "cudnn.benchmark_limit": attribute(cudnn, "benchmark_limit", 3),
    "cudnn.deterministic": attribute(cudnn, "deterministic", True),
    "cudnn.conv": attribute(cudnn.conv, "fp32_precision", "ieee"),
    "cudnn.rnn": attribute(cudnn.rnn, "fp32_precision", "ieee"),
    "mkldnn": attribute(mkldnn, "enabled", False),
    "mkldnn.deterministic": attribute(mkldnn, "deterministic", True),
    "mkldnn.matmul": attribute(mkldnn.matmul, "fp32_precision", "bf16"),
    "mkldnn.conv": attribute(mkldnn.conv, "fp32_precision", "bf16"),
    "mkldnn.rnn": attribute(mkldnn.rnn, "fp32_precision", "bf16"),
    "nnpack": (lambda: True, lambda on: torch.backends.nnpack.set_flags(on), False),
    "matmul": attribute(cuda.matmul, "fp32_precision", "tf32"),
    "all precisions": (lambda: "highest", torch.set_float32_matmul_precision, "high"),
    "fp16 sums": attribute(cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    "bf16 sums": attribute(cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    "fp16 accumulation": attribute(cuda.matmul, "allow_fp16_accumulation", True),
    "linear algebra": (lambda: "default", cuda.preferred_linalg_library, "cusolver"),
    **({"quantized": attribute(torch.backends.quantized, "engine", engine[0])} if engine else {}),
}
missed = []
for name, (get, put, other) in settings.items():
    before = get()
    program = berth.StepProgram(plan_wait=1e9)
    x = torch.ones(4)
    for k in range(8):
        with program.step():
            y = x + 1
            if k != 6: put(other)
            z = y * 2
            put(before)
            w = z + 1
    if program.stats().diverged != 1 or program.stats().scheduled < 3: missed.append((name, program.stats()))
print(len(settings) >= 23, missed)
"""
        )
        self.assertEqual(found.strip(), "True []")

    def test_forward_mode_derivatives(self):
        self.check(
            """
import torch.autograd.forward_ad as fa
def dual():
    net = nn.Linear(8, 8)
    def body(k):
        net.zero_grad()
        x = torch.randn(4, 8)
        with fa.dual_level():
            y = torch.tanh(net(fa.make_dual(x, torch.ones_like(x))))
            loss = (y * y).sum() + (fa.unpack_dual(y).tangent ** 2).sum()
        loss.backward()
        return loss, net.weight.grad, torch.func.jvp(lambda v: net(v).sum(), (x,), (x,))[1], torch.func.hessian(lambda w: (w ** 3).sum())(torch.ones(3))
    return body
def equation():
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    def body(k):
        x = torch.rand(6, 2)
        parameters = dict(net.named_parameters())
        def u(z): return torch.func.functional_call(net, parameters, (z,)).squeeze(-1)
        along = torch.func.jvp(u, (x,), (torch.tensor([[1.0, 0.0]]).expand(6, 2),))[1]
        curved = torch.func.vmap(lambda z: torch.func.jacfwd(torch.func.jacrev(u))(z)[1, 1])(x)
        loss = (along - 0.1 * curved).square().mean() + u(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, *net.parameters()
    return body
def without_memory():
    w = torch.linspace(-1, 1, 6)
    def body(k):
        zeros, y = torch._efficientzerotensor((6,)), w * torch.rand(6)
        w.add_(0.1).copy_(torch.where(w > 0, w, zeros))
        parts = zeros + y, zeros * y, torch.cat([y, zeros]), torch.stack([zeros, y]).sum(0), y - zeros, zeros.clone(), zeros.sin() + y
        try: zeros.add_(1)
        except RuntimeError as error: parts = (*parts, str(error)[:30])
        return [one if isinstance(one, str) or not one._is_zerotensor() else str(one.shape) for one in parts] + [w]
    return body
say(dual, least=3), say(equation, least=4), say(equation, least=4, memory_budget="60%"), say(without_memory, least=4)
""",
            4,
        )

    def test_modes_compilers_and_profilers_see_what_they_would(self):
        self.check(
            """
from torch.utils._python_dispatch import TorchDispatchMode
class Names(TorchDispatchMode):
    def __init__(self): super().__init__(); self.names = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))
def moded():
    net = nn.Linear(8, 8)
    def body(k):
        x = torch.ones(2, 8) * 2
        with Names() as mode: y = net(x)
        return " ".join(mode.names), y * 2
    return body
def compiled():
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    fast = torch.compile(net, backend="aot_eager")
    def body(k):
        net.zero_grad()
        y = fast(torch.ones(2, 8) * 2).square().mean()
        y.backward()
        return y, net[0].weight.grad
    return body
def compiled_attention():
    # Kernels of fake tensors call operators that are none of aten.
    torch._dynamo.reset()
    net = nn.Linear(8, 24)
    def attend(x):
        q, k, v = net(x).view(2, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    fast = torch.compile(attend, backend="aot_eager")
    def body(k):
        net.zero_grad()
        y = fast(torch.linspace(-1, 1, 256).view(2, 16, 8)).square().mean()
        y.backward()
        return y, net.weight.grad
    return body
say(moded), say(compiled), say(compiled_attention)
program, net = berth.StepProgram(plan_wait=1e9), nn.Linear(64, 64)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
    for k in range(4):
        with program.step(): net(torch.ones(64, 64)).square().mean().backward()
print(sum(event.name == "aten::addmm" for event in profile.events()) == 4, "profiler" in program.stats().last_refusal, "")
""",
            4,
        )

    def test_operators_of_a_higher_order(self):
        """They look for their kernels in Python, by the keys of the thread."""
        self.check(
            """
from torch.nn.attention.flex_attention import flex_attention

class Square(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x):
        return x * x
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * gradient * x

def branch():
    net = nn.Linear(8, 8)
    def body(k):
        y = net(torch.randn(4, 8))
        z = torch.cond(y.square().sum() > 0, lambda one: one.sin(), lambda one: one.cos(), (y,))
        z.mean().backward()
        return z, net.weight.grad
    return body
def attention():
    net = nn.Linear(16, 48)
    def body(k):
        with torch.no_grad():
            q, k, v = net(torch.randn(1, 128, 16)).view(1, 1, 128, 48).split(16, -1)
            y = flex_attention(q, k, v)
        return y, (y * 2).sum()
    return body
def function():
    net = nn.Linear(8, 8)
    def body(k):
        y = net(torch.randn(4, 8))
        z = torch.func.vmap(Square.apply)(y) + torch.func.grad(lambda one: Square.apply(one).sum())(y.detach())
        z.mean().backward()
        return z, net.weight.grad
    return body
say(branch, least=2), say(attention, least=2), say(function, least=2)
""",
            3,
        )

    def test_what_modes_of_the_program_do(self):
        """They see calls below torch's operators, make and draw what is asked of them, and may use any tensor."""
        self.check(
            """
from torch.autograd.graph import allow_mutation_on_saved_tensors
from torch.utils._python_dispatch import TorchDispatchMode
class Mode(TorchDispatchMode):
    def __init__(self, does=lambda out: None): super().__init__(); self.does = does
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.does(out)
        return out
def draws():
    def body(k):
        x = torch.rand(64, 64)
        with Mode(): y = torch.rand(64, 64).sin() + torch.zeros(64, 64)
        return x * 2, y, torch.rand(2)
    return body
def reads_states():
    def body(k):
        x = torch.rand(64, 64)
        with Mode(): state = torch.get_rng_state()
        return x * 2, state
    return body
def uses_others():
    w, sums = torch.randn(64, 64), torch.zeros(2)
    def body(k):
        w.mul_(1.01)
        with Mode(lambda out: sums.add_(out.sum() + w[0, 0])): y = torch.ones(64, 64) * 2
        before = sums * 2
        with Mode(lambda out: sums.mul_(0.5)), Mode(lambda out: sums.add_(w.sum())): z = y * 2 + w
        return before, sums.clone(), z
    return body
def views():
    w, sums = torch.randn(64, 64), torch.zeros(2)
    def body(k):
        w.mul_(1.01)
        with Mode(lambda out: sums.add_(out.sum())): y = w.view(32, 128)
        return y * 2, sums.clone()
    return body
def shows():
    w = torch.randn(64, 64)
    def body(k):
        w.mul_(1.01)
        with Mode(): first, second = w.numpy()[0, 0].item(), w.tolist()[1][1]
        return first, second
    return body
def saves():
    def body(k):
        x = torch.rand(64, 64)
        with allow_mutation_on_saved_tensors():
            a = torch.rand(64, 64, requires_grad=True)
            b = a.sin() * x
            c = b.exp()
            b.mul_(2)
            (b.sum() + c.sum()).backward()
        return a, a.grad, x * 2, torch.rand(2)
    return body
def whole():
    # torch.tensor() disables modes, which stay on their stack.
    net = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(net.parameters())
    def body(k):
        with Mode():
            loss = net(torch.rand(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss, net.weight.detach().clone()
    return body
say(draws), say(reads_states, least=0), say(uses_others), say(views), say(shows), say(saves), say(whole, least=3)
""",
            7,
        )

    def test_a_seed_behind_a_draw_in_some_steps_only(self):
        """It sets the generator to where the draw began: its state does not tell."""
        self.check(
            """
def seeds(often):
    def make():
        weight = torch.randn(64, 64, requires_grad=True)
        def body(k):
            before = torch.rand(2)
            torch.manual_seed(k)
            loss = nn.functional.dropout(weight * before[0], 0.2).square().mean()
            if often or k in (4, 5): torch.manual_seed(k)
            weight.grad = None
            loss.backward()
            return before, loss, weight.grad
        return body
    return make
def only():
    weight = torch.randn(64, 64, requires_grad=True)
    def body(k):
        loss = nn.functional.dropout(weight, 0.2).square().mean()
        if k in (5, 6): torch.set_rng_state(state) if k == 5 else torch.manual_seed(6)
        weight.grad = None
        loss.backward()
        return loss, weight.grad, torch.get_rng_state() if k == 9 else 0
    state = torch.get_rng_state()
    return body
say(seeds(False), steps=10), say(seeds(True), steps=10), say(only, steps=10)
""",
            3,
        )

    def test_modes_see_what_the_program_calls(self):
        self.check(
            """
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
seen = []
class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(function.__name__)
        return function(*args, **(kwargs or {}))
class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))
def looks():
    weight = torch.randn(8, 8)
    def body(k):
        y = (weight @ weight).tanh()
        seen.clear()
        for mode in (Functions(), Operators()):
            with mode:
                read = y.sum().tolist(), float(y.numpy(force=True).sum()), y.data_ptr() != 0
        return *read, str(seen)
    return body
say(looks)
""",
            1,
        )

    def test_handlers_of_methods_are_found(self):
        """In a table by method, as torch's documentation has it."""
        self.check(
            """
import copy
handlers = {torch.Tensor.__repr__: lambda self, **_: "mine", torch.Tensor.__deepcopy__: lambda self, memo: "deep",
            torch.Tensor.tolist: lambda self: "list", torch.Tensor.numpy: lambda self, **_: "array", torch.Tensor.data_ptr: lambda self: 7}
class Mine(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        handler = handlers.get(function)
        return handler(*args, **(kwargs or {})) if handler else super().__torch_function__(function, types, args, kwargs or {})
def handled():
    def body(k):
        y = (torch.rand(2, 2) * 2).as_subclass(Mine)
        return repr(y), copy.deepcopy(y), y.tolist(), y.numpy(), y.numpy(force=True), y.data_ptr()
    return body
say(handled)
""",
            1,
        )

    def test_a_method_that_the_body_sets_stays(self):
        self.check(
            """
program = berth.StepProgram(plan_wait=1e9)
found = []
for k in range(6):
    with program.step():
        if k == 3: torch.Tensor.__repr__ = lambda self: "mine"
        found.append(repr(torch.rand(2) * 0))
    found.append(repr(torch.zeros(2)))
print(found[:6] == ["tensor([0., 0.])"] * 6, found[6:] == ["mine"] * 6, "" if found[6:] == ["mine"] * 6 else found)
""",
            1,
        )

    def test_operators_that_read_by_pointers_what_they_made(self):
        self.check(
            """
def quasi():
    engine, weight = torch.quasirandom.SobolEngine(4, scramble=True, seed=3), torch.randn(4, 4, requires_grad=True)
    def body(k):
        weight.grad = None
        (engine.draw(64) @ weight).square().mean().backward()
        return weight.grad,
    return body
say(quasi, steps=12, least=3)
""",
            1,
        )

    def test_kernels_that_the_program_registers_between_steps(self):
        """They count how often they were called, and the body reads that."""
        self.check(
            """
def own_silu(x):
    calls.append(0)
    return x * 3
def run(program):
    torch.manual_seed(0)
    calls.clear()
    library, seen = None, []
    for k in range(12):
        if k == 5:
            library = torch.library.Library("aten", "IMPL")
            library.impl("silu", own_silu, "CPU")
        if k == 9:
            library._destroy()
        with program.step() if program else contextlib.nullcontext():
            before = len(calls)
            y = nn.functional.silu(torch.rand(8) * 2)
            seen.append((len(calls) - before, y.sum() + 1))
    return [(n, y.item()) for n, y in seen]
import contextlib, warnings
warnings.simplefilter("ignore")
calls, program = [], berth.StepProgram(plan_wait=1e9)
eager, scheduled = run(None), run(program)
print(eager == scheduled, program.stats().scheduled >= 8, "" if eager == scheduled else (eager, scheduled))
""",
            1,
        )


if __name__ == "__main__":
    unittest.main()
