// Spills on a CPU whose memory is one small range, of which a request takes the first bytes that
// are free: where what an operator takes comes to lie, and what operators find that use tensors
// beside their arguments.
#include "csrc/torch/step/spills.h"

#include "csrc/torch/shared/room.h"
#include "csrc/torch/step/backward_nodes.h"
#include "csrc/torch/step/ghost_storage.h"
#include "csrc/torch/step/spill_memory.h"
#include "tests/catch.h"

#include <berth/step_program.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

namespace {

using berth::torch::StepProgram;
using torch::Tensor;

constexpr std::size_t kKiB = 1024;

class Range final : public c10::Allocator {
 public:
  // Nobody may hold any of it.
  void resize(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    REQUIRE(used_.empty());
    std::free(base_);
    base_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
    size_ = bytes;
  }
  c10::DataPtr allocate(std::size_t bytes) override {
    void* block = bytes < kLeast ? std::aligned_alloc(kAlignment, kLeast) : find(bytes);
    while (block == nullptr) {
      berth::torch::RoomMaker* const maker = berth::torch::room_maker();
      const bool again = maker != nullptr && maker->make_room(c10::kCPU, bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, again, "no room for ", bytes);
      block = find(bytes);
    }
    return {block, block, &give_back, c10::kCPU};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static constexpr std::size_t kAlignment = 64, kLeast = 512;

  void* find(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::size_t first = 0;
    for (const auto& [at, taken] : used_) {
      if (at - first >= size) break;
      first = at + taken;
    }
    if (size_ - first < size) return nullptr;
    used_.emplace(first, size);
    return base_ + first;
  }
  static void give_back(void* block);

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::map<std::size_t, std::size_t> used_;
};
Range range;
const bool range_is_known = [] {
  c10::SetCPUAllocator(&range, 100);
  berth::torch::note_asks_for_room(c10::kCPU);
  return true;
}();

void Range::give_back(void* block) {
  const std::lock_guard lock(range.mutex_);
  const auto at = static_cast<std::size_t>(static_cast<std::byte*>(block) - range.base_);
  if (range.base_ == nullptr || at >= range.size_)
    std::free(block);
  else
    range.used_.erase(at);
}

Tensor filled(std::int64_t kib, float value) { return torch::full({kib * 256}, value); }
bool is_away(const Tensor& tensor) {
  return berth::torch::step::Spills::away(*tensor.storage().unsafeGetStorageImpl());
}

TEST_CASE("What schedules copy to the host has the room of tensors that leave", "[spills]") {
  berth::torch::step::SpillMemory memory;
  memory.allow(100 * kKiB);
  memory.add_scheduled(60 * kKiB);
  CHECK(memory.scheduled() == 60 * kKiB);
  CHECK(memory.has(40 * kKiB));
  CHECK_FALSE(memory.has(41 * kKiB));
  memory.leave(40 * kKiB);
  CHECK_FALSE(memory.has(1));
  memory.drop_scheduled(60 * kKiB);
  CHECK(memory.has(60 * kKiB));
}

TEST_CASE("There is room for what an operator asks for beside what it takes", "[spills]") {
  berth::torch::allow_spills(1 << 30);
  range.resize(240 * kKiB);
  c10::DataPtr before = range.allocate(124 * kKiB);
  const c10::DataPtr stays = range.allocate(1 * kKiB);
  before.clear();
  const Tensor a = torch::full({160, 80}, 2.0F), b = torch::full({80, 192}, 3.0F);
  // 50 and 60 KiB, of 124 and 115 on the two sides; the result has 120.
  REQUIRE(torch::mm(a, b).eq(480).all().item<bool>());
}

// The bytes of 60 KiB, in two storages.
struct Pair {
  Tensor other = filled(60, 2);
  c10::Storage real = berth::torch::step::take_apart(other.storage());

  [[nodiscard]] Tensor of_real() const { return torch::empty({0}).set_(real, 0, {60 * 256}); }
};

TEST_CASE("Two storages over the same bytes leave and come back together", "[spills]") {
  berth::torch::allow_spills(1 << 30);
  range.resize(130 * kKiB);
  Pair pair;
  const Tensor real = pair.of_real();
  const void* const before = pair.other.data_ptr();
  REQUIRE(real.data_ptr() == before);
  Tensor more = filled(100, 0);
  CHECK(is_away(pair.other));
  CHECK(is_away(real));
  SECTION("by the one") {
    pair.other.add_(1);
    CHECK(is_away(more));
    CHECK(real.data_ptr() == pair.other.data_ptr());
    CHECK(real.eq(3).all().item<bool>());
  }
  SECTION("by the other, which is written") {
    REQUIRE(pair.of_real().add_(1).eq(3).all().item<bool>());
    CHECK(pair.other.data_ptr() == real.data_ptr());
    more.add_(1);  // they leave again
    CHECK(is_away(pair.other));
    CHECK(pair.other.eq(3).all().item<bool>());
  }
  SECTION("until one has the bytes alone") {
    SECTION("away") {}
    SECTION("there") { REQUIRE(real.eq(2).all().item<bool>()); }
    berth::torch::step::move_bytes(pair.real, *pair.other.storage().unsafeGetStorageImpl());
    pair.real = {};
    CHECK(pair.other.eq(2).all().item<bool>());
    more.add_(1);
    CHECK(is_away(pair.other));
    CHECK(pair.other.eq(2).all().item<bool>());
  }
  SECTION("until one is gone") {
    pair.other.reset();
    CHECK(is_away(real));
    CHECK(real.eq(2).all().item<bool>());
    more.add_(1);
    CHECK(is_away(real));
    CHECK(real.eq(2).all().item<bool>());
  }
  SECTION("unless NumPy has an array of one") {
    CHECK(pair.other.eq(2).all().item<bool>());
    pair.other.storage().unsafeGetStorageImpl()->set_resizable(false);  // as numpy() does
    CHECK_THROWS_AS(more.add_(1), c10::OutOfMemoryError);
    CHECK_FALSE(is_away(real));
  }
  SECTION("unless one is in use") {
    const berth::torch::step::Spills::Use there(pair.other.storage());
    CHECK_THROWS_AS(more.add_(1), c10::OutOfMemoryError);
    CHECK_FALSE(is_away(real));
  }
}

TEST_CASE("What an operator uses stays where it becomes one of two storages", "[spills]") {
  berth::torch::allow_spills(1 << 30);
  range.resize(130 * kKiB);
  Tensor other = filled(60, 2);
  const berth::torch::step::Spills::Use there(other.storage());
  const c10::Storage real = berth::torch::step::take_apart(other.storage());
  CHECK_THROWS_AS(filled(100, 0), c10::OutOfMemoryError);
  CHECK_FALSE(is_away(other));
}

TEST_CASE("What libtorch reads inside a tensor stays", "[spills]") {
  berth::torch::allow_spills(1 << 30);
  range.resize(388 * kKiB);
  const std::vector<Tensor> rows(64, torch::ones({4, 8}));
  const Tensor nested = at::_nested_tensor_from_tensor_list(rows);
  const Tensor turned = nested.transpose(1, 2);  // a view
  const Tensor scaled =
      torch::quantize_per_channel(torch::ones({256, 8}), torch::full({256}, 0.5, torch::kDouble),
                                  torch::zeros({256}, torch::kLong), 0, torch::kQInt8);
  {
    const Tensor first = filled(340, 1), second = filled(16, 2), third = filled(16, 3);
    CHECK_FALSE(turned.is_contiguous());
  }
  CHECK(at::matmul(nested, turned).unbind()[63].sum().item<float>() == 4 * 4 * 8);
  CHECK(scaled.dequantize().sum().item<float>() == 256 * 8);
}

TEST_CASE("An operator that is composite elsewhere begins again on a device with its kernel",
          "[spills]") {
  berth::torch::allow_spills(1 << 30);
  range.resize(182 * kKiB);
  const Tensor gradient = filled(60, 1), between = filled(30, 2), x = filled(60, 0);
  REQUIRE(torch::silu_backward(gradient, x).eq(0.5).all().item<bool>());
  REQUIRE(is_away(between));
}

// --- Operators of the program's own, which use a table and a counter that are no arguments. ------

Tensor& table() {
  static Tensor one;
  return one;
}
Tensor& counter() {
  static Tensor one;
  return one;
}
Tensor look(const Tensor& x) { return x + table()[0]; }
Tensor count(const Tensor& x) {
  counter().add_(1);
  return look(x);
}
TORCH_LIBRARY(spills_test, m) {
  m.def("look(Tensor x) -> Tensor");
  m.def("count(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(spills_test, CPU, m) {
  m.impl("look", &look);
  m.impl("count", &count);
}
TORCH_LIBRARY_IMPL(spills_test, Meta, m) {
  m.impl("look", [](const Tensor& x) { return torch::empty_like(x); });
}

double call(const char* name) {
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Tensor(const Tensor&)>();
  return op.call(torch::ones({4})).sum().item<double>();
}
// All else leaves.
void squeeze() {
  REQUIRE(filled(240, 1)[0].item<float>() == 1);
  REQUIRE(is_away(table()));
}

// Calls it in steps: what it adds each time, and whether it ran by a schedule.
std::uint64_t run(const char* name, const std::function<double(const char*)>& how, bool refused) {
  berth::torch::StepProgramOptions options;
  options.host_memory = 1 << 30;
  options.plan_wait_seconds = std::numeric_limits<double>::infinity();
  StepProgram program(options);
  range.resize(256 * kKiB);
  table() = filled(40, 7), counter() = filled(40, 0);
  for (int step = 0; step < 6; ++step) {
    const auto scope = program.step();
    if (refused) (void)at::_nested_tensor_from_tensor_list({torch::ones({8})});
    squeeze();
    REQUIRE(how(name) == 32);
    squeeze();
    REQUIRE(how(name) == 32);
  }
  const double counted = counter()[0].item<double>();
  REQUIRE(counted == (std::string_view(name).ends_with("count") ? 12 : 0));
  table() = counter() = Tensor();
  return program.stats().scheduled;
}

TEST_CASE("Operators that nobody knows find what is no argument of theirs", "[spills]") {
  run("spills_test::count", call, false);
  run("spills_test::count", call, true);
}

TEST_CASE("On other threads operators find what is no argument of theirs", "[spills]") {
  berth::torch::watch_threads();
  const auto elsewhere = [](const char* name) {
    double found = 0;
    std::thread([&] { found = call(name); }).join();
    return found;
  };
  run("spills_test::count", elsewhere, false);
}

TEST_CASE("Operators that are declared pure find what is no argument of theirs", "[spills]") {
  berth::torch::pure("spills_test::look");
  REQUIRE(run("spills_test::look", call, false) > 2);
}

// --- What functions and operators in C++ may read by pointers. -----------------------------------

// Its backward function asks for memory, and then reads the gradient.
struct Doubles : torch::autograd::Function<Doubles> {
  static Tensor forward(torch::autograd::AutogradContext* /*context*/, const Tensor& x) {
    return x + x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& gradients) {
    (void)torch::empty({70 * 256});
    const auto* const from = static_cast<const float*>(gradients[0].const_data_ptr());
    return {torch::full({gradients[0].numel()}, 2 * from[0])};
  }
};

TEST_CASE("Backward functions in C++ find their gradients", "[spills]") {
  berth::torch::allow_spills(1 << 30);
  berth::torch::step::watch_backward_nodes();
  range.resize(256 * kKiB);
  const Tensor x = filled(60, 1).requires_grad_(), y = Doubles::apply(x);
  berth::torch::share_bytes(x.detach());
  berth::torch::share_bytes(y.detach());
  // The older one would leave first.
  const Tensor gradient = filled(60, 3), between = filled(60, 4);
  y.backward(gradient);
  REQUIRE(is_away(between));
  REQUIRE(x.grad()[0].item<float>() == 6);
}

const float* kept_from = nullptr;
Tensor keep_sum(const Tensor& x) {
  static Tensor kept;
  kept = x.numel() == 0 ? Tensor() : x + 1;
  kept_from = kept.defined() ? kept.const_data_ptr<float>() : nullptr;
  table() = kept;
  return x.clone();
}
TORCH_LIBRARY_FRAGMENT(spills_test, m) { m.def("keep_sum(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(spills_test, CPU, m) { m.impl("keep_sum", &keep_sum); }

TEST_CASE("What an operator of nobody's makes inside may be read by a pointer later", "[spills]") {
  berth::torch::allow_spills(1 << 30);
  range.resize(240 * kKiB);
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("spills_test::keep_sum", "")
                      .typed<Tensor(const Tensor&)>();
  (void)op.call(filled(30, 1));
  const Tensor a = filled(100, 1), b = filled(100, 2);
  REQUIRE(is_away(a));
  REQUIRE_FALSE(is_away(table()));
  REQUIRE(*kept_from == 2);
  (void)op.call(torch::empty({0}));
}

}  // namespace
