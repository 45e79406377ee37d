#pragma once

#include "csrc/device/forwarding_device.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace berth::test {

// This thread's host allocations, told to fail: the n-th from arm() on, alone or with all later
// ones. For a program whose operator new is allocate().
class HostFaults {
 public:
  static void arm(long n, bool all_later) noexcept {
    left_ = n;
    all_later_ = all_later;
    met_ = false;
  }
  // Whether the fault was met.
  static bool disarm() noexcept {
    left_ = 0;
    return met_;
  }
  // All allocations of other threads than this one fail, or none.
  static void others_fail(bool fail) noexcept {
    spared_ = true;
    others_fail_ = fail;
  }
  static void* allocate(std::size_t size, std::size_t alignment) {
    if (fails()) throw std::bad_alloc();
    void* block = nullptr;
    if (::posix_memalign(&block, alignment, size == 0 ? 1 : size) != 0) throw std::bad_alloc();
    return block;
  }

  // What the test and its device ask for does not fail.
  class Pause {
   public:
    Pause() noexcept { ++paused_; }
    ~Pause() { --paused_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
  };

 private:
  static bool fails() noexcept {
    if (others_fail_ && !spared_) return true;
    if (paused_ != 0 || left_ == 0) return false;
    if (left_ > 1) {
      --left_;
      return false;
    }
    left_ = all_later_ ? 1 : 0;
    met_ = true;
    return true;
  }

  static inline thread_local long left_ = 0;  // 1: the next one fails; 0: none does
  static inline thread_local bool all_later_ = false, met_ = false;
  static inline thread_local int paused_ = 0;
  static inline thread_local bool spared_ = false;
  static inline std::atomic<bool> others_fail_{false};
};

// A device that has host memory of its own.
class UnfailingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  Status free_bytes(Bytes* free) noexcept override {
    const HostFaults::Pause pause;
    return device_.free_bytes(free);
  }
  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    const HostFaults::Pause pause;
    return device_.reserve(size, alignment, base);
  }
  using Device::commit;
  Status commit(void* base, Bytes size, Residency residency, Bytes most) noexcept override {
    const HostFaults::Pause pause;
    return device_.commit(base, size, residency, most);
  }
  Status decommit(void* base, Bytes size) noexcept override {
    const HostFaults::Pause pause;
    return device_.decommit(base, size);
  }
  Status release(void* base, Bytes size) noexcept override {
    const HostFaults::Pause pause;
    return device_.release(base, size);
  }
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override {
    const HostFaults::Pause pause;
    return device_.alias(to, from, pages);
  }
  Status move(void* to, void* from, Bytes size) noexcept override {
    const HostFaults::Pause pause;
    return device_.move(to, from, size);
  }
  Status record(LaneKey lane, DeviceEvent* event) noexcept override {
    const HostFaults::Pause pause;
    return device_.record(lane, event);
  }
  Status query(DeviceEvent event, bool* complete) noexcept override {
    const HostFaults::Pause pause;
    return device_.query(event, complete);
  }
  Status wait(LaneKey lane, DeviceEvent event) noexcept override {
    const HostFaults::Pause pause;
    return device_.wait(lane, event);
  }
  Status synchronize(DeviceEvent event) noexcept override {
    const HostFaults::Pause pause;
    return device_.synchronize(event);
  }
  Status synchronize_all() noexcept override {
    const HostFaults::Pause pause;
    return device_.synchronize_all();
  }
  void destroy(DeviceEvent event) noexcept override {
    const HostFaults::Pause pause;
    device_.destroy(event);
  }
  Status capturing(LaneKey lane, bool* capturing) noexcept override {
    const HostFaults::Pause pause;
    return device_.capturing(lane, capturing);
  }
};

}  // namespace berth::test
