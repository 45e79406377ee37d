#include "csrc/runtime/learner.h"

#include "csrc/core/checksum.h"

#include <algorithm>

namespace berth {

void Learner::start() {
  stop();
  items_.reserve(4096);
  active_ = true;
}

void Learner::stop() noexcept {
  active_ = false;
  items_ = {};
  lane_hashes_.clear();
  previous_hashes_.clear();
  lanes_.clear();
  mark_positions_.clear();
  marks_ = 0;
  next_search_ = kFirstSearch;
}

std::uint32_t Learner::lane_index(LaneKey key) {
  const auto it = std::find(lanes_.begin(), lanes_.end(), key);
  if (it != lanes_.end()) return static_cast<std::uint32_t>(it - lanes_.begin());
  lanes_.push_back(key);
  lane_hashes_.push_back(0);
  previous_hashes_.push_back(0);
  return static_cast<std::uint32_t>(lanes_.size() - 1);
}

void Learner::add(Item item) {
  if (items_.size() >= kMostItems) drop_old();
  items_.push_back(item);
}

void Learner::drop_old() {
  std::size_t cut = items_.size() / 2;
  if (mark_positions_.size() > kKeptSteps)
    cut = mark_positions_[mark_positions_.size() - kKeptSteps - 1];
  items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(cut));
  std::erase_if(mark_positions_, [&](std::size_t position) { return position < cut; });
  for (std::size_t& position : mark_positions_) position -= cut;
  next_search_ = std::min(next_search_, kMostItems);
}

void Learner::request(trace::BlockId id, Bytes bytes, LaneKey lane, trace::Tag tag) {
  const std::uint32_t index = lane_index(lane);
  lane_hashes_[index] = hash_combine(lane_hashes_[index], bytes);
  add({id, bytes, index, tag, Kind::kRequest});
}

void Learner::free(trace::BlockId id) { add({id, 0, 0, 0, Kind::kFree}); }

void Learner::use(trace::BlockId id, LaneKey lane) {
  add({id, 0, lane_index(lane), 0, Kind::kUse});
}

bool Learner::mark(LaneKey lane) {
  const std::uint32_t index = lane_index(lane);
  ++marks_;
  const bool repeats =
      marks_ >= 2 && lane_hashes_[index] != 0 && lane_hashes_[index] == previous_hashes_[index];
  previous_hashes_ = lane_hashes_;
  std::fill(lane_hashes_.begin(), lane_hashes_.end(), 0);
  add({0, 0, index, 0, Kind::kMark});
  mark_positions_.push_back(items_.size() - 1);
  // Steps that do not repeat must not fill the memory.
  if (mark_positions_.size() > 8 * kKeptSteps) drop_old();
  return repeats;
}

Trace Learner::snapshot(const trace::Program& program) const {
  Trace result;
  result.program = program;
  result.alignment = alignment_;
  for (const LaneKey key : lanes_) result.lanes.push_back({key});
  result.entries.reserve(items_.size());
  trace::Tick tick = 0;
  for (const Item& item : items_) {
    trace::Entry entry;
    entry.tick = tick++;
    entry.thread = item.lane;
    switch (item.kind) {
      case Kind::kRequest:
        entry.event = trace::Request{item.id, item.bytes, item.lane, item.tag};
        break;
      case Kind::kFree:
        entry.event = trace::Free{item.id};
        break;
      case Kind::kUse:
        entry.event = trace::Use{item.id, item.lane};
        break;
      case Kind::kMark:
        entry.event = trace::StepMark{item.lane};
        break;
    }
    result.entries.push_back(std::move(entry));
  }
  return result;
}

}  // namespace berth
