#include "csrc/schedule/order/search.h"

#include <algorithm>
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
      : problem_(problem),
        capacity_(capacity),
        most_sets_(most_sets),
        limits_(limits),
        executed_((problem.nodes.size() + 63) / 64, 0),
        missing_(problem.nodes.size()),
        readers_left_(problem.values.size()),
        live_(problem.constant) {
    for (Node n = 0; n < problem.nodes.size(); ++n) {
      missing_[n] = problem.nodes[n].before.size();
      if (missing_[n] == 0) ready_.push_back(n);
    }
    for (Value v = 0; v < problem.values.size(); ++v) {
      const OrderProblem::ValueOf& value = problem.values[v];
      readers_left_[v] = value.readers.size();
      if (value.maker == kNoNode && !value.readers.empty()) live_ += value.bytes;
    }
  }

  // Depth first with a stack of its own: a graph may be deeper than the thread's.
  ExactAnswer run() {
    ExactAnswer answer;
    if (live_ > capacity_) {
      answer.kind = ExactAnswer::Kind::kRefuted;
      return answer;
    }
    enter();
    while (!frames_.empty()) {
      if (order_.size() == problem_.nodes.size()) {
        answer.kind = ExactAnswer::Kind::kFound;
        answer.order = order_;
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
    std::size_t next = 0, depth = 0;  // of order_ when it was entered
  };

  [[nodiscard]] bool fits(Node n) const { return problem_.nodes[n].made <= capacity_ - live_; }
  [[nodiscard]] std::int64_t growth(Node n) const {
    std::int64_t bytes = 0;
    for (const Value v : problem_.nodes[n].makes)
      if (readers_left_[v] != 0) bytes += static_cast<std::int64_t>(problem_.values[v].bytes);
    for (const Value v : problem_.nodes[n].reads)
      if (readers_left_[v] == 1) bytes -= static_cast<std::int64_t>(problem_.values[v].bytes);
    return bytes;
  }

  // What is free runs at once: a ready node that fits and leaves no more alive than there was can
  // come first in any order that goes on from here.
  void enter() {
    const std::size_t depth = order_.size();
    for (bool ran = true; ran;) {
      ran = false;
      for (const Node n : ready_) {
        if (!fits(n) || growth(n) > 0) continue;
        execute(n);
        ran = true;
        break;
      }
    }
    Frame& frame = frames_.emplace_back();
    frame.depth = depth;
    if (dead_.contains(executed_)) return;
    for (const Node n : ready_)
      if (fits(n)) frame.choices.push_back(n);
    std::sort(frame.choices.begin(), frame.choices.end(), [this](Node a, Node b) {
      const std::int64_t one = growth(a), other = growth(b);
      return one != other ? one < other : a < b;
    });
  }

  void leave() {
    const std::size_t depth = frames_.back().depth;
    frames_.pop_back();
    dead_.insert(executed_);
    while (order_.size() > depth) undo();
    if (!frames_.empty()) undo();  // the choice that led here
  }

  void execute(Node n) {
    order_.push_back(n);
    executed_[n / 64] |= std::uint64_t{1} << (n % 64);
    live_ = static_cast<Bytes>(static_cast<std::int64_t>(live_) + growth(n));
    for (const Value v : problem_.nodes[n].reads) --readers_left_[v];
    ready_.erase(std::find(ready_.begin(), ready_.end(), n));
    for (const Node after : problem_.nodes[n].after)
      if (--missing_[after] == 0) ready_.push_back(after);
  }

  void undo() {
    const Node n = order_.back();
    order_.pop_back();
    executed_[n / 64] &= ~(std::uint64_t{1} << (n % 64));
    for (const Node after : problem_.nodes[n].after)
      if (missing_[after]++ == 0) ready_.erase(std::find(ready_.begin(), ready_.end(), after));
    for (const Value v : problem_.nodes[n].reads) ++readers_left_[v];
    live_ = static_cast<Bytes>(static_cast<std::int64_t>(live_) - growth(n));
    ready_.push_back(n);
  }

  const OrderProblem& problem_;
  const Bytes capacity_;
  const std::uint64_t most_sets_;
  const SearchLimits& limits_;
  Set executed_;
  std::vector<std::size_t> missing_, readers_left_;
  std::vector<Node> ready_;
  Order order_;
  Bytes live_;
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
