#include "csrc/schedule/order/execution.h"
#include "csrc/schedule/order/search.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace berth::schedule {
namespace {

using Set = std::vector<std::uint64_t>;

struct SetHash {
  std::size_t operator()(const Set& set) const noexcept {
    std::uint64_t hash = 0x9E3779B97F4A7C15ULL;
    for (const std::uint64_t word : set) {
      hash ^= word;
      hash *= 0xFF51AFD7ED558CCDULL;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

class ExactSearch {
 public:
  ExactSearch(const OrderProblem& problem, Bytes capacity, std::uint64_t most_sets,
              const SearchLimits& limits)
      : capacity_(capacity),
        most_sets_(most_sets),
        limits_(limits),
        execution_(problem),
        executed_((problem.nodes.size() + 63) / 64, 0) {}

  // Depth first with a stack of its own: a graph may be deeper than the thread's.
  ExactAnswer run() {
    ExactAnswer answer;
    if (execution_.live() > capacity_) {
      answer.kind = ExactAnswer::Kind::kRefuted;
      return answer;
    }
    enter();
    while (!frames_.empty()) {
      if (execution_.complete()) {
        answer.kind = ExactAnswer::Kind::kFound;
        answer.order = execution_.order();
        break;
      }
      Frame& frame = frames_.back();
      if (frame.next == frame.choices.size()) {
        leave();
        continue;
      }
      if (dead_.size() >= most_sets_ || (++steps_ % 1024 == 0 && limits_.stop())) {
        answer.sets = dead_.size();
        return answer;
      }
      execute(frame.choices[frame.next++]);
      enter();
    }
    if (frames_.empty()) answer.kind = ExactAnswer::Kind::kRefuted;
    answer.sets = dead_.size();
    return answer;
  }

 private:
  struct Frame {
    std::vector<Node> choices;
    std::size_t next = 0, depth = 0;  // of the order when it was entered
  };

  // What is free runs at once: a ready node that fits and leaves no more alive than there was can
  // come first in any order that goes on from here.
  void enter() {
    const std::size_t depth = execution_.order().size();
    while (const std::optional<Node> free = find_free()) execute(*free);
    Frame& frame = frames_.emplace_back();
    frame.depth = depth;
    if (dead_.contains(executed_)) return;
    for (const Node n : execution_.ready())
      if (fits(n)) frame.choices.push_back(n);
    std::sort(frame.choices.begin(), frame.choices.end(), [this](Node a, Node b) {
      const std::int64_t one = execution_.growth(a), other = execution_.growth(b);
      return one != other ? one < other : a < b;
    });
  }

  void leave() {
    const std::size_t depth = frames_.back().depth;
    frames_.pop_back();
    dead_.insert(executed_);
    while (execution_.order().size() > depth) undo();
    if (!frames_.empty()) undo();  // the choice that led here
  }

  // mutant: order-fits
  [[nodiscard]] bool fits(Node n) const { return execution_.live_at(n) <= capacity_; }
  [[nodiscard]] std::optional<Node> find_free() const {
    for (const Node n : execution_.ready())
      if (fits(n) && execution_.growth(n) <= 0) return n;
    return std::nullopt;
  }

  void execute(Node n) {
    execution_.run(n);
    executed_[n / 64] |= std::uint64_t{1} << (n % 64);
  }
  void undo() {
    const Node n = execution_.order().back();
    execution_.undo();
    executed_[n / 64] &= ~(std::uint64_t{1} << (n % 64));
  }

  const Bytes capacity_;
  const std::uint64_t most_sets_;
  const SearchLimits& limits_;
  Execution execution_;
  Set executed_;
  std::vector<Frame> frames_;
  std::unordered_set<Set, SetHash> dead_;
  std::uint64_t steps_ = 0;
};

}  // namespace

ExactAnswer search_exactly(const OrderProblem& problem, Bytes capacity, std::uint64_t most_sets,
                           const SearchLimits& limits) {
  return ExactSearch(problem, capacity, most_sets, limits).run();
}

}  // namespace berth::schedule
