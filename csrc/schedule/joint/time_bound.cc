#include "csrc/schedule/joint/time_bound.h"

#include "csrc/core/max_flow.h"
#include "csrc/schedule/joint/working_set.h"
#include "csrc/schedule/order/from_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace berth::schedule {
namespace {

using graph::OperatorId;
using graph::StorageClass;
using graph::ValueId;

constexpr std::uint32_t kNoMaker = ~std::uint32_t{0};
constexpr unsigned kCuts = 16;        // of a place, at ever closer prices
constexpr double kPrices = 1e-6;      // the least of them, as a share of the largest
constexpr double kMostFlow = 0x1p52;  // what the sum of all capacities is scaled to

// The graph as the bound sees it: an operator reads what each of its alternatives reads, takes the
// time of the fastest, and the room of the smallest.
class Pricing {
 public:
  Pricing(const graph::Graph& graph, const TimeBoundOptions& options)
      : graph_(graph), options_(options), nodes_(graph.operators.size()) {
    for (const graph::Storage& storage : graph.storages)
      if (storage.kind == StorageClass::kResident) resident_ += storage.bytes;
    for (OperatorId op = 0; op < nodes_.size(); ++op) add_operator(op);
    for (const ValueOf& value : values_)
      if (value.maker != kNoMaker)
        for (const OperatorId reader : value.readers) add_edge(value.maker, reader);
    for (const auto& [earlier, later] : graph.control) add_edge(earlier, later);
    if (options.rates)
      copy_ns_ = 1e9 / static_cast<double>(options.rates->out) +
                 1e9 / static_cast<double>(options.rates->in);
  }

  [[nodiscard]] double once() const { return once_; }

  // The best of all prices for one operator v. Concave in the price, so the largest is closed in.
  double best(OperatorId v) {
    find_sides(v);
    const double above = static_cast<double>(nodes_[v].own) -
                         (static_cast<double>(options_.budget) - static_cast<double>(resident_));
    double most = 4 * once_;
    if (options_.rates) most = std::min(most, 0.999 * copy_ns_);
    double low = std::log(most * kPrices / std::max(1.0, static_cast<double>(options_.budget))),
           high = std::log(most);
    const double golden = 0.6180339887498949;
    const auto at = [&](double log_price) { return value(v, std::exp(log_price), above); };
    double left = high - golden * (high - low), right = low + golden * (high - low);
    double of_left = at(left), of_right = at(right), found = std::max(of_left, of_right);
    for (unsigned k = 2; k < kCuts && !options_.stop(); ++k) {
      if (of_left > of_right) {
        high = right;
        right = left;
        of_right = of_left;
        left = high - golden * (high - low);
        of_left = at(left);
      } else {
        low = left;
        left = right;
        of_left = of_right;
        right = low + golden * (high - low);
        of_right = at(right);
      }
      found = std::max({found, of_left, of_right});
    }
    return found;
  }

 private:
  enum class Side : std::uint8_t { kOpen, kRan, kLater };
  struct ValueOf {
    double bytes = 0;
    std::uint32_t maker = kNoMaker;
    std::vector<std::uint32_t> readers;
  };
  struct NodeOf {
    double ns = 0;
    bool again = false;  // it may run once more
    Bytes own = 0;       // what it has alone, but for what only some of its alternatives read
    std::vector<std::uint32_t> reads, makes;  // values
    std::vector<OperatorId> before, after;
  };

  void add_edge(OperatorId earlier, OperatorId later) {
    nodes_[earlier].after.push_back(later);
    nodes_[later].before.push_back(earlier);
  }

  std::uint32_t number_of(ValueId id) {
    const auto [found, added] =
        numbers_.try_emplace(id, static_cast<std::uint32_t>(values_.size()));
    if (added) {
      const graph::Storage& storage = graph_.storages[id.storage];
      values_.emplace_back();
      if (storage.kind != StorageClass::kResident)
        values_.back().bytes = static_cast<double>(storage.bytes);
    }
    return found->second;
  }

  void add_operator(OperatorId op) {
    const graph::Operator& from = graph_.operators[op];
    NodeOf& node = nodes_[op];
    node.again = !from.traits.only_once();
    node.ns =
        static_cast<double>(std::ranges::min(from.alternatives, {}, &graph::Alternative::ns).ns);
    once_ += node.ns;
    const auto values_read = [](const graph::Alternative& taken) {
      std::vector<ValueId> read;
      for (const graph::Read& one : taken.reads) read.push_back(one.value);
      std::ranges::sort(read);
      read.erase(std::unique(read.begin(), read.end()), read.end());
      return read;
    };
    std::vector<ValueId> always = values_read(from.alternatives.front());
    for (const graph::Alternative& taken : from.alternatives) {
      const std::vector<ValueId> read = values_read(taken);
      std::erase_if(always, [&](ValueId id) { return !std::ranges::binary_search(read, id); });
    }
    node.own = kMaxBytes;
    for (const graph::Alternative& taken : from.alternatives) {
      Bytes own = needed(graph_, taken);
      for (const ValueId id : values_read(taken))
        if (!std::ranges::binary_search(always, id) &&
            graph_.storages[id.storage].kind != StorageClass::kResident)
          own -= std::min(own, graph_.storages[id.storage].bytes);
      node.own = std::min(node.own, own);
    }
    for (const ValueId id : always) {
      node.reads.push_back(number_of(id));
      values_[node.reads.back()].readers.push_back(op);
    }
    for (const ValueId id : from.alternatives.front().writes) {
      if (graph_.storages[id.storage].kind == StorageClass::kResident) node.again = false;
      node.makes.push_back(number_of(id));
      values_[node.makes.back()].maker = op;
    }
  }

  // What has run before v, and what has not.
  void find_sides(OperatorId v) {
    side_.assign(nodes_.size(), Side::kOpen);
    const auto mark = [&](Side side, std::vector<OperatorId> NodeOf::*next) {
      std::vector<OperatorId> open = {v};
      while (!open.empty()) {
        const OperatorId op = open.back();
        open.pop_back();
        for (const OperatorId other : nodes_[op].*next) {
          if (side_[other] == side) continue;
          side_[other] = side;
          open.push_back(other);
        }
      }
    };
    mark(Side::kRan, &NodeOf::before);
    mark(Side::kLater, &NodeOf::after);
    side_[v] = Side::kLater;
  }

  // The right side of the inequality for one price, in ns; `above`: what v alone has above the
  // budget, where negative below it.
  double value(OperatorId v, double price, double above) {
    const double host = options_.rates ? price / copy_ns_ : 0;  // weight of the copies
    double all = 1;
    for (const NodeOf& node : nodes_) all += node.ns;
    for (const ValueOf& one : values_) all += price * one.bytes;
    const double scale = kMostFlow / all;
    const auto capacity = [scale](double ns) { return static_cast<Bytes>(ns * scale); };

    // The source's side has what ran; of a second vertex an operator what is not recomputed; of a
    // value what nobody needs.
    network_.clear();
    constexpr std::uint32_t kSource = MaxFlow::kSource, kSink = MaxFlow::kSink;
    std::vector<std::uint32_t> ran(nodes_.size()), once(nodes_.size(), kNoMaker),
        idle(values_.size(), kNoMaker);
    for (OperatorId op = 0; op < nodes_.size(); ++op) {
      ran[op] = side_[op] == Side::kRan     ? kSource
                : side_[op] == Side::kLater ? kSink
                                            : network_.add_vertex();
      if (side_[op] == Side::kLater) continue;
      once[op] = nodes_[op].again ? network_.add_vertex() : ran[op];
      if (nodes_[op].again)
        network_.add_arc(ran[op], once[op], capacity((1 - host) * nodes_[op].ns));
    }
    for (std::uint32_t w = 0; w < values_.size(); ++w) {
      const ValueOf& one = values_[w];
      const bool late = one.maker != kNoMaker && side_[one.maker] == Side::kLater;
      if (late || one.bytes == 0 || one.readers.empty()) continue;
      if (std::ranges::count(nodes_[v].reads, w) != 0) continue;  // there for v
      idle[w] = network_.add_vertex();
      network_.add_arc(one.maker == kNoMaker ? kSource : once[one.maker], idle[w],
                       capacity(price * one.bytes));
      for (const OperatorId reader : one.readers)
        network_.add_arc(idle[w], ran[reader], MaxFlow::kInfinite);
    }
    for (OperatorId op = 0; op < nodes_.size(); ++op) {
      // What has run is closed under what it depends on.
      if (ran[op] != kSource)
        for (const OperatorId before : nodes_[op].before)
          if (ran[op] != kSink && ran[before] != kSource)
            network_.add_arc(ran[op], ran[before], MaxFlow::kInfinite);
      if (side_[op] == Side::kLater || !nodes_[op].again) continue;
      // What is recomputed needs what it reads.
      for (const std::uint32_t read : nodes_[op].reads)
        if (idle[read] != kNoMaker) network_.add_arc(idle[read], once[op], MaxFlow::kInfinite);
    }
    const double cut = static_cast<double>(network_.run()) / scale;
    return (1 - host) * once_ + cut + price * above;
  }

  const graph::Graph& graph_;
  const TimeBoundOptions& options_;
  std::vector<NodeOf> nodes_;
  std::vector<ValueOf> values_;
  std::map<ValueId, std::uint32_t> numbers_;
  Bytes resident_ = 0;
  double once_ = 0;     // all operators
  double copy_ns_ = 0;  // of a byte, out and in
  std::vector<Side> side_;
  MaxFlow network_;
};

// Those with most alive in an order, some way from each other.
std::vector<OperatorId> places_of(const graph::Graph& graph, std::span<const OperatorId> order,
                                  unsigned most) {
  const std::vector<Bytes> live = live_bytes(order_problem(graph), order);
  std::vector<std::size_t> steps(order.size());
  std::iota(steps.begin(), steps.end(), std::size_t{0});
  std::stable_sort(steps.begin(), steps.end(),
                   [&](std::size_t a, std::size_t b) { return live[a] > live[b]; });
  const std::size_t apart = order.size() / (4 * std::size_t{std::max(most, 1U)});
  std::vector<std::size_t> taken;
  for (const std::size_t step : steps) {
    if (taken.size() == most) break;
    if (std::ranges::none_of(taken, [&](std::size_t other) {
          return std::max(step, other) - std::min(step, other) < apart;
        }))
      taken.push_back(step);
  }
  std::vector<OperatorId> places;
  for (const std::size_t step : taken) places.push_back(order[step]);
  return places;
}

}  // namespace

std::uint64_t time_bound(const graph::Graph& graph, std::span<const OperatorId> order,
                         const TimeBoundOptions& options) {
  Pricing pricing(graph, options);
  double bound = pricing.once();
  for (const OperatorId v : places_of(graph, order, options.places)) {
    if (options.stop()) break;
    bound = std::max(bound, pricing.best(v));
  }
  // Capacities are rounded down, sums of doubles either way.
  return static_cast<std::uint64_t>(std::ceil(std::max(0.0, bound * (1 - 1e-9) - 1e-3)));
}

}  // namespace berth::schedule
