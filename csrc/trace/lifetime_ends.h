#pragma once

#include "csrc/trace/file.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace berth {

// One end of a row's lifetime.
struct LifetimeEnd {
  std::uint64_t time = 0;
  bool birth = false;
  std::size_t row = 0;
};

// All ends of all rows in the order of time. At one time ends come first, so that a row may take
// the bytes of one that ends there; of births, and of ends, the rows' order decides.
[[nodiscard]] std::vector<LifetimeEnd> sorted_ends(std::span<const Lifetime> rows);

}  // namespace berth
