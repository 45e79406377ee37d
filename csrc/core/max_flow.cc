#include "csrc/core/max_flow.h"

#include <algorithm>

namespace berth {

void MaxFlow::clear() {
  used_ = 2;
  arcs_[kSource].clear();
  arcs_[kSink].clear();
}

MaxFlow::Vertex MaxFlow::add_vertex() {
  if (arcs_.size() == used_) arcs_.emplace_back();
  arcs_[used_].clear();
  return static_cast<Vertex>(used_++);
}

void MaxFlow::add_arc(Vertex from, Vertex to, Bytes capacity) {
  arcs_[from].push_back({to, static_cast<std::uint32_t>(arcs_[to].size()), capacity});
  arcs_[to].push_back({from, static_cast<std::uint32_t>(arcs_[from].size() - 1), 0});
}

bool MaxFlow::find_levels() {
  level_.assign(used_, kUnseen);
  queue_.clear();
  queue_.push_back(kSource);
  level_[kSource] = 0;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    const Vertex at = queue_[head];
    looks_ += arcs_[at].size();
    for (const Arc& arc : arcs_[at]) {
      if (arc.left == 0 || level_[arc.to] != kUnseen) continue;
      level_[arc.to] = level_[at] + 1;
      queue_.push_back(arc.to);
    }
  }
  return level_[kSink] != kUnseen;
}

// Along the levels, without recursion: a path may be as long as the graph.
Bytes MaxFlow::push() {
  path_.clear();
  Vertex at = kSource;
  while (at != kSink) {
    bool moved = false;
    for (std::uint32_t& k = next_[at]; k < arcs_[at].size(); ++k) {
      ++looks_;
      Arc& arc = arcs_[at][k];
      if (arc.left == 0 || level_[arc.to] != level_[at] + 1) continue;
      path_.push_back(&arc);
      at = arc.to;
      moved = true;
      break;
    }
    if (moved) continue;
    if (at == kSource) return 0;
    level_[at] = kUnseen;  // leads nowhere
    Arc* const last = path_.back();
    path_.pop_back();
    at = arcs_[last->to][last->back].to;
    ++next_[at];
  }
  Bytes most = kInfinite;
  for (const Arc* const arc : path_) most = std::min(most, arc->left);
  for (Arc* const arc : path_) {
    if (arc->left < kInfinite / 2) arc->left -= most;
    Arc& back = arcs_[arc->to][arc->back];
    if (back.left < kInfinite / 2) back.left += most;
  }
  return most;
}

std::optional<Bytes> MaxFlow::run(std::uint64_t work) {
  Bytes flow = 0;
  looks_ = 0;
  while (find_levels()) {
    next_.assign(used_, 0);
    while (const Bytes pushed = push()) {
      flow += pushed;
      if (looks_ > work) return std::nullopt;
    }
  }
  return flow;
}

std::vector<bool> MaxFlow::reach_sink() {
  std::vector<bool> reaches(used_, false);
  queue_.clear();
  queue_.push_back(kSink);
  reaches[kSink] = true;
  for (std::size_t head = 0; head < queue_.size(); ++head) {
    for (const Arc& arc : arcs_[queue_[head]]) {
      if (reaches[arc.to] || arcs_[arc.to][arc.back].left == 0) continue;
      reaches[arc.to] = true;
      queue_.push_back(arc.to);
    }
  }
  return reaches;
}

}  // namespace berth
