#pragma once

#include "csrc/runtime/allocator.h"

#include <berth/config.h>
#include <berth/stats.h>

#include <c10/core/Device.h>

namespace berth::torch {

// What the table of adapter.h is made of: one kind of device, CPU or CUDA. Thread-safe.
class Adapted {
 public:
  virtual ~Adapted() = default;
  [[nodiscard]] virtual const char* name() const noexcept = 0;  // "the CPU"
  virtual void install(const Config& config) = 0;
  [[nodiscard]] virtual bool installed() const noexcept = 0;
  [[nodiscard]] virtual Stats stats(int device) = 0;
  // Throws Error(kUsage) where the device has none.
  [[nodiscard]] virtual Allocator& allocator(int device) = 0;
  // Bytes given back and taken: see <berth/torch_cuda.h>.
  virtual Bytes release(int device, bool keep_contents) = 0;
  virtual Bytes resume(int device) = 0;
  // As at exit: closes traces, writes statistics. Memory is served on.
  virtual void shut_down() noexcept = 0;
  // Offers them what only this device's libraries know.
  virtual void serve_step_programs() {}
  [[nodiscard]] virtual c10::Device device(int index) const noexcept = 0;
};

// The one of this library, which has one.
[[nodiscard]] Adapted& adapted() noexcept;

}  // namespace berth::torch
