"""torch.compile with berth's partitioner: the bits of the model, within the budget, and less time's worth made again than there is room for."""

import unittest

from support import PREAMBLE, ProgramCase

# compiled(model, budget): by kernels of libtorch one by one, so that what a partition needs can be counted to the byte.
PROGRAM = (
    PREAMBLE
    + """
import copy, warnings
import berth
from torch import nn
from torch.nn import functional as F
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop

def compiled(model, budget, **options):
    torch._dynamo.reset()
    made = berth.partitioner(budget, **options)
    return torch.compile(model, backend=aot_autograd(fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=made)), made.planned

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix, self.join = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    def forward(self, x):
        q, k, v = self.mix(self.norm(x)).chunk(3, -1)
        x = x + self.join(torch.softmax(q @ k.transpose(1, 2) / 8, -1) @ v)
        return x + self.wide(x)

class Net(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
    def forward(self, x):
        return self.body(x).square().mean()

def attention():
    return Net(nn.Sequential(*(Block(64) for _ in range(4)))), torch.randn(8, 96, 64)

def convolutions():
    layers = []
    for k in range(5):
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.1 * (k % 2))]
    return Net(nn.Sequential(*layers)), torch.randn(16, 8, 48, 48)

def left_by(net, call, x):
    torch.manual_seed(5)
    loss = call(x)
    loss.backward()
    return [loss.detach(), *(p.grad for p in net.parameters()), *net.buffers()]

def peak_of(call, x):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call(x).backward()
    live = most = 0
    for one in sorted((e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        live += one.nbytes()
        most = max(most, live)
    return most
"""
)


class Partitions(ProgramCase):
    def python(self, text, *arguments, **options):
        """What torch keeps of an earlier run of the same test was planned by nobody in this one."""
        return super().python(text, *arguments, TORCHINDUCTOR_CACHE_DIR=str(self.folder / "inductor"), **options)

    def test_bits_are_those_of_the_model_and_peaks_are_as_planned(self):
        program = (
            PROGRAM
            + """
for make in (attention, convolutions):
    torch.manual_seed(1)
    net, x = make()
    first = copy.deepcopy(net)
    expected = left_by(first, first, x)
    peaks, plans = [], []
    for share in (1.0, 0.8, 0.65, 0.5):
        model = copy.deepcopy(net)
        call, planned = compiled(model, f"{100 * share:g}%")
        found = left_by(model, call, x)
        assert all(torch.equal(a, b) for a, b in zip(found, expected)), (make.__name__, share)
        for parameter in model.parameters():
            parameter.grad = None
        peaks.append(peak_of(call, x))
        one, = planned
        plans.append(one.peak)
        assert (one.recomputed > 0) == (share < 1), one
        if share >= 0.8:  # of several results each is let go of by itself
            assert peaks[-1] <= 1.01 * (one.peak - one.resident), (make.__name__, share, peaks, one)
        if make is attention:  # kernels of convolutions have workspaces, which no graph shows
            assert one.peak - one.resident <= share * (one.base_peak - one.resident), one
            assert peaks[-1] <= one.peak - one.resident + 4096, (share, peaks, one)
    assert plans == sorted(plans, reverse=True), (make.__name__, plans)
    assert make is convolutions or peaks == sorted(peaks, reverse=True), (make.__name__, peaks)
    assert peaks[-1] < 0.75 * peaks[0], (make.__name__, peaks)
print("done")
"""
        )
        self.assertEqual(self.python(program).splitlines(), ["done"])

    def test_what_a_step_writes_to_its_inputs_is_read_by_no_second_run(self):
        # Batch norms in training read and write their statistics: a second run would read the new ones.
        program = (
            PROGRAM
            + """
net, x = convolutions()
first = copy.deepcopy(net)
expected = left_by(first, first, x)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    call, planned = compiled(net, "30%")
    found = left_by(net, call, x)
assert any("nothing was found within the memory budget" in str(one.message) for one in caught), [str(one.message) for one in caught]
assert planned[0].recomputed > 0 and all(torch.equal(a, b) for a, b in zip(found, expected))
print("done")
"""
        )
        self.assertEqual(self.python(program).splitlines(), ["done"])

    def test_a_partitioner_can_be_pickled_and_torch_logs_no_error(self):
        program = (
            PROGRAM
            + """
import pickle
from torch._inductor.custom_graph_pass import CustomPartitionerFn
net, x = attention()
made = berth.partitioner("60%", time_limit=1.0)
copied = pickle.loads(pickle.dumps(made))
print(isinstance(copied, CustomPartitionerFn), copied.uuid() == made.uuid(), copied.planned == made.planned)
left_by(net, torch.compile(net, options={"custom_partitioner_fn": made}), x)
print(len(pickle.loads(pickle.dumps(made)).planned), len(copy.deepcopy(made).planned))
"""
        )
        self.assertEqual(self.python(program).splitlines(), ["True True True", "1 1"])
        self.assertNotIn("Traceback", self.stderr)
        # In another process, which has imported nothing yet.
        program = (
            PROGRAM
            + """
import pickle, subprocess, sys
text = pickle.dumps(berth.partitioner(2**30))
code = "import pickle, sys; made = pickle.loads(sys.stdin.buffer.read()); print(made.uuid())"
print(subprocess.run([sys.executable, "-c", code], input=text, capture_output=True, check=True).stdout.decode().strip() ==
      berth.partitioner(2**30).uuid())
"""
        )
        self.assertEqual(self.python(program).splitlines(), ["True"])

    def test_a_graph_that_is_not_supported_goes_to_pytorch_in_words(self):
        program = (
            PROGRAM
            + """
def scaled(x):
    return (x * 2).relu().sum()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for rows in (4, 6, 9):  # a shape that changes is one that is not known
        x = torch.randn(rows, 3, requires_grad=True)
        call = compiled(scaled, "50%")[0] if rows == 4 else call
        call(x).backward()
        assert torch.equal(x.grad, 2.0 * (x > 0)), x.grad
print([str(one.message) for one in caught if "left to PyTorch's partitioner" in str(one.message)] != [])
for budget in ("some", "0%", -3):
    try:
        berth.partitioner(budget)
    except berth.UsageError as error:
        print(error)
"""
        )
        lines = self.python(program).splitlines()
        self.assertEqual(lines[0], "True")
        self.assertEqual(len(lines), 4)
        self.assertTrue(all("memory_budget is" in line for line in lines[1:]), lines)

    def test_the_compiler_s_own_kernels_compute_the_same(self):
        program = (
            PROGRAM
            + """
net, x = attention()
first = copy.deepcopy(net)
expected = left_by(first, first, x)
made = berth.partitioner("60%")
call = torch.compile(net, options={"custom_partitioner_fn": made})
for a, b in zip(left_by(net, call, x), expected):
    torch.testing.assert_close(a, b)
print(made.planned[0].recomputed > 0)
"""
        )
        self.assertEqual(self.python(program).splitlines(), ["True"])


if __name__ == "__main__":
    unittest.main()
