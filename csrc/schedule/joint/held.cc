#include "csrc/schedule/joint/held.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace berth::schedule {

namespace {

constexpr std::size_t kMostSearches = 256;

using graph::OperatorId;
using Neighbours = std::vector<std::vector<OperatorId>>;

class Held {
 public:
  explicit Held(const graph::Graph& graph)
      : graph_(graph), earlier_(graph.operators.size()), later_(graph.operators.size()) {
    position_.resize(graph.operators.size());
    order_ = graph.order;
    if (order_.empty()) {
      order_.resize(graph.operators.size());
      std::iota(order_.begin(), order_.end(), 0U);
    }
    for (std::size_t p = 0; p < order_.size(); ++p) position_[order_[p]] = p;
    find_values();
    find_edges();
  }

  LeastBudget find() {
    LeastBudget least;
    if (values_.empty()) return least;
    const std::vector<std::pair<Bytes, OperatorId>> most = by_estimate();
    Bytes residents = 0;
    for (const graph::Storage& one : graph_.storages)
      if (one.kind == graph::StorageClass::kResident) residents += one.bytes;
    for (std::size_t n = 0; n < most.size() && n < kMostSearches; ++n) {
      const auto [estimate, op] = most[n];
      if (residents + estimate <= least.bytes) break;  // nor are the others
      const Bytes bytes = residents + beside(op) + needed_by(op);
      if (bytes > least.bytes)
        least = {bytes, fmt::format("operator {} ({})", op, graph_.operators[op].name)};
    }
    return least;
  }

 private:
  // A value that is made once, on a storage of the step's own.
  struct Value {
    graph::StorageId storage = 0;
    OperatorId maker = 0;
    std::vector<OperatorId> readers;
  };

  // What each way to run it reads.
  template <typename Visit>
  void for_each_read(const graph::Operator& op, const Visit& visit) const {
    for (const graph::Read& read : op.alternatives.front().reads)
      if (std::all_of(
              op.alternatives.begin(), op.alternatives.end(), [&](const graph::Alternative& other) {
                return std::any_of(other.reads.begin(), other.reads.end(),
                                   [&](const graph::Read& one) { return one.value == read.value; });
              }))
        visit(read.value);
  }
  [[nodiscard]] bool always_writes(const graph::Operator& op, const graph::ValueId& value) const {
    return std::all_of(op.alternatives.begin(), op.alternatives.end(),
                       [&](const graph::Alternative& one) {
                         return std::count(one.writes.begin(), one.writes.end(), value) > 0;
                       });
  }

  void find_values() {
    makers_.resize(graph_.storages.size());
    for (OperatorId op = 0; op < graph_.operators.size(); ++op)
      for (const graph::ValueId& written : graph_.operators[op].alternatives.front().writes)
        if (always_writes(graph_.operators[op], written))
          makers_[written.storage].emplace_back(written.version, op);
    std::map<graph::ValueId, std::size_t> known;
    for (OperatorId op = 0; op < graph_.operators.size(); ++op)
      for_each_read(graph_.operators[op], [&](const graph::ValueId& read) {
        const std::optional<OperatorId> maker = maker_of(read);
        if (!maker || !graph_.operators[*maker].traits.only_once() ||
            graph_.storages[read.storage].kind != graph::StorageClass::kStep)
          return;
        const auto [there, fresh] = known.try_emplace(read, values_.size());
        if (fresh) values_.push_back({read.storage, *maker, {}});
        values_[there->second].readers.push_back(op);
      });
  }

  [[nodiscard]] std::optional<OperatorId> maker_of(const graph::ValueId& value) const {
    for (const auto& [version, op] : makers_[value.storage])
      if (version == value.version) return op;
    return std::nullopt;
  }

  // Of first runs: those that the referee demands.
  void find_edges() {
    const auto add = [&](OperatorId before, OperatorId after) {
      later_[before].push_back(after);
      earlier_[after].push_back(before);
    };
    for (const auto& [before, after] : graph_.control) add(before, after);
    for (OperatorId op = 0; op < graph_.operators.size(); ++op)
      for_each_read(graph_.operators[op], [&](const graph::ValueId& read) {
        if (const auto maker = maker_of(read); maker && *maker != op) add(*maker, op);
      });
    std::optional<OperatorId> last;
    for (const OperatorId op : order_) {
      const graph::Traits& traits = graph_.operators[op].traits;
      if (!traits.collective && !traits.host_sync) continue;
      if (last) add(*last, op);
      last = op;
    }
  }

  [[nodiscard]] Bytes needed_by(OperatorId op) const {
    Bytes bytes = kMaxBytes;
    for (const graph::Alternative& one : graph_.operators[op].alternatives)
      bytes = std::min(bytes, needed(graph_, one));
    return bytes;
  }

  // By operator, no less than what beside() and needed_by() find, the largest first.
  [[nodiscard]] std::vector<std::pair<Bytes, OperatorId>> by_estimate() const {
    std::vector<Bytes> born(order_.size() + 1, 0), gone(order_.size() + 1, 0);
    for (const Value& one : values_) {
      std::size_t last = position_[one.maker];
      for (const OperatorId reader : one.readers) last = std::max(last, position_[reader]);
      born[position_[one.maker]] += graph_.storages[one.storage].bytes;
      gone[last] += graph_.storages[one.storage].bytes;
    }
    std::vector<std::pair<Bytes, OperatorId>> most;
    Bytes live = 0;
    for (std::size_t p = 0; p < order_.size(); ++p) {
      live += born[p];
      most.emplace_back(live + needed_by(order_[p]), order_[p]);
      live -= gone[p];
    }
    std::sort(most.begin(), most.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    return most;
  }

  [[nodiscard]] static std::vector<bool> reached(const Neighbours& from, OperatorId first) {
    std::vector<bool> seen(from.size(), false);
    std::vector<OperatorId> open{first};
    while (!open.empty()) {
      const OperatorId op = open.back();
      open.pop_back();
      for (const OperatorId next : from[op])
        if (!seen[next]) {
          seen[next] = true;
          open.push_back(next);
        }
    }
    return seen;
  }

  // What is there while it runs first, beside what it takes and makes itself.
  [[nodiscard]] Bytes beside(OperatorId op) const {
    const std::vector<bool> before = reached(earlier_, op), after = reached(later_, op);
    std::vector<bool> counted(graph_.storages.size(), false);
    for (const graph::Alternative& one : graph_.operators[op].alternatives) {
      for (const graph::Read& read : one.reads) counted[read.value.storage] = true;
      for (const graph::ValueId& written : one.writes) counted[written.storage] = true;
    }
    Bytes bytes = 0;
    for (const Value& one : values_) {
      // mutant: kept-held
      const bool held =
          before[one.maker] && std::any_of(one.readers.begin(), one.readers.end(),
                                           [&](OperatorId reader) { return after[reader]; });
      if (!held || counted[one.storage]) continue;
      counted[one.storage] = true;
      bytes += graph_.storages[one.storage].bytes;
    }
    return bytes;
  }

  const graph::Graph& graph_;
  std::vector<OperatorId> order_;
  std::vector<std::size_t> position_;
  std::vector<std::vector<std::pair<std::uint32_t, OperatorId>>> makers_;  // by storage
  std::vector<Value> values_;
  Neighbours earlier_, later_;
};

}  // namespace

LeastBudget least_with_held(const graph::Graph& graph) { return Held(graph).find(); }

}  // namespace berth::schedule
