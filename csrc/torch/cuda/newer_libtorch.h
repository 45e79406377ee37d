#pragma once

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// What libtorch asks of a CUDA allocator beyond 2.11, the oldest that is supported. Each thing is
// looked for by itself, never by a version, and nowhere but here: the rest of the sources is the
// same for all of them. tests/torch/newer_headers_test.py compiles it against the newest.
namespace berth::torch {

// A request that the memory fraction refuses, or that no device could serve: what was asked for,
// what this process holds of the GPU, and what that has in all.
using RefusalObserver = std::function<void(std::int64_t device, std::size_t asked, std::size_t held,
                                           std::size_t total)>;

// The newer methods in berth's words, under every libtorch.
class NewerMethods : public c10::cuda::CUDACachingAllocator::CUDAAllocator {
 public:
  // The observer is called for each request that is refused before the driver is asked, with no
  // lock held.
  virtual void observe_refusals(RefusalObserver observer) = 0;
  // Where the live block that starts there was asked for, if that is recorded; else null.
  virtual std::shared_ptr<c10::GatheredContext> context_of(const void* block) = 0;
  // A block at exactly this address, in memory that is free and held. Throws c10::Error where it is
  // not. Waits for the device; refused during capture.
  virtual c10::DataPtr allocate_at(std::size_t size, void* address) = 0;
  // A stream capture began on the device, or ended (true), beyond what private pools tell.
  virtual void note_capture(c10::DeviceIndex device, bool ended) = 0;
  // An entry of the history for this live block.
  virtual void annotate(const void* block, const std::string& text) = 0;
};

// --- Methods: each class below overrides what its libtorch declares, and is empty otherwise ------

template <class Base>
class WithRefusals : public Base {};

template <class Base>
requires requires(Base& base, RefusalObserver observer) {
  base.attachOomRejectionObserver(observer);
}
class WithRefusals<Base> : public Base {
 public:
  void attachOomRejectionObserver(RefusalObserver observer) override {
    this->observe_refusals(std::move(observer));
  }
};

template <class Base>
class WithContexts : public Base {};

template <class Base>
requires requires(Base& base, const void* block) { base.getContextForPointer(block); }
class WithContexts<Base> : public Base {
 public:
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* block) override {
    return this->context_of(block);
  }
};

template <class Base>
class WithAddresses : public Base {};

template <class Base>
requires requires(Base& base, void* address) { base.allocateWithAddress(1, address); }
class WithAddresses<Base> : public Base {
 public:
  c10::DataPtr allocateWithAddress(std::size_t size, void* address) override {
    return this->allocate_at(size, address);
  }
};

template <class Base>
concept MarksCaptures = requires(Base& base, c10::DeviceIndex device) {
  base.markCaptureBegin(device);
  base.markCaptureEnd(device);
};

template <class Base>
class WithCaptures : public Base {};

template <MarksCaptures Base>
class WithCaptures<Base> : public Base {
 public:
  void markCaptureBegin(c10::DeviceIndex device) override { this->note_capture(device, false); }
  void markCaptureEnd(c10::DeviceIndex device) override { this->note_capture(device, true); }
};

template <class Base>
class WithAnnotations : public Base {};

template <class Base>
requires requires(Base& base, const void* block) {
  base.annotateMemory(block, "");
  base.supportsUserMetadata();
}
class WithAnnotations<Base> : public Base {
 public:
  bool supportsUserMetadata() override { return true; }
  void annotateMemory(const void* block, const std::string& text) override {
    this->annotate(block, text);
  }
};

// What CudaAllocator derives from.
using CudaInterface =
    WithRefusals<WithContexts<WithAddresses<WithCaptures<WithAnnotations<NewerMethods>>>>>;

// Whether note_capture() is called; else private pools must be taken for captures.
inline constexpr bool kMarksCaptures = MarksCaptures<NewerMethods>;

// --- Fields and values --------------------------------------------------------------------------

// Nothing where libtorch has no such entries.
template <class Entry = c10::CachingDeviceAllocator::TraceEntry>
[[nodiscard]] constexpr std::optional<typename Entry::Action> annotate_action() noexcept {
  if constexpr (requires { Entry::ANNOTATE; }) {
    return Entry::ANNOTATE;
  } else {
    return std::nullopt;
  }
}

template <class Stats>
void count_refusal(Stats* stats) noexcept {
  if constexpr (requires { stats->num_oom_rejections; }) ++stats->num_oom_rejections;
}

template <class Stats>
void reset_refusals(Stats* stats) noexcept {
  if constexpr (requires { stats->num_oom_rejections; }) stats->num_oom_rejections = 0;
}

// Calls `act` with the reserved memory of this private pool: of every one where `id` is null.
template <class Stats, class Act>
void for_private_pools(Stats* stats, const c10::MempoolId_t* id, Act act) {
  if constexpr (requires { stats->reserved_bytes_by_private_pools; }) {
    auto& pools = stats->reserved_bytes_by_private_pools;
    if (id != nullptr) {
      act(pools[*id]);
    } else {
      for (auto& [unused, reserved] : pools) act(reserved);
    }
  }
}

template <class Info, class Settings = c10::CachingAllocator::AcceleratorAllocatorConfig>
void add_newer_settings(Info* info) {
  if constexpr (requires { info->max_round_threshold; })
    info->max_round_threshold = Settings::pinned_max_round_threshold();
  if constexpr (requires { info->max_cached_size; })
    info->max_cached_size = Settings::pinned_max_cached_size();
}

}  // namespace berth::torch
