#pragma once

#include "csrc/schedule/order/problem.h"

#include <cstdint>
#include <span>
#include <vector>

namespace berth::schedule {

// An order that is changed window by window, with what each step has alive.
//
// How good it is says its area above a target: the sum over its steps of what they have alive above
// that, in bytes times steps (double: sizes differ by a factor of 10^6, and steps are many). Unlike
// the peak it falls with every step that gets better, and a change is priced within its window:
// what values do outside of it stays the same.
class WorkingOrder {
 public:
  WorkingOrder(const OrderProblem& problem, Order order, Bytes target);

  [[nodiscard]] const Order& order() const noexcept { return order_; }
  [[nodiscard]] const std::vector<std::uint32_t>& positions() const noexcept { return position_; }
  [[nodiscard]] Bytes live(std::uint32_t step) const { return live_[step]; }
  [[nodiscard]] Bytes peak() const noexcept;
  [[nodiscard]] Bytes target() const noexcept { return target_; }
  [[nodiscard]] double area() const noexcept { return area_; }
  // O(n).
  void set_target(Bytes target);

  // What the area changes by if the steps from `first` on run these nodes: those of the window in
  // another order. O(degrees in the window).
  [[nodiscard]] double price(std::uint32_t first, std::span<const Node> nodes);
  // Does what was priced last.
  void accept(std::uint32_t first, std::span<const Node> nodes);

 private:
  [[nodiscard]] double above(Bytes live) const noexcept {
    return live > target_ ? static_cast<double>(live - target_) : 0.0;
  }
  [[nodiscard]] std::uint32_t last_reader(Value value) const;

  const OrderProblem& problem_;
  Order order_;
  std::vector<std::uint32_t> position_;
  std::vector<Bytes> live_, kept_;  // while a step runs; of values alive after it
  Bytes target_ = 0;
  double area_ = 0;
  // Of price(): the window as it would be.
  std::vector<Bytes> new_live_, new_kept_;
  std::vector<std::uint32_t> seen_;  // by value: the call in which its end was found
  std::uint32_t call_ = 0;
  double new_area_ = 0;
};

}  // namespace berth::schedule
