// Spills on a CPU whose memory is one small range, of which a request takes the first bytes that
// are free: where what an operator takes comes to lie, and what operators find that use tensors
// beside their arguments.
#include "csrc/torch/shared/room.h"
#include "csrc/torch/step/spills.h"
#include "tests/catch.h"

#include <berth/step_program.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

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

TEST_CASE("An operator that is composite elsewhere begins again on a device with its kernel",
          "[spills]") {
  berth::torch::allow_spills(1 << 30);
  range.resize(182 * kKiB);
  const Tensor gradient = filled(60, 1), between = filled(30, 2), x = filled(60, 0);
  REQUIRE(torch::silu_backward(gradient, x).eq(0.5).all().item<bool>());
  REQUIRE(is_away(between));
}

}  // namespace
