#pragma once

#include <cstdint>

// What the kernel counts for this process.
namespace berth::bench {

// Page faults served without reading from disk, of all threads, since the start.
[[nodiscard]] std::uint64_t minor_faults() noexcept;

// Processor time of all threads, in seconds: our own, and the kernel's for us.
struct ProcessorTime {
  double user = 0, system = 0;
};
[[nodiscard]] ProcessorTime processor_time() noexcept;

// Processor time of the calling thread, in milliseconds.
[[nodiscard]] double thread_ms() noexcept;

// The largest resident memory so far (VmHWM); 0 where the kernel does not say.
[[nodiscard]] std::uint64_t peak_resident_bytes();

}  // namespace berth::bench
