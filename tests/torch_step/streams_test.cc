// Steps of several streams, on a device of the tests: it computes as the CPU does, and writes down
// which kernel was queued in which stream, and where events were recorded and waited for. Each body
// here queues in a scheduled step what it queues without one, in the same order.
#include "csrc/torch/step/byte_access.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

#include <berth/graph.h>
#include <berth/step_program.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace {

using berth::torch::StepProgram;
using torch::Tensor;

constexpr auto kType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kType, 0);

std::vector<std::string> log_of_device;
thread_local c10::StreamId current = 0;

c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, kDevice, id); }

template <typename... Arguments>
void note(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  log_of_device.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
}

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const block = bytes == 0 ? nullptr : std::malloc(bytes);
    return {block, block, &std::free, kDevice};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
Memory memory;
const bool memory_is_known = [] {
  c10::SetAllocator(kType, &memory);
  return true;
}();

// Streams run what they are given at once; events are numbers, by the order of their first records.
class Streams final : public c10::impl::DeviceGuardImplInterface {
 public:
  [[nodiscard]] c10::DeviceType type() const override { return kType; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  [[nodiscard]] c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  [[nodiscard]] c10::Stream getStream(c10::Device) const override { return stream(current); }
  [[nodiscard]] c10::Stream getDefaultStream(c10::Device) const override { return stream(0); }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream to) const override {
    return stream(std::exchange(current, to.id()));
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& on, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new int(0);
    note("record on {}", on.id());
  }
  void block(void*, const c10::Stream& one) const override { note("{} waits", one.id()); }
  [[nodiscard]] bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<int*>(event);
  }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  [[nodiscard]] double elapsedTime(void*, void*, const c10::DeviceIndex) const override {
    return 0;
  }
  void recordDataPtrOnStream(const c10::DataPtr& block, const c10::Stream& on) const override {
    note("{} uses {}", on.id(), block.get_deleter() == &std::free ? "a block" : "something else");
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Streams)

Tensor empty_on_device(c10::SymIntArrayRef size, std::optional<c10::ScalarType> type,
                       std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>,
                       std::optional<c10::MemoryFormat>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  return at::detail::empty_generic(sizes, &memory,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), std::nullopt);
}
Tensor empty_strided_on_device(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                               std::optional<c10::ScalarType> type, std::optional<c10::Layout>,
                               std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

// The same bytes as a tensor of the CPU.
Tensor on_host(const Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return torch::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                          at::TensorOptions().dtype(tensor.dtype()));
}
Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}
Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  on_host(to).copy_(on_host(from));
  return to;
}
void record_stream_on_device(Tensor& tensor, c10::Stream used) {
  Streams().recordDataPtrOnStream(tensor.storage().data_ptr(), used);
}
c10::Scalar local_scalar(const Tensor& tensor) { return at::_local_scalar_dense(on_host(tensor)); }

void run_on_host(const c10::OperatorHandle& op, c10::Stack* stack) {
  note("{} on {}", op.operator_name().name.substr(6), current);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty_on_device);
  m.impl("empty_strided", &empty_strided_on_device);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("record_stream", &record_stream_on_device);
  m.impl("_local_scalar_dense", &local_scalar);
}

constexpr int kSteps = 9;

struct Outcome {
  std::vector<std::vector<std::string>> queued;  // by each step
  std::vector<double> seen;                      // what each step left
  berth::torch::StepProgramStats stats;
};

using Body = std::function<Tensor(int step)>;
Outcome run(const Body& body, bool scheduled, berth::torch::StepProgramOptions options = {}) {
  options.plan_wait_seconds = std::numeric_limits<double>::infinity();
  StepProgram program(options);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    log_of_device.clear();
    Tensor left;
    if (scheduled) {
      const auto scope = program.step();
      left = body(step);
    } else {
      left = body(step);
    }
    outcome.queued.push_back(log_of_device);
    outcome.seen.push_back(on_host(left).to(at::kDouble).sum().item<double>());
  }
  outcome.stats = program.stats();
  return outcome;
}

// Whether every step queues the same in the same order, and most run by a schedule.
Outcome check_same(const Body& body, const berth::torch::StepProgramOptions& options = {}) {
  const Outcome eager = run(body, false), found = run(body, true, options);
  INFO(found.stats.last_refusal << found.stats.last_divergence);
  REQUIRE(eager.seen == found.seen);
  REQUIRE(eager.queued == found.queued);
  return found;
}

Tensor batch(int step) { return torch::full({256}, 1.0 + step).to(kDevice); }

// `then` waits for what `first` was asked for, by an event that no operator shows.
void order(c10::StreamId first, c10::StreamId then) {
  c10::Event done(kType);
  done.record(stream(first));
  done.block(stream(then));
}

void order_streams() {
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(std::string(berth::torch::step::kOrderStreams).c_str(), "")
      .typed<void()>()
      .call();
}

}  // namespace

TEST_CASE("A call on another stream runs there when it is called, and all before it",
          "[step][streams]") {
  const at::NoGradGuard no_grad;
  const Outcome found = check_same([](int step) {
    const Tensor x = batch(step) * 2;
    order(0, 1);
    Tensor y;
    {
      const c10::StreamGuard side(stream(1));
      y = x + 1;
    }
    order(1, 0);
    return y * 3;
  });
  REQUIRE(found.stats.scheduled == kSteps - 2);
  REQUIRE(found.stats.barriers > 0);
}

TEST_CASE("The stream of most calls is the step's own, wherever its first call is",
          "[step][streams]") {
  const at::NoGradGuard no_grad;
  const Outcome found = check_same([](int step) {
    Tensor x;
    {
      const c10::StreamGuard side(stream(step + 1));  // another one each time
      x = batch(step) + 1;
    }
    order(step + 1, 0);
    return ((x * 2).exp() * 3 + x).sin() + 1;
  });
  REQUIRE(found.stats.scheduled == kSteps - 2);
  REQUIRE(found.stats.barriers <= 4);
}

TEST_CASE("A value that another stream takes gives its bytes to no other", "[step][streams]") {
  const at::NoGradGuard no_grad;
  // Nobody has `x` where `cos` takes it, and the other stream may still read it.
  const Outcome found = check_same([](int step) {
    Tensor x = batch(step) * 2;
    order(0, 1);
    Tensor y;
    {
      const c10::StreamGuard side(stream(1));
      y = x + 1;
    }
    x.record_stream(stream(1));
    Tensor z = x.cos();
    x.reset();
    order(1, 0);
    return y + z;
  });
  REQUIRE(found.stats.scheduled == kSteps - 2);
}

TEST_CASE("The allocator is told of another stream by the block itself", "[step][streams]") {
  const at::NoGradGuard no_grad;
  const Outcome found = check_same([](int step) {
    const Tensor x = batch(step) * 2;
    x.record_stream(stream(1));
    // As autograd does, without an operator.
    Streams().recordDataPtrOnStream(x.storage().data_ptr(), stream(2));
    const Tensor y = x + 1;
    y.record_stream(stream(3 + step));
    return y * 2;
  });
  REQUIRE(found.stats.scheduled == kSteps - 2);
  REQUIRE(std::count(found.queued.back().begin(), found.queued.back().end(), "1 uses a block") ==
          1);
  REQUIRE(std::count(found.queued.back().begin(), found.queued.back().end(), "2 uses a block") ==
          1);
}

TEST_CASE("What is called before an event is queued before it, where the body says so",
          "[step][streams]") {
  const at::NoGradGuard no_grad;
  const Outcome found = check_same([](int step) {
    const Tensor x = batch(step) * 2;
    const Tensor y = x.sin();
    order_streams();
    order(0, 7);  // for somebody behind the step
    return (y * 3).exp();
  });
  REQUIRE(found.stats.scheduled == kSteps - 2);
}

TEST_CASE("A step that first orders streams when it is known runs on as written",
          "[step][streams]") {
  const at::NoGradGuard no_grad;
  const auto body = [](int step) {
    const Tensor x = batch(step) * 2;
    const Tensor y = x.sin();
    if (step == 6) order_streams(), order(0, 7);
    return (y * 3).exp();
  };
  const Outcome eager = run(body, false), found = run(body, true);
  REQUIRE(eager.seen == found.seen);
  // Results may take the bytes of operands, so kernels have other names.
  const auto queued_before = [](const std::vector<std::string>& queued) {
    return std::find(queued.begin(), queued.end(), "record on 0") - queued.begin();
  };
  REQUIRE(queued_before(eager.queued[6]) == queued_before(found.queued[6]));
  REQUIRE(found.stats.diverged == 1);
  REQUIRE(found.stats.scheduled == kSteps - 3);
}

TEST_CASE("Each stream waits for what was put off when a step leaves its program",
          "[step][streams]") {
  const at::NoGradGuard no_grad;
  // Of a step of one stream, events that no operator shows order nothing that is put off.
  const auto body = [](int step) {
    const Tensor x = batch(step) * 2;
    if (step != 6) return x + 1;
    order(0, 1);
    order(0, 2);
    const auto on = [&](c10::StreamId id) {
      const c10::StreamGuard side(stream(id));
      return x + static_cast<double>(id);
    };
    return on(1) + on(2);
  };
  const Outcome eager = run(body, false), found = run(body, true);
  REQUIRE(eager.seen == found.seen);
  REQUIRE(found.stats.diverged == 1);
  const std::vector<std::string>& queued = found.queued[6];
  const auto at = [&](const std::string& text, std::size_t from = 0) {
    return static_cast<std::size_t>(
        std::find(queued.begin() + static_cast<std::ptrdiff_t>(from), queued.end(), text) -
        queued.begin());
  };
  const std::size_t made = at("mul on 0");
  REQUIRE(made < queued.size());
  REQUIRE(at("1 waits", made) < at("add on 1", made));
  REQUIRE(at("2 waits", made) < at("add on 2", made));
  REQUIRE(at("add on 2", made) < queued.size());
}

TEST_CASE("Streams that a step orders itself wait for nothing else", "[step][streams]") {
  const at::NoGradGuard no_grad;
  const Outcome found = check_same([](int step) {
    const Tensor x = batch(step) * 2;
    Tensor y;
    {
      const c10::StreamGuard side(stream(1));
      y = batch(step) + 1;  // ordered behind nothing
    }
    const Tensor z = x.sin();
    order(1, 0);
    return y + z;
  });
  REQUIRE(found.stats.scheduled == kSteps - 2);
}

TEST_CASE("What another stream has taken is another version, which no call makes again",
          "[step][streams]") {
  const at::NoGradGuard no_grad;
  const berth::test::TemporaryFolder folder;
  StepProgram program({.plan_wait_seconds = std::numeric_limits<double>::infinity()});
  for (int step = 0; step < 3; ++step) {
    const auto scope = program.step();
    const Tensor x = batch(step) * 2;
    order(0, 1);
    Tensor y;
    {
      const c10::StreamGuard side(stream(1));
      y = x.sin();
    }
    order(1, 0);
    y = x.cos() + y;
  }
  program.save_graph(folder / "step.graph", /*as_written=*/true);
  const berth::graph::Graph graph = berth::graph::read_graph(folder / "step.graph");
  const auto find = [&](const std::string& name) {
    return *std::find_if(graph.operators.begin(), graph.operators.end(),
                         [&](const berth::graph::Operator& one) { return one.name == name; });
  };
  const auto& side = find("aten::sin");
  REQUIRE(side.traits.only_once());
  const auto& taken = side.alternatives.front();
  const berth::graph::ValueId x = taken.reads.front().value;
  REQUIRE(std::count(taken.writes.begin(), taken.writes.end(),
                     berth::graph::ValueId{x.storage, x.version + 1}) == 1);
  REQUIRE(find("aten::cos").alternatives.front().reads.front().value ==
          berth::graph::ValueId{x.storage, x.version + 1});
}
