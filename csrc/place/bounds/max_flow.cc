#include "csrc/place/bounds/max_flow.h"

#include <algorithm>

namespace berth::place {

void MaxFlow::add_edge(std::uint32_t from, std::uint32_t to, Value capacity) {
  edges_.push_back({to, heads_[from], capacity});
  heads_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
  edges_.push_back({from, heads_[to], 0});
  heads_[to] = static_cast<std::uint32_t>(edges_.size() - 1);
}

bool MaxFlow::set_levels(std::uint32_t source, std::uint32_t sink) {
  levels_.assign(heads_.size(), kNone);
  levels_[source] = 0;
  queue_.assign(1, source);
  for (std::size_t k = 0; k < queue_.size(); ++k) {
    for (std::uint32_t e = heads_[queue_[k]]; e != kNone; e = edges_[e].next) {
      ++looks_;
      if (edges_[e].left == 0 || levels_[edges_[e].to] != kNone) continue;
      levels_[edges_[e].to] = levels_[queue_[k]] + 1;
      queue_.push_back(edges_[e].to);
    }
  }
  return levels_[sink] != kNone;
}

MaxFlow::Value MaxFlow::push_one_path(std::uint32_t source, std::uint32_t sink) {
  path_.clear();
  for (std::uint32_t node = source; node != sink;) {
    std::uint32_t& e = current_[node];
    for (; e != kNone; e = edges_[e].next) {
      ++looks_;
      if (edges_[e].left > 0 && levels_[edges_[e].to] == levels_[node] + 1) break;
    }
    if (e != kNone) {
      path_.push_back(e);
      node = edges_[e].to;
      continue;
    }
    if (path_.empty()) return 0;
    node = edges_[path_.back() ^ 1].to;
    path_.pop_back();
    current_[node] = edges_[current_[node]].next;
  }
  Value least = kInfinite;
  for (const std::uint32_t e : path_) least = std::min(least, edges_[e].left);
  for (const std::uint32_t e : path_) {
    if (edges_[e].left < kInfinite) edges_[e].left -= least;
    if (edges_[e ^ 1].left < kInfinite) edges_[e ^ 1].left += least;
  }
  looks_ += path_.size();
  return least;
}

std::optional<MaxFlow::Value> MaxFlow::run(std::uint32_t source, std::uint32_t sink,
                                           std::uint64_t work) {
  Value flow = 0;
  while (set_levels(source, sink)) {
    current_ = heads_;
    while (const Value pushed = push_one_path(source, sink)) {
      flow += pushed;
      if (looks_ > work) return std::nullopt;
    }
  }
  return flow;
}

}  // namespace berth::place
