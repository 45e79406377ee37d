"""Bodies of step programs that do what no schedule may put off, in Python: each gives in every step what it gives without."""

import importlib.util
import unittest

from step_case import AS_EAGER, StepCase


class Barriers(StepCase):
    def test_operators_of_somebody_run_when_they_are_called(self):
        self.check(
            """
@torch.library.custom_op("barrier::count", mutates_args=())
def count(x: torch.Tensor) -> int: return int((x > 0).sum())

@torch.library.custom_op("barrier::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor: return x[x > 0].clone()

calls = [0]
@torch.library.custom_op("barrier::state", mutates_args=())
def state(x: torch.Tensor) -> torch.Tensor:
    calls[0] += 1
    return x + calls[0] + torch.rand(())

weight = torch.ones(8, requires_grad=True)
def counting():
    def body(k):
        x = torch.tensor([1. if i < (3 if k < 3 else k) else -1. for i in range(8)])
        n = torch.ops.barrier.count(x * 2)
        return n, (weight * n).sum()
    return body
def keeping():
    def body(k):
        x = torch.linspace(-1, 1, 8) + (0.0 if k < 3 else 0.1 * k)
        return (torch.ops.barrier.keep(x * 2) * 3).sum(),
    return body
def stateful():
    calls[0] = 0
    return lambda k: (torch.ops.barrier.state(weight * 2) + torch.rand(()), torch.rand(2))
say(counting), say(keeping), say(stateful)
""",
            3,
        )

    def test_bytes_of_others_are_read_and_written_at_the_call(self):
        self.check(
            """
def copies():
    buffer = np.zeros((64, 64), np.float32)
    def body(k):
        buffer[:] = 1
        x = torch.tensor(buffer)
        buffer[:] = 2 + k
        y = torch.from_numpy(buffer)
        s = (x + y).sum()
        buffer[:] = 9
        return s, x
    return body
def older_view():
    net = nn.Linear(4, 4)
    optimizer, view = torch.optim.SGD(net.parameters(), 1.0), net.weight.detach().numpy()
    def body(k):
        optimizer.zero_grad()
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        return float(view.sum()), net.weight.sum()
    return body
def view_of_the_step():
    def body(k):
        x = torch.ones(4) * 3
        view = x.numpy()
        x.add_(1)
        seen = float(view.sum())
        view[0] = 7
        return seen, x.sum(), x * 2
    return body
def by_element():
    b = torch.ones(4)
    def body(k):
        b.mul_(0.5)
        b.apply_(lambda v: v + 1)
        return b.clone(),
    return body
def dlpack():
    def body(k):
        x = torch.ones(4) * (k + 1)
        y = torch.from_dlpack(x)
        x.add_(1)
        y.mul_(2)
        return x.clone(), y.sum()
    return body
from torch.utils.dlpack import to_dlpack as by_another_name
def capsule():
    def body(k):
        x = torch.ones(4) * (k + 1)
        y, z = torch.from_dlpack(by_another_name(x)), torch.from_dlpack(torch.to_dlpack(x * 3))
        y.mul_(2)
        return x.clone(), z.sum()
    return body
say(copies), say(older_view), say(view_of_the_step), say(by_element), say(dlpack), say(capsule)
""",
            6,
        )

    def test_operators_are_checked_within_a_step(self):
        self.check(
            """
@torch.library.custom_op("barrier::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor: return x * 2
double.register_fake(torch.empty_like)
double.register_autograd(lambda context, gradient: gradient * 2)
def checking():
    net = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        optimizer.zero_grad()
        x = torch.randn(3, 4)
        y = double(net(x))
        y.sum().backward()
        optimizer.step()
        taken = {1: x.detach(), 4: x.detach(), 5: y.detach(), 6: x.clone().requires_grad_()}.get(k)
        if taken is not None:
            assert set(torch.library.opcheck(torch.ops.barrier.double.default, (taken,)).values()) == {"SUCCESS"}
        return y, *net.parameters()
    return body
say(checking)
""",
            1,
        )

    def test_small_arrays_make_no_barriers(self):
        self.check(
            """
def observations():
    rng = np.random.default_rng(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer, reward = torch.optim.AdamW(net.parameters()), np.zeros(8, np.float32)
    def body(k):
        optimizer.zero_grad()
        x = torch.as_tensor(rng.standard_normal((8, 64)).astype(np.float32))
        reward[:] = k
        y = net(x).squeeze(1) * torch.from_numpy(reward)
        reward[:] = 100
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        return loss, *net.parameters()
    return body
for options in ({}, {"memory_budget": "60%"}, {"second_thread": True}):
    same, stats = as_eager(observations, steps=9, **options)
    print(same, stats.scheduled >= 4 and stats.barriers == 0, "" if same and stats.barriers == 0 else stats)
""",
            3,
        )

    def test_collectives_over_lists_of_lists(self):
        """They take tensors in lists of lists, whose bytes the backend reads by pointers."""
        self.check(
            """
import tempfile
import torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
def gathered():
    w = torch.randn(16, 16, requires_grad=True)
    def body(k):
        y = (torch.randn(4, 16) @ w).relu()
        scattered, parts, everywhere = torch.empty(4, 16), [torch.empty(4, 16)], [torch.empty(4, 16)]
        dist.scatter(scattered, [y.detach() * 2], src=0)
        dist.gather(scattered, parts, dst=0)
        dist.all_gather(everywhere, parts[0] + 1)
        (y * everywhere[0]).mean().backward()
        with torch.no_grad():
            w.sub_(w.grad)
        w.grad = None
        return everywhere[0], w.detach().clone()
    return body
say(gathered)
""",
            1,
        )

    def test_storages_of_another_size(self):
        """By hand, by a storage that is older than the step, and by FSDP: weights have bytes while they are used."""
        self.check(
            """
import tempfile
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
def by_hand(older):
    def make():
        shard, w = torch.randn(16, 16), torch.randn(16, 16, requires_grad=True)
        storage = w.untyped_storage()
        storage.resize_(0)
        def body(k):
            of = storage if older else w.untyped_storage()
            of.resize_(1024)
            w.data.copy_(shard)
            loss = (torch.randn(64, 16) @ w).relu().sum()
            loss.backward()
            first = of[3]
            of.resize_(0)
            shard.sub_(w.grad, alpha=0.001)
            w.grad = None
            return loss, first, shard.clone()
        return body
    return make
dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
def sharded():
    net = nn.Sequential(*(nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.Linear(64, 16)) for _ in range(3)))
    for part in (*net, net):
        fully_shard(part, mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.AdamW(net.parameters())
    def body(k):
        loss = net(torch.randn(32, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), *(one.to_local().clone() for one in net.parameters())
    return body
say(by_hand(False)), say(by_hand(True)), say(sharded, least=4), say(sharded, least=4, memory_budget="50%")
""",
            4,
        )

    def test_other_threads_find_what_they_would(self):
        """The body waits for each of them, so all that they find is told."""
        self.check(
            """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def beside(what, when="forward"):
    def make():
        net = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1), nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(net.parameters())
        average = [p.detach().clone() for p in net.parameters()]
        def body(k):
            told = []
            def ask(place, *given):
                if place == when: told.append(pool.submit(what, net, average, *given).result())
            optimizer.zero_grad()
            loss = (net(torch.randn(8, 16)) * 2).square().mean()
            ask("forward", loss)
            if loss.grad_fn is not None and not any(p.grad is not None for p in net.parameters()): loss.backward()
            ask("backward")
            optimizer.step()
            ask("step")
            return [loss, *told, *net.parameters(), *average, torch.rand(1)]
        return body
    return make
@torch.no_grad()
def follow(net, average):
    for kept, p in zip(average, net.parameters()): kept.lerp_(p, 0.1)
@torch.no_grad()
def pooled(net, average, loss):  # reads by a pointer
    return nn.functional.max_pool1d(loss.detach().view(1, 1), 1).tolist()
@torch.no_grad()
def scale(net, average): net[0].weight.mul_(0.99)
for make in (
    beside(lambda net, average, loss: loss.item()),
    beside(lambda net, average, loss: loss.detach().numpy().copy().tolist()),
    beside(lambda net, average, loss: loss.detach().reshape(1).tolist()),
    beside(lambda net, average, loss: loss.backward()),
    beside(pooled), beside(lambda *given: ThreadPoolExecutor(1).submit(pooled, *given).result()),
    beside(lambda net, average, loss: torch.rand(3).tolist()),
    beside(lambda net, average: net[0].weight.grad.norm().item(), "backward"),
    beside(follow, "step"), beside(scale, "step"),
):
    same, stats = as_eager(make)
    print(same, "on another thread" in stats.last_divergence + stats.last_refusal, "")
def prefetched():
    own, net = torch.Generator().manual_seed(3), nn.Linear(16, 4)
    def body(k):
        net.zero_grad()
        loss = net(torch.randn(8, 16)).square().mean()
        x = pool.submit(lambda: torch.randn(8, 16, generator=own) * 2).result()
        loss.backward()
        y = torch.rand(2, generator=own) if k > 6 else torch.rand(2)
        z = pool.submit(lambda: torch.rand(8, generator=own)).result()
        return loss, x, y, z, net.weight.grad
    return body
same, stats = as_eager(beside(lambda net, average, loss: loss.detach().numpy().sum().item()))
print(same, "numpy()" in stats.last_refusal and "::" not in stats.last_refusal, "")
same, stats = as_eager(prefetched, steps=12)
print(same, stats.scheduled == 5, "")
program = berth.StepProgram(plan_wait=1e9)
x = torch.ones(8)
for k in range(6):
    with program.step(): y = (x * 3).sum()
    pool.submit(lambda: x.add_(1)).result()  # between steps: none of them
print(y.item() == 3 * 8 * 6, program.stats().scheduled == 4, "")
""",
            13,
        )

    def test_storages_that_tensors_get_and_copies_of_them(self):
        self.check(
            """
import copy
def copied():
    net = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    def body(k):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        kept = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict()["state"])
        return loss, *kept[0].values(), *(one["momentum_buffer"] for one in kept[1].values()), net.weight
    return body
def given():
    w = torch.ones(6, 6)
    def body(k):
        y = torch.randn(6, 6) * w
        view, all_of_it = torch.ones(5), torch.ones(3)
        view.set_(y.untyped_storage(), 5, (4,), (2,))
        all_of_it.set_(y)
        all_of_it.add_(1)
        return view, y, all_of_it.sum(), torch.ones(2).set_()
    return body
def grows():
    def body(k):
        y = torch.randn(4).mul(2)
        longer = torch.ones(3).set_(y.untyped_storage(), 2, (4,), (1,))
        longer[2:].fill_(k)
        return y, longer[:2] + 0, longer[2:] + 0
    return body
say(copied), say(given), say(grows, least=0)
""",
            3,
        )

    def test_torch_script_reads_the_bytes_of_modules(self):
        """Without an operator, also those of constants."""
        self.check(
            """
import io
class Holder(nn.Module):
    def __init__(self, kept, inner=None):
        super().__init__()
        self.register_buffer("kept", kept)
        self.inner = inner
    def forward(self, x):
        return x + self.kept
def again(module):
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)(torch.zeros(8, 8))
def written(how):
    def make():
        average = torch.zeros(8, 8)
        def body(k):
            average.mul_(0.5).add_(torch.randn(8, 8))
            y = average * 2
            return (how(average, y) if k % 4 == 3 else 0), average, y.sum()
        return body
    return make
say(written(lambda average, y: again(torch.jit.script(Holder(average, Holder(y))))))
say(written(lambda average, y: again(torch.jit.trace(Holder(y), torch.zeros(8, 8)))))
say(written(lambda average, y: again(torch.jit.trace(lambda x: x + average, torch.zeros(8, 8)))))
say(written(lambda average, y: torch.jit.freeze(torch.jit.script(Holder(average).eval()))(y)))
""",
            4,
        )

    def test_names_of_dimensions_are_those_of_kernels(self):
        self.check(
            """
import warnings
warnings.simplefilter("ignore")
def named():
    w = torch.ones(8, 4)
    def body(k):
        y = torch.randn(3, 8).refine_names("rows", "columns") * 2
        mean, sum = y.mean("columns"), torch.ones(2, 2, names=("a", "b")).exp()
        return str(mean.names), str(sum.names), mean.rename(None), w.sum(0)
    return body
say(named, least=0)
""",
            1,
        )

    def test_subclasses_find_what_they_would(self):
        """Linear reaches a nested tensor's class whole, and the operators there are the step's."""
        self.check(
            """
def nested():
    net = nn.Linear(8, 8)
    def body(k):
        net.zero_grad()
        rows = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
        y = net(rows).softmax(-1)
        loss = (y * 2).unflatten(-1, [2, 4]).transpose(1, 2).contiguous().values().square().mean()
        loss.backward()
        return loss, net.weight.grad
    return body
say(nested)
""",
            1,
        )

    def test_a_forked_child_finds_what_it_would(self):
        self.check(
            """
import os
def forked():
    net = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        if k < 3:
            return loss, "", *net.parameters()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writer, f"{net.weight.sum().item().hex()} {loss.item().hex()} {net.weight.detach().numpy()[0]}".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        found = os.read(reader, 999)
        os.close(reader)
        return loss, found, *net.parameters()
    return body
def loaded():
    data = torch.randn(16, 8)
    w = torch.ones(8)
    def body(k):
        seen = [(x * w).sum() for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), 8, num_workers=1)]
        w.add_(1)
        return *seen, w
    return body
def made():
    net = nn.Linear(8, 8)
    class Rows(torch.utils.data.Dataset):
        def __init__(self, rows):
            self.rows = {"all": [rows]}
        def __len__(self):
            return 4
        def __getitem__(self, n):
            return self.rows["all"][0][n]
    def body(k):
        rows = net(torch.randn(4, 8)).detach()
        return [one * 2 for one in torch.utils.data.DataLoader(Rows(rows), 2, num_workers=1)]
    return body
say(forked), say(loaded, least=4), say(made, least=0)
""",
            3,
        )

    def test_functions_for_several_devices_that_take_pointers(self):
        """They are no operators. DataParallel goes on from there on other threads."""
        program = """
import torch.cuda.nccl, torch.nn.parallel.comm as comm
def given(k):
    return torch.full((64,), float(k)).cuda().clone()
def copies():
    def body(k):
        first, second = comm.broadcast(given(k), [0, 1])
        (third,) = comm.broadcast_coalesced([given(k)], [0, 1])[1]
        fourth = comm.broadcast(given(k), out=[torch.empty(64, device="cuda:0"), torch.empty(64, device="cuda:1")])[1]
        return [one.clone().cpu() for one in (first, second, third, fourth)]
    return body
def library():
    def body(k):
        both = [given(k), given(k).to("cuda:1")]
        torch.cuda.nccl.broadcast(both)
        torch.cuda.nccl.all_reduce(both)
        torch.cuda.nccl.reduce(both, torch.empty(64, device="cuda:0"))
        whole = [torch.empty(128, device=f"cuda:{n}") for n in range(2)]
        torch.cuda.nccl.all_gather(both, whole)
        torch.cuda.nccl.reduce_scatter(whole, both)
        return ()
    return body
def parallel():
    net = nn.DataParallel(nn.Linear(64, 64).cuda(), [0, 1])
    def body(k):
        net(given(k).expand(4, 64)).square().mean().backward()
        return ()
    return body
def address():
    def body(k):
        made = given(k)
        there = torch._C._data_address(made)
        return (there == made.data_ptr(), there != 0)
    return body
say(copies), say(library), say(parallel, least=0), say(address)
"""
        printed = self.python(AS_EAGER + program, standin=("--devices", "2"))
        self.assertEqual(printed.split("\n")[:4], ["True True "] * 4)

    def test_what_moves_to_shared_memory(self):
        self.check(
            """
def shared():
    net = nn.Linear(8, 8)
    def body(k):
        y = net(torch.randn(4, 8)).detach().relu()
        y.share_memory_()
        before = y.sum()
        y.add_(1)
        queue = torch.multiprocessing.SimpleQueue()
        queue.put(y.mul(2))
        return y, before, queue.get()
    return body
say(shared, least=0)
""",
            1,
        )

    def test_tensors_without_memory(self):
        """torch.compile makes such ones where it traces a graph for several shapes."""
        self.check(
            """
def meta():
    w = torch.randn(8, 8)
    def body(k):
        shape = (torch.empty(5 + k % 2, 8, device="meta") @ w.to("meta")).relu_().shape
        return torch.randn(4, 8) @ w, *shape
    return body
def traced():
    torch._dynamo.reset()
    net, second = nn.Linear(8, 8), nn.Linear(8, 8)
    compiled = torch.compile(nn.GELU(), backend="aot_eager")
    def body(k):
        net.zero_grad()
        loss = second(compiled(net(torch.randn(4 + k % 3, 8)))).square().mean()
        loss.backward()
        return loss, net.weight.grad
    return body
def moved():
    w = torch.randn(64, 64)
    def body(k):
        y = (torch.randn(32, 64) @ w).relu()
        shapes = [(one.to("meta") * 2).sum(0).shape for one in (y, y.t(), y[0])]
        return y.sum(), *shapes
    return body
say(meta), say(moved), say(traced, least=0)
same, stats = as_eager(moved, memory_budget="100%")
print(same, stats.resident == 4 * 64 * 64, "" if same else stats)
""",
            4,
        )

    def test_errors_of_data_are_caught_in_the_body(self):
        self.check(
            """
def caught():
    net = nn.Linear(8, 10)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        y = torch.randint(0, 10, (4,))
        if k == 4: y[0] = 10
        x = torch.randn(4, 8)
        optimizer.zero_grad()
        try:
            loss = nn.functional.cross_entropy(net(x), y)
        except IndexError:
            return "caught", net.weight.grad is None, net.weight
        loss.backward()
        optimizer.step()
        return loss, net.weight.grad, net.weight
    return body
def jitter():
    def body(k):
        try: return torch.linalg.cholesky(torch.eye(4) * (1.0 if k < 4 else -1.0)),
        except torch.linalg.LinAlgError: return torch.eye(4) * 2,
    return body
say(caught), say(jitter)
def refused(how):
    def make():
        w = torch.randn(8, 6)
        def body(k):
            bad, y, seen = k == 5, w * 2 + torch.rand(8, 6), ""
            try: y = y + how(y, bad).sum()
            except (RuntimeError, AssertionError) as error: seen = str(error)[:40]
            w.add_(y.mean())
            return y, seen, w
        return body
    return make
channels, nan, ops = torch.ones(8), float("nan"), torch.ops.aten
for how in (
    lambda y, bad: torch.fake_quantize_per_channel_affine(y, channels, torch.full((8,), 999 if bad else 0, dtype=torch.int32), 0, 0, 255),
    lambda y, bad: torch._fake_quantize_learnable_per_channel_affine(y, channels, channels * (999 if bad else 0), 0, 0, 255),
    lambda y, bad: torch.histogram(y * (nan if bad else 1), 4)[0],
    lambda y, bad: torch.histogram(y, torch.tensor([2., 1.] if bad else [0., 2.]))[0],
    lambda y, bad: torch.histogramdd(y * (nan if bad else 1), [2] * 6)[0],
    lambda y, bad: ops._functional_assert_async.msg(torch.tensor(not bad), "no", torch.ones(1)),
    lambda y, bad: nn.functional.fractional_max_pool2d(y[None, None], 2, output_size=3, _random_samples=torch.full((1, 1, 2), 5. if bad else .5)),
    lambda y, bad: ops._jagged_to_padded_dense_forward(y, [torch.tensor([0, 4, 99 if bad else 8])], [6]),
    lambda y, bad: ops._padded_dense_to_jagged_forward(torch.ones(2, 6, 3), [torch.tensor([0, 4, 99 if bad else 8])], 8),
    lambda y, bad: ops._validate_compressed_sparse_indices(True, torch.tensor([0, 1]), torch.tensor([9 if bad else 0]), 1, 3, 1) or y,
):
    say(refused(how), least=4)
""",
            12,
        )

    @unittest.skipIf(
        any(importlib.util.find_spec(name) is None for name in ("torchvision", "PIL")),
        "torchvision is not installed, or no Pillow",
    )
    def test_operators_of_torchvision_that_are_known_are_no_barriers(self):
        self.check(
            """
from torchvision import ops
def pooling(how, channels):
    def make():
        net, boxes = nn.Conv2d(3, channels, 3), torch.tensor([[0., 1., 1., 9., 9.], [1., 0., 2., 7., 8.]])
        def body(k):
            net.zero_grad()
            y = (how(net(torch.randn(2, 3, 16, 16)), boxes * (1 + 0.01 * k)) * 2).square().mean()
            y.backward()
            return y, net.weight.grad
        return body
    return make
def deformed():
    net, offsets = ops.DeformConv2d(3, 4, 3), nn.Conv2d(3, 27, 3)
    def body(k):
        net.zero_grad(), offsets.zero_grad()
        x = torch.randn(2, 3, 10, 10)
        o = offsets(x)
        y = net(x, o[:, :18], o[:, 18:].sigmoid()).square().mean()
        y.backward()
        return y, net.weight.grad, offsets.weight.grad
    return body
def suppressed():
    def body(k):
        boxes = torch.rand(40, 4).cumsum(1) + 0.1
        return ops.nms(boxes * 2, torch.rand(40), 0.5), (boxes + 1).sum()
    return body
makes = [pooling(lambda x, b: ops.roi_align(x, b, 2), 4), pooling(lambda x, b: ops.roi_pool(x, b, 2), 4),
         pooling(lambda x, b: ops.ps_roi_align(x, b, 2), 8), pooling(lambda x, b: ops.ps_roi_pool(x, b, 2), 8), deformed]
for make in makes:
    for options in ({}, {"memory_budget": "90%"}):
        same, stats = as_eager(make, **options)
        print(same, stats.scheduled >= 3 and stats.barriers == 0, "" if stats.barriers == 0 else stats)
same, stats = as_eager(suppressed)
print(same, "torchvision::nms" in stats.barrier_operators + stats.last_divergence, "")
""",
            11,
        )

    def test_shapes_in_turn_each_have_a_program(self):
        self.check(
            """
def lengths():
    net = nn.Linear(8, 8)
    return lambda k: (net(torch.ones(8 + 4 * (k % 6), 8)).square().mean(),)
say(lengths, least=17, steps=30)
def packed():
    net = nn.LSTM(8, 8)
    def body(k):
        y, _ = net(nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 8), torch.tensor([5, 4, 2])))
        y.data.square().mean().backward()
        return y.data, net.weight_ih_l0.grad
    return body
def pooled():
    net = nn.Sequential(nn.Conv1d(1, 4, 3), nn.MaxPool1d(2), nn.ReLU())
    def body(k):
        with torch.no_grad(): return net(torch.randn(2, 1, 16)),
    return body
say(packed), say(pooled)
""",
            3,
        )

    def test_barriers_have_names_that_users_know(self):
        self.check(
            """
def looking():
    weight = torch.randn(8, 8)
    def body(k):
        x = torch.randn(4, 8) @ weight
        return [float(x.numpy().sum()), x.data_ptr() != 0, torch.randn(4, 8).untyped_storage().resize_(256).nbytes(), torch.randn(3).sum()]
    return body
same, stats = as_eager(looking)
names = stats.barrier_operators
print(same, all(one in names for one in ("numpy() or the like", "data_ptr() or DLPack", "UntypedStorage.resize_()")) and "berth::" not in names, "" if "berth::" not in names else names)
""",
            1,
        )


if __name__ == "__main__":
    unittest.main()
