"""Step programs of programs with libraries in C++ of their own, which read and write tensors by pointers: as without a step program."""

import pathlib
import shutil
import tempfile
import unittest

from step_case import AS_EAGER
from support import ProgramCase

SOURCE = """
#include <torch/extension.h>

torch::Tensor twice(const torch::Tensor& x) {
  torch::Tensor y = torch::empty_like(x);
  const float* const from = x.const_data_ptr<float>();
  float* const to = static_cast<float*>(y.data_ptr());
  for (int64_t n = 0; n < x.numel(); ++n) to[n] = 2 * from[n];
  return y;
}
void scale(torch::Tensor x, double by) {
  auto all = x.accessor<float, 2>();
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t k = 0; k < x.size(1); ++k) all[n][k] *= by;
}
double total(const std::vector<torch::Tensor>& all) {
  double sum = 0;
  for (const torch::Tensor& x : all)
    for (int64_t n = 0; n < x.numel(); ++n) sum += x.const_data_ptr<float>()[n];
  return sum;
}
torch::Tensor state() { return at::detail::getDefaultCPUGenerator().get_state(); }
struct Function : torch::autograd::Function<Function> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x) {
    context->save_for_backward({x});
    return twice(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {twice(gradients[0].contiguous()) + 0 * twice(context->get_saved_variables()[0])};
  }
};
torch::Tensor differentiable(torch::Tensor x) { return Function::apply(x); }
class Keeper {
 public:
  explicit Keeper(torch::Tensor x) : x_(x) {}
  double total_of_kept() { return total({x_}); }
 private:
  torch::Tensor x_;
};
TORCH_LIBRARY(berth_extension_test, library) {
  library.def("twice(Tensor x) -> Tensor", &twice);
  library.def("differentiable(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(berth_extension_test, Autograd, library) {
  library.impl("differentiable", &differentiable);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("twice", &twice);
  module.def("scale", &scale);
  module.def("total", &total);
  module.def("state", &state);
  module.def("differentiable", &differentiable);
  pybind11::class_<Keeper>(module, "Keeper").def(pybind11::init<torch::Tensor>()).def("total", &Keeper::total_of_kept);
}
"""

BODIES = """
import torch.utils.cpp_extension
late = sys.argv[1] == "late"
def load():
    return torch.utils.cpp_extension.load("berth_extension_test", [sys.argv[2]], build_directory=sys.argv[3], extra_cflags=["-O0"])
if late:
    berth.StepProgram()
extension = load()
if sys.argv[1] == "frozen":
    gc.freeze()  # hides the module from gc.get_objects()
total = extension.total

def trained(use):
    def make():
        net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 8))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        keeper = extension.Keeper(net[0].weight.data)
        def body(k):
            optimizer.zero_grad()
            y, found = use(net(torch.randn(4, 8)), net)
            y.square().mean().backward()
            optimizer.step()
            return *found, total([p.data for p in net.parameters()]), keeper.total(), *net.parameters(), *(p.grad for p in net.parameters())
        return body
    return make

def by_pointers(y, net):
    extension.scale(net[0].weight.data, 0.9)
    return y + extension.twice(y.detach()), [extension.total([y.detach(), y.detach() * 2]), extension.state()]
say(trained(by_pointers))
say(trained(lambda y, net: (y + torch.ops.berth_extension_test.twice(y.detach()), [])))
say(trained(lambda y, net: (extension.differentiable(y), [])), least=0)
say(trained(lambda y, net: (torch.ops.berth_extension_test.differentiable(y), [])), least=0)
say(trained(lambda y, net: (y, [torch.ops.berth_extension_test.differentiable(y.detach()).sum()])))
"""

# A library that begins and ends profiles of libtorch's, by operators and by functions of C, and writes a tensor on a thread of its own.
LIBRARY = """
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/autograd/profiler_legacy.h>
#include <torch/library.h>

#include <thread>

using namespace torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerState;

static int64_t found = 0;
void begin() {
  const ProfilerConfig how(ProfilerState::KINETO, true, true);
  prepareProfiler(how, {ActivityType::CPU});
  enableProfiler(how, {ActivityType::CPU});
}
int64_t end() {
  int64_t aten = 0;
  const auto profile = disableProfiler();
  for (const auto& event : profile->events())
    aten += event.name().rfind("aten::addmm", 0) == 0;
  return aten;
}
at::Tensor profiled(const at::Tensor& x) {
  begin();
  const at::Tensor y = x.addmm(x, x);
  found = end();
  return y;
}
int64_t found_in_profiled() { return found; }
at::Tensor kept;
void keep(const at::Tensor& x) { kept = x; }
extern "C" void write_on_a_thread() {
  std::thread([] { kept.mul_(0.5); }).join();
}
TORCH_LIBRARY(berth_library_test, library) {
  library.def("keep", &keep);
  library.def("begin", &begin);
  library.def("end", &end);
  library.def("profiled", &profiled);
  library.def("found", &found_in_profiled);
}
extern "C" void legacy_begin() { enableProfilerLegacy(ProfilerConfig(ProfilerState::CPU, false, false)); }
extern "C" int legacy_end() {
  int aten = 0;
  for (const auto& list : disableProfilerLegacy())
    for (const auto& event : list)
      aten += event.kind() == EventKind::PushRange && std::string(event.name()) == "aten::addmm";
  return aten;
}
"""

LOADED = """
import ctypes, torch.utils.cpp_extension
torch.utils.cpp_extension.load("berth_library_test", [sys.argv[1]], build_directory=sys.argv[2], extra_cflags=["-O0"], is_python_module=False)
library, ops = ctypes.CDLL(sys.argv[2] + "/berth_library_test.so"), torch.ops.berth_library_test
"""

WRITTEN = """
def written_on_a_thread():
    net, rate = nn.Linear(8, 8), torch.ones(8)
    ops.keep(rate)
    def body(k):
        net.zero_grad()
        y = net(torch.randn(4, 8)) + rate
        if k in (4, 5): library.write_on_a_thread()
        (y + rate).square().mean().backward()
        return y, rate, net.weight.grad
    return body
say(written_on_a_thread, least=3)
"""

PROFILED = """

@torch.library.custom_op("berth_library_test::in_python", mutates_args=())
def in_python(x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        y = torch.addmm(x, x, x)
    counted.append(sum(event.name == "aten::addmm" for event in profile.events()))
    return y
counted = []

def profiled_by(begin, end, most=14):
    # Steps are recorded, planned and run by a schedule; a profile lies over a part of one, or of two.
    def make():
        net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        def body(k):
            optimizer.zero_grad()
            y = net[0](torch.randn(4, 8))
            found = []
            if k in (0, 2, 6): begin()
            y = net[2](net[1](y))
            if k in (0, 6): found = [end()]
            y.square().mean().backward()
            if k == 3: found = [end()]
            optimizer.step()
            return *found, y, *net.parameters(), *(p.grad for p in net.parameters())
        return body
    return make
def within(run, found):
    def make():
        net = nn.Linear(8, 8)
        def body(k):
            net.zero_grad()
            y = net(torch.randn(8, 8))
            z = run(y.detach())
            (y * z).square().mean().backward()
            return z, found(), net.weight.grad
        return body
    return make
def begin_in_python():
    profiles.append(torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True))
    profiles[-1].__enter__()
def end_in_python():
    profiles[-1].__exit__(None, None, None)
    return sum(event.name == "aten::addmm" for event in profiles[-1].events())
profiles = []
for begin, end in ((ops.begin, ops.end), (library.legacy_begin, library.legacy_end), (begin_in_python, end_in_python)):
    say(profiled_by(begin, end), steps=10, least=4)
    say(profiled_by(begin, end), steps=10, least=4, memory_budget="90%", host_memory="1GiB", copy_rate=10**10)
say(within(ops.profiled, ops.found)), say(within(in_python, lambda: counted[-1]))
"""

# What a function and an operator in C++ take has left for the host, before the first step has ended.
FIRST = """
import os, sys
if os.environ.get("BERTH_BUDGET"):
    import berth
    berth.install("cpu")
import torch, torch.utils.cpp_extension
torch.set_num_threads(1)
extension = torch.utils.cpp_extension.load("berth_extension_test", [sys.argv[1]], build_directory=sys.argv[2], extra_cflags=["-O0"])
weight = torch.nn.Parameter(torch.ones(1000))
optimizer = torch.optim.SGD([weight], 0.01)
for step in range(3):
    for twice in (extension.twice, torch.ops.berth_extension_test.twice):
        y = (weight * 2).detach()
        kept = [torch.full((1 << 18,), float(k)) + 1 for k in range(6)]
        loss = twice(y).sum() + (weight * y).sum()
        del kept
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
loop = sys.modules.get("berth._loop")
print("spilled", loop is None or loop.stats().spilled_out > 0)
"""


@unittest.skipUnless(shutil.which("c++") and shutil.which("ninja"), "a compiler and ninja are needed")
class Extensions(ProgramCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.built = pathlib.Path(folder.name)
        (cls.built / "extension.cc").write_text(SOURCE)

    def check(self, when):
        printed = self.python(AS_EAGER + BODIES, when, self.built / "extension.cc", self.built)
        self.assertEqual(printed.split("\n")[:5], ["True True "] * 5)

    def test_functions_classes_and_operators_in_cpp(self):
        """Whether the extension is there before the first step program or not."""
        self.check("late")
        self.check("early")
        self.check("frozen")

    def test_a_first_step_that_does_not_fit(self):
        alone = self.python(FIRST, self.built / "extension.cc", self.built, standin=())
        under = self.python(
            FIRST,
            self.built / "extension.cc",
            self.built,
            standin=(),
            BERTH_BUDGET="fit",
            BERTH_MEMORY_LIMIT="4MiB",
        )
        self.assertEqual(under, alone)
        self.assertIn("spilled True", under)

    def library(self):
        (self.built / "library.cc").write_text(LIBRARY)
        return self.built / "library.cc", self.built

    def test_profiles_begun_in_cpp(self):
        """In the middle of steps, by functions and by operators, and within one operator. In Python as well."""
        printed = self.python(AS_EAGER + LOADED + PROFILED, *self.library())
        self.assertEqual(printed.split("\n")[:8], ["True True "] * 8)

    def test_a_thread_of_cpp_writes(self):
        """Python knows nothing of it."""
        printed = self.python(AS_EAGER + LOADED + WRITTEN, *self.library())
        self.assertEqual(printed.split("\n")[0], "True True ")


if __name__ == "__main__":
    unittest.main()
