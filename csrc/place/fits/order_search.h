#pragma once

#include "csrc/place/fits/strip_fit.h"
#include "csrc/place/problem/budget.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace berth::place {

// Improves the order in which first fit places items: those that end above a target come earlier
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

  // Offsets from an order; nothing where the mark would not stay below.
  using FirstFit = std::function<std::optional<std::vector<Bytes>>(
      std::span<const std::uint32_t> order, Bytes below, const Budget* budget)>;

  // Items of these sizes; no mark is below `base`.
  OrderSearch(std::vector<Bytes> sizes, Bytes base, FirstFit first_fit)
      : sizes_(std::move(sizes)), base_(base), first_fit_(std::move(first_fit)) {}
  // The items of a strip, which must outlive it.
  explicit OrderSearch(const Strip& strip);

  // From an order and the placement that goes with it: at most `runs` first fits. `bound`: no mark
  // is lower.
  [[nodiscard]] Chain run(std::span<const std::uint32_t> order, std::span<const Bytes> offsets,
                          Bytes bound, std::uint64_t seed, std::uint64_t runs,
                          const Budget* budget);

 private:
  std::vector<Bytes> sizes_;
  Bytes base_;
  FirstFit first_fit_;
};

// Items by their offsets: first fit in this order puts none higher.
[[nodiscard]] std::vector<std::uint32_t> order_of(std::span<const Bytes> offsets);

}  // namespace berth::place
