#pragma once

#include "csrc/cuda/current_device.h"
#include "csrc/device/device.h"

#include <cuda.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace berth {

// What the attributes of a driver promise of a GPU's memory. Its calls may refuse it all the same.
struct MemoryPromises {
  bool mapped = false;  // virtual memory
  bool descriptors = false, rdma = false;
};

// A form in which a GPU's memory may be had.
struct MemoryForm {
  bool mapped = false;                     // virtual memory; else cudaMalloc
  bool descriptors = false, rdma = false;  // of virtual memory
  std::string_view text;

  // Whether no attribute speaks against it.
  [[nodiscard]] bool promised(const MemoryPromises& promises) const noexcept {
    return !mapped ||
           (promises.mapped && (promises.descriptors || !descriptors) && (promises.rdma || !rdma));
  }
  // Of virtual memory on that GPU.
  [[nodiscard]] CUmemAllocationProp property(int index) const noexcept;
};

// Best first: the ladder that a device goes down until a try succeeds.
inline constexpr std::array<MemoryForm, 4> kMemoryForms{{
    {true, true, true, "with file descriptors and RDMA"},
    {true, true, false, "with file descriptors, without RDMA"},
    {true, false, false, "without file descriptors and RDMA"},
    {false, false, false, "plain"},
}};

// What a try of a form with one page came to.
struct MemoryTry {
  enum class Outcome : std::uint8_t {
    kWorks,
    kUnknown,  // the device is full, or an earlier error broke it: that says nothing about the form
    kFails,
  };
  Outcome outcome = Outcome::kFails;
  Bytes granularity = 0;  // the driver's
  Bytes page = 0;         // at least what was asked for; of plain memory that
  std::string failure;    // the call and the driver's error; empty where it works

  [[nodiscard]] bool usable() const noexcept { return outcome != Outcome::kFails; }
};

// Throws Error(kSystem) where the driver cannot be asked.
[[nodiscard]] MemoryPromises memory_promises(const CudaCalls& calls, int index);

// Takes one page in that form through all that berth does with one: made, mapped, accessed,
// exported, unmapped, released; for plain memory allocated and freed. Nothing of it is left. Makes
// the GPU's context. Throws Error(kSystem) where the driver's granularity cannot be served.
[[nodiscard]] MemoryTry try_memory_form(const CudaCalls& calls, CudaPrimary& primary,
                                        const MemoryForm& form, Bytes page_bytes);

}  // namespace berth
