#pragma once

#include "csrc/place/fits/fit.h"
#include "csrc/place/fits/strip_fit.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/conflict_index.h"
#include "csrc/place/problem/conflicts.h"
#include "csrc/place/problem/packing.h"

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace berth::place {

// By what first fit takes the buffers, largest first but for births; ties by index.
enum class Order { kBirth, kSize, kLength, kArea, kLoad, kLoadArea, kLengthSize, kSizeBirth };
inline constexpr Order kOrders[] = {Order::kSize,       Order::kArea,     Order::kBirth,
                                    Order::kLength,     Order::kLoad,     Order::kLoadArea,
                                    Order::kLengthSize, Order::kSizeBirth};
[[nodiscard]] std::string_view order_name(Order order) noexcept;

// Puts buffers one by one into the lowest (or tightest) hole that what conflicts with them leaves:
// legal for all that the interface knows. Pins first; groups of lanes that share nothing one after
// the other, each in what the earlier left.
//
// A single lane without forks goes through StripFit. Elsewhere a run is O(n log n + k log k) for k
// conflicts of placed buffers, O(n) memory; across lanes with branches k counts all of them.
class FirstFit {
 public:
  explicit FirstFit(const Conflicts& conflicts);

  // Places all in the order given (all indices; where pins stand in it does not matter). Nothing
  // where the mark would not stay below `below`, or the budget (may be null) ends first.
  [[nodiscard]] std::optional<Packing> run(std::span<const Index> order, Fit fit, Bytes below,
                                           const Budget* budget);

  // Two pinned buffers that can be alive together and share bytes.
  [[nodiscard]] std::optional<std::pair<Index, Index>> colliding_pins();

  // All buffers in one of the orders; `loads` from largest_loads(), one a buffer.
  [[nodiscard]] std::vector<Index> sorted(Order order, std::span<const Bytes> loads) const;

 private:
  struct Span {
    Bytes first, last;
  };
  // A single lane without forks, as a strip.
  struct Single {
    Strip strip;
    std::optional<StripFit> fit;
    std::vector<std::uint32_t> items;  // of each buffer
  };
  [[nodiscard]] bool is_single() const noexcept {
    return conflicts_.problem().lanes.size() == 1 && !conflicts_.has_branches();
  }
  void make_single();
  [[nodiscard]] std::optional<Packing> run_single(std::span<const Index> order, Fit fit,
                                                  Bytes below, const Budget* budget);
  [[nodiscard]] Bytes find_hole(Bytes size, Bytes unit, Fit fit);
  void block_other_groups(std::uint32_t group, const Packing& packing);

  const Conflicts& conflicts_;
  std::optional<ConflictIndex> placed_;  // not of a single lane without pins
  std::unique_ptr<Single> single_;
  bool has_pins_ = false;
  std::vector<Span> blocked_;  // bytes of other groups, merged
  std::vector<Span> spans_;
  std::vector<Bytes> offsets_;
};

}  // namespace berth::place
