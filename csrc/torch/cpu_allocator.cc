#include "csrc/torch/cpu_allocator.h"

#include "csrc/core/check.h"
#include "csrc/facts/rounding.h"
#include "csrc/torch/installation.h"
#include "csrc/torch/shared/room.h"
#include "csrc/torch/thread_lane.h"

#include <berth/warnings.h>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>

namespace berth::torch {

namespace {

// Above libtorch's own (0) and those of its extensions.
constexpr std::uint8_t kPriority = 100;

void warn_of_misuse(Allocator::FreeOutcome outcome, const void* block) noexcept {
  static std::atomic<bool> warned_unknown{false}, warned_foreign{false};
  try {
    if (outcome == Allocator::FreeOutcome::kUnknown && !warned_unknown.exchange(true))
      warn("double-free",
           fmt::format("{} was freed, but no live block of berth starts there: it was freed before "
                       "or never handed out; berth leaves it alone and counts further ones",
                       block));
    if (outcome == Allocator::FreeOutcome::kForeign && !warned_foreign.exchange(true))
      warn("unknown-pointer",
           fmt::format("{} was freed, which lies in no memory of berth; berth leaves it alone and "
                       "counts further ones",
                       block));
  } catch (...) {  // no memory for the text
  }
}

void free_block(void* block) noexcept {
  if (block == nullptr) return;
  Installation& installation = *Installation::get();
  try {
    c10::profiledCPUMemoryReporter().Delete(block);
  } catch (...) {  // the profiler's loss
  }
  if (installation.forked()) [[unlikely]] {
    if (!installation.allocator().contains(block)) std::free(block);
    return;
  }
  const Allocator::FreeOutcome outcome = installation.allocator().free(block);
  if (outcome == Allocator::FreeOutcome::kDone) [[likely]]
    return;
  if (outcome == Allocator::FreeOutcome::kForeign) installation.count_foreign_free();
  warn_of_misuse(outcome, block);
}

[[noreturn]] void throw_as_libtorch(std::size_t bytes, const std::string& reason, bool exhausted) {
  c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
  const std::string text = fmt::format(
      "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes. berth: {}",
      bytes, reason);
  TORCH_CHECK_WITH(OutOfMemoryError, !exhausted, text);
  TORCH_CHECK(false, text);
}

// A block in a forked child.
void* allocate_from_system(std::size_t bytes) {
  void* block = nullptr;
  if (const int error = ::posix_memalign(&block, facts::kHostAlignment, bytes); error != 0)
    throw_as_libtorch(bytes, fmt::format("in a forked child, {}", std::strerror(error)), true);
  return block;
}

}  // namespace

c10::DataPtr CpuAllocator::allocate(std::size_t bytes) {
  void* block = nullptr;
  if (bytes == 0) {
  } else if (installation_.forked()) [[unlikely]] {
    block = allocate_from_system(bytes);
  } else {
    while (block == nullptr) {
      try {
        block = installation_.allocator().allocate(bytes, thread_lane(), thread_tag());
      } catch (const OutOfMemory& error) {
        RoomMaker* const maker = room_maker();
        if (maker != nullptr && maker->make_room(c10::kCPU, bytes)) continue;
        const std::string why = maker == nullptr ? std::string() : "; " + maker->why_no_room();
        throw_as_libtorch(bytes, error.what() + why, true);
      } catch (const Error& error) {
        throw_as_libtorch(bytes, error.what(), false);
      }
    }
  }
  c10::DataPtr result(block, block, &free_block, c10::Device(c10::DeviceType::CPU));
  c10::profiledCPUMemoryReporter().New(block, bytes);
  return result;
}

c10::DeleterFnPtr CpuAllocator::raw_deleter() const { return &free_block; }

void CpuAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  default_copy_data(to, from, bytes);
}

bool CpuAllocator::is_simple_data_ptr(const c10::DataPtr& block) const {
  return block.get() == block.get_context();
}

void set_cpu_allocator(Installation& installation) {
  auto* const ours = new CpuAllocator(installation);  // never destroyed: storages point to it
  c10::SetCPUAllocator(ours, kPriority);
  BERTH_CHECK(c10::GetCPUAllocator() == ours, kUsage,
              "berth::torch::install() cannot replace libtorch's CPU allocator: another one with a "
              "priority above {} stands already",
              kPriority);
  note_asks_for_room(c10::kCPU);
}

}  // namespace berth::torch
