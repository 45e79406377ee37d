#pragma once

#include "csrc/device/driver_costs.h"
#include "csrc/standin/abi.h"

#include <atomic>
#include <cstdint>
#include <string_view>

namespace berth::standin {

struct CallRecord;

// One entry point of one library: counts its calls, logs them, and makes the n-th one fail on
// demand. Threads may enter at once; without a log a call costs two atomic additions.
class CallSite {
 public:
  explicit CallSite(const char* name);

  // Counts the call. Returns what it must fail with, or kSuccess: an injected error, the sticky
  // error of an earlier one, kCudartUnloading after the driver is gone, kInitializationError in a
  // forked child.
  [[nodiscard]] Status enter() noexcept;

 private:
  CallRecord* record_;
};

// Remembers a failure as the thread's last error, and returns it.
Status remember(Status status) noexcept;
Status last_error(bool clear) noexcept;

// Calls number `first` to `first + count - 1` of `name` from now on fail with `error`. The name "*"
// counts the calls of all names together. kIllegalAddress, kAssert and kLaunchFailure stick: all
// later calls fail, too.
void fail_calls(std::string_view name, std::uint64_t first, Status error, std::uint64_t count);
// From now on all calls fail with an error that sticks.
void stick(Status error) noexcept;
// Undoes injected and sticky errors, and unload_driver().
void clear_faults();

// Parses NAME:N:ERROR[:COUNT],... and false where it cannot.
bool fail_calls_by_text(std::string_view text);

std::uint64_t count_calls(std::string_view name);  // "*" for all
// Those that bring memory or take it back.
MemoryCallCounts count_memory_calls();
void reset_counts();

// One line for each call from now on, to a file, or "-" for standard error.
bool log_calls_to(const char* path);

// From now on every call answers as after the unloading of the driver.
void unload_driver() noexcept;

// Set in a child that was forked after the first call.
void mark_forked() noexcept;

}  // namespace berth::standin

// At the start of an entry point: counts it by its own name and returns an injected failure. Of the
// runtime's functions, whose failures are the thread's last error, and of the driver's, whose are
// not.
#define BERTH_STANDIN_ENTER()                                  \
  static ::berth::standin::CallSite berth_call_site(__func__); \
  if (const auto berth_injected = berth_call_site.enter();     \
      berth_injected != ::berth::standin::kSuccess)            \
  return ::berth::standin::remember(berth_injected)

#define BERTH_STANDIN_ENTER_DRIVER()                           \
  static ::berth::standin::CallSite berth_call_site(__func__); \
  if (const auto berth_injected = berth_call_site.enter();     \
      berth_injected != ::berth::standin::kSuccess)            \
  return berth_injected
