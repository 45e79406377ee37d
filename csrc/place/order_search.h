#pragma once

#include "csrc/place/budget.h"
#include "csrc/place/strip_fit.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth::packing {

// Improves the order in which first fit places a strip: those that end above a target come earlier
// the next time, some of them and by a random way (squeaky wheel optimisation, Joslin and Clements
// 1999). Where dives leave a gap on large problems this closes most of it.
//
// A run is one first fit; a chain a few in a row, each from the best before it.
class OrderSearch {
 public:
  struct Chain {
    std::vector<std::uint32_t> order;
    std::vector<Bytes> offsets;  // empty: nothing at most as high as what it began with
    Bytes mark = 0;
    std::uint64_t runs = 0;
  };

  // The strip must outlive it.
  explicit OrderSearch(const Strip& strip) : strip_(strip), fit_(strip) {}

  // From an order and the placement that goes with it: at most `runs` first fits. `bound`: no mark
  // is lower.
  [[nodiscard]] Chain run(std::span<const std::uint32_t> order, std::span<const Bytes> offsets,
                          Bytes bound, std::uint64_t seed, std::uint64_t runs,
                          const Budget* budget);

 private:
  const Strip& strip_;
  StripFit fit_;
};

// Items by their offsets: first fit in this order puts none higher.
[[nodiscard]] std::vector<std::uint32_t> order_of(std::span<const Bytes> offsets);

}  // namespace berth::packing
