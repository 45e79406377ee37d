#pragma once

#include "csrc/capi/graphs.h"
#include "csrc/capi/stream_numbers.h"
#include "csrc/device/noting_device.h"
#include "csrc/runtime/allocator.h"

#include <berth/config.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace berth::capi {

// How the devices of this process are made.
struct Settings {
  Config config;
  bool streams_may_end = false;
};

// One device of this process: made at its first use, never destroyed, since blocks are freed by
// static destructors too.
class DeviceOfProcess {
 public:
  virtual ~DeviceOfProcess() = default;
  [[nodiscard]] virtual Allocator& allocator() noexcept = 0;
  [[nodiscard]] virtual Device& device() noexcept = 0;
  [[nodiscard]] Graphs& graphs() noexcept { return graphs_; }
  // The lane of a stream.
  [[nodiscard]] virtual LaneKey lane_of(void* stream) = 0;
  // The stream is there still. Throws std::bad_alloc, and then nothing is forgotten.
  virtual void forget(void* stream) = 0;
  // While it lives the calling thread holds the stream: calls on its lane work.
  class Hold {
   public:
    virtual ~Hold() = default;
  };
  [[nodiscard]] virtual std::unique_ptr<Hold> hold(void* stream) = 0;

 protected:
  // A layer that makes the device's memory known to likely_device().
  [[nodiscard]] static NotingDevice noting(Device& device, int index);
  // Of the device's allocator.
  [[nodiscard]] Allocator::Options options(const Settings& settings, const Device& device,
                                           int index) const;

 private:
  Graphs graphs_;
};

// Sets what devices are made with. Throws Error(kUsage) where one is made already.
void configure(Settings settings);

// The device, made where it is not there; index -1 is the host. Throws Error, also in a forked
// child of a process that has made one.
[[nodiscard]] DeviceOfProcess& device(int index);
// Null where it was not used yet, and in a forked child.
[[nodiscard]] DeviceOfProcess* existing_device(int index) noexcept;

// The device whose memory the address probably lies in; null where none is known. Takes no lock.
[[nodiscard]] DeviceOfProcess* likely_device(const void* address) noexcept;

// Those that were used so far.
[[nodiscard]] std::vector<DeviceOfProcess*> existing_devices();

[[nodiscard]] bool in_forked_child() noexcept;

}  // namespace berth::capi
