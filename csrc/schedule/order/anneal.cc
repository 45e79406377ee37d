#include "csrc/schedule/order/search.h"

#include <algorithm>
#include <cmath>

namespace berth::schedule {
namespace {

constexpr std::uint32_t kFarthest = 4096;  // places that a node is pulled or pushed over
constexpr std::uint32_t kHotDraws = 6;
constexpr std::uint64_t kAskEvery = 256;
constexpr std::uint64_t kCutEvery = 3000;
constexpr double kFirstTemperature = 0.02, kLastOfFirst = 1e-3;  // of the peak; of the first

class Annealer {
 public:
  Annealer(const OrderProblem& problem, MinCut& cuts, Order start, Bytes bound,
           std::mt19937_64& random)
      : problem_(problem),
        cuts_(cuts),
        bound_(bound),
        random_(random),
        order_(problem, start, bound),
        best_(std::move(start)),
        best_peak_(peak_of(problem, best_)),
        marked_(problem.nodes.size(), 0) {
    retarget();
  }

  std::uint64_t run(const SearchLimits& limits) {
    const double first = kFirstTemperature * static_cast<double>(best_peak_);
    std::uint64_t move = 0;
    for (; move < limits.moves && best_peak_ > bound_; ++move) {
      if (move % kAskEvery == 0 && limits.stop()) break;
      const double done = static_cast<double>(move) / static_cast<double>(limits.moves);
      temperature_ = first * std::pow(kLastOfFirst, done);
      if (move % kCutEvery == kCutEvery - 1) {
        (void)descend_once(cuts_, order_, limits);
      } else {
        step();
      }
      if (order_.area() <= 0.5) note();
    }
    return move;
  }

  [[nodiscard]] Order take_best() { return std::move(best_); }

 private:
  // Nothing is above the target: a new best.
  void note() {
    const Bytes peak = order_.peak();
    if (peak < best_peak_) {
      best_peak_ = peak;
      best_ = order_.order();
    }
    retarget();
  }
  void retarget() { order_.set_target(std::max(bound_, best_peak_ - best_peak_ / 100)); }

  std::uint32_t draw(std::uint32_t below) {
    return static_cast<std::uint32_t>(random_() % std::max(below, 1U));
  }

  std::uint32_t hot_step() {
    const auto size = static_cast<std::uint32_t>(order_.order().size());
    std::uint32_t hot = draw(size);
    if (draw(2) == 0) return hot;
    for (std::uint32_t k = 1; k < kHotDraws; ++k) {
      const std::uint32_t other = draw(size);
      if (order_.live(other) > order_.live(hot)) hot = other;
    }
    return hot;
  }

  void step() {
    const auto size = static_cast<std::uint32_t>(order_.order().size());
    const std::uint32_t hot = hot_step(), kind = draw(10);
    if (kind < 6) {
      const auto places =
          static_cast<std::uint32_t>(std::exp2(6.0 * static_cast<double>(draw(1024)) / 1024));
      const bool up = kind < 3;
      const std::uint32_t near = 16;
      const std::uint32_t at = std::min(size - 1, hot + draw(2 * near) - std::min(hot, near));
      if (up)
        pull(at > places ? at - places : 0, at);
      else
        push(at, std::min(size - 1, at + places));
      return;
    }
    const auto away = 1 + draw(std::min(kFarthest, size));
    if (draw(2) == 0) {
      if (hot + away < size) pull(hot, hot + away);
    } else if (hot >= away) {
      push(hot - away, hot);
    }
  }

  // The node at `from` runs at `to`, before it, with all that it depends on in between.
  void pull(std::uint32_t to, std::uint32_t from) {
    if (to >= from) return;
    window_.clear();
    others_.clear();
    ++mark_;
    marked_[order_.order()[from]] = mark_;
    for (std::uint32_t k = from + 1; k-- > to;) {
      const Node node = order_.order()[k];
      if (marked_[node] != mark_) {
        others_.push_back(node);
        continue;
      }
      window_.push_back(node);
      for (const Node before : problem_.nodes[node].before) marked_[before] = mark_;
    }
    std::reverse(window_.begin(), window_.end());
    window_.insert(window_.end(), others_.rbegin(), others_.rend());
    decide(to);
  }

  // The node at `from` runs at `to`, behind it, with all that depends on it in between.
  void push(std::uint32_t from, std::uint32_t to) {
    if (from >= to) return;
    window_.clear();
    others_.clear();
    ++mark_;
    marked_[order_.order()[from]] = mark_;
    for (std::uint32_t k = from; k <= to; ++k) {
      const Node node = order_.order()[k];
      if (marked_[node] != mark_) {
        window_.push_back(node);
        continue;
      }
      others_.push_back(node);
      for (const Node after : problem_.nodes[node].after) marked_[after] = mark_;
    }
    window_.insert(window_.end(), others_.begin(), others_.end());
    decide(from);
  }

  void decide(std::uint32_t first) {
    const double change = order_.price(first, window_);
    if (change > 0) {
      const double chance = static_cast<double>(random_() >> 11) * 0x1p-53;
      if (chance >= std::exp(-change / temperature_)) return;
    }
    order_.accept(first, window_);
  }

  const OrderProblem& problem_;
  MinCut& cuts_;
  const Bytes bound_;
  std::mt19937_64& random_;
  WorkingOrder order_;
  Order best_;
  Bytes best_peak_;
  double temperature_ = 0;
  std::vector<Node> window_, others_;
  std::vector<std::uint32_t> marked_;
  std::uint32_t mark_ = 0;
};

}  // namespace

Order anneal(const OrderProblem& problem, MinCut& cuts, Order start, Bytes bound,
             std::mt19937_64& random, const SearchLimits& limits, std::uint64_t* moves) {
  Annealer annealer(problem, cuts, std::move(start), bound, random);
  const std::uint64_t made = annealer.run(limits);
  if (moves != nullptr) *moves += made;
  return annealer.take_best();
}

}  // namespace berth::schedule
