#include "csrc/torch/shared/range_numbers.h"

#include <atomic>

namespace berth::torch {

std::uint64_t begin_range(Recorder& recorder, std::string_view name, trace::RangeKind kind) {
  static std::atomic<std::uint64_t> last{0};
  const std::uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  recorder.append(trace::RangeBegin{.range = number, .name = recorder.intern(name), .kind = kind});
  return number;
}

}  // namespace berth::torch
