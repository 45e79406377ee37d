#include "csrc/runtime/learner.h"

#include "csrc/core/checksum.h"

#include <algorithm>
#include <utility>

namespace berth {

void Learner::begin_anew() noexcept {
  stop();
  marks_to_wait_ = 0;
  vain_at_marks_ = kind_searches_ = cycles_tried_ = 0;
  start();
}

void Learner::start() noexcept {
  record_again();
  beside_plan_ = false;
  seen_.forget_plan();
}

void Learner::look_for_kinds() noexcept {
  record_again();
  beside_plan_ = true;
}

void Learner::plan_taken(std::span<const KnownKind> kinds, bool cycle) noexcept {
  // Of several kinds it is still to be seen what crosses the marks between each two of them.
  turns_ = !cycle && kinds.size() > 1;
  others_ = seen_.plan_has(kinds) || turns_;
  if (last_search_ == Search::kKinds && !seen_.learned()) in_vain();
}

void Learner::plan_serves() noexcept {
  marks_without_news_ = 0;
  vain_at_marks_ = 0;
  beside_plan_ = true;
  if (!others_) stop();
}

void Learner::record_again() noexcept {
  if (state_ == State::kOff) lane_count_ = last_lane_ = marking_count_ = 0;
  state_ = State::kRecords;
  start_again();
  marks_without_news_ = 0;
  next_search_ = kFirstSearch;
  searches_ = 0;
  vain_at_marks_ = std::min(vain_at_marks_, kMostVainAtMarks - 1);
  searched_all_ = false;
  marks_without_repeat_ = 0;
  marks_too_long_ = 0;
}

void Learner::stop() noexcept { state_ = State::kOff; }

void Learner::watch() noexcept {
  fall_silent();
  const MarkHistory* most = nullptr;
  for (std::uint32_t i = 0; i < marking_count_; ++i) {
    const MarkHistory& history = marking_[i].history;
    if (most == nullptr || history.marks() > most->marks()) most = &history;
  }
  if (most == nullptr) return;
  const std::uint64_t count = std::min<std::uint64_t>(known_.size(), most->kept());
  for (std::uint64_t back = 1; back <= count; ++back) known_[back - 1] = most->hash(back);
}

void Learner::fall_silent() noexcept {
  state_ = State::kWatches;
  known_.fill(0);
  sizes_.start();
  deaf_ = silences_ == 0 ? 0 : kShortestDeaf << std::min(silences_ - 1, kMostDoublings);
  ++silences_;
}

// What lies behind is not whole any more: an entry was lost, or nothing was recorded before.
void Learner::start_again() noexcept {
  record_.drop_before(record_.end());
  began_ = record_.end();
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    Lane& lane = lanes_[i];
    lane.began = lane.hash == 0 ? began_ : kNotRecorded;
  }
  for (std::uint32_t i = 0; i < marking_count_; ++i) marking_[i].whole = 0;
  seen_.forget_seen();
}

std::uint32_t Learner::lane_index(LaneKey key) noexcept {
  if (last_lane_ < lane_count_ && lanes_[last_lane_].key == key) return last_lane_;
  const auto end = lanes_.begin() + lane_count_;
  const auto it =
      std::find_if(lanes_.begin(), end, [&](const Lane& one) { return one.key == key; });
  if (it == end) {
    if (lane_count_ == kMostLanes) {  // threads or streams that come and go
      lane_count_ = marking_count_ = 0;
      start_again();
      if (records() && ++searches_ > kMostSearches) fall_silent();
    }
    lanes_[lane_count_++] = {key, 0, 0, began_};
    return last_lane_ = lane_count_ - 1;
  }
  return last_lane_ = static_cast<std::uint32_t>(it - lanes_.begin());
}

Learner::MarkingLane* Learner::marking_lane(std::uint32_t lane) noexcept {
  for (std::uint32_t i = 0; i < marking_count_; ++i) {
    if (marking_[i].lane == lane) return &marking_[i];
  }
  if (marking_count_ == kMostMarkingLanes) return nullptr;
  marking_[marking_count_] = {lane, 0, {}};
  return &marking_[marking_count_++];
}

void Learner::add(const RunRecord::Entry& entry) noexcept {
  if (!records() || record_.add(entry)) return;
  // mutant: learn-gap
  const bool gap = record_.end() != began_;
  start_again();
  // A run that is faster than its chunks come is not searched without end.
  if (gap && ++searches_ > kMostSearches) fall_silent();
}

void Learner::request(trace::BlockId id, Bytes bytes, LaneKey key, trace::Tag tag) noexcept {
  const std::uint32_t index = lane_index(key);
  Lane& lane = lanes_[index];
  lane.hash = kind_hash(lane.hash, bytes);
  ++lane.requests;
  if (records()) {
    add({id, bytes, index, tag, RunRecord::Kind::kRequest});
    return;
  }
  if (deaf_ != 0) {
    --deaf_;
  } else if (sizes_.changed_at(bytes)) {
    start();
  }
}

void Learner::free(trace::BlockId id) noexcept { add({id, 0, 0, 0, RunRecord::Kind::kFree}); }

void Learner::use(trace::BlockId id, LaneKey lane) noexcept {
  add({id, 0, lane_index(lane), 0, RunRecord::Kind::kUse});
}

std::optional<Learner::Find> Learner::mark(LaneKey key, Fit fit) noexcept {
  const std::uint32_t index = lane_index(key);
  Lane& lane = lanes_[index];
  const bool first = marking_count_ == 0;
  MarkingLane* const marking = marking_lane(index);
  add({0, 0, index, 0, RunRecord::Kind::kMark});
  if (marking != nullptr) {
    marking->whole = lane.began == kNotRecorded ? 0 : marking->whole + 1;
    marking->history.mark(lane.hash, lane.requests, lane.began);
  }
  const KnownKind step{key, lane.hash, lane.requests};
  lane.hash = lane.requests = 0;
  lane.began = records() ? record_.end() : kNotRecorded;
  if (marking == nullptr) return std::nullopt;

  const std::uint32_t pattern = marking->history.pattern();
  if (records()) {
    const std::optional<std::uint64_t> kind = new_kind(*marking, step, fit);
    const bool served = beside_plan_ && fit == Fit::kAll;
    // mutant: learn-repeats, kinds-known
    const bool repeating = pattern != 0 && !known(*marking, pattern) && !served;
    const bool help = pattern != 0 || kind || seen_.knows(step) || served;
    marks_without_repeat_ = help ? 0 : marks_without_repeat_ + 1;
    if (beside_plan_ && ++marks_without_news_ > kPatience) stop();
    if (marks_to_wait_ != 0) {
      --marks_to_wait_;
      return std::nullopt;
    }
    // mutant: learn-too-soon
    const unsigned too_long_before = std::exchange(marks_too_long_, 0);
    if (repeating) {
      if (const auto from = repeats(*marking, pattern)) return Find{*from, Search::kAtMarks};
    }
    if (kind) return Find{*kind, Search::kKinds};
    if (repeating && outgrows_record(*marking, pattern)) {
      marks_too_long_ = too_long_before + 1;
      // mutant: learn-too-long
      if (marks_too_long_ == kMostTooLong) {
        too_long_ = 0;
        for (std::uint32_t back = 1; back <= pattern; ++back)
          too_long_ += marking->history.requests(back);
        watch();
        return std::nullopt;
      }
    }
    if (beside_plan_ && turns_) {
      const std::uint32_t cycle = marking->history.cycle();
      marks_in_cycle_ = cycle == 0 ? 0 : marks_in_cycle_ + 1;
      const auto from =
          marks_in_cycle_ > (kLongCycle << cycles_tried_) ? repeats(*marking, cycle) : std::nullopt;
      // mutant: kinds-cycle
      if (from) return Find{*from, Search::kCycle};
    }
    // What crosses its marks may be other than it was when its kind was learned.
    if (fit != Fit::kAll && marking->whole > 1 && seen_.knows(step) &&
        ++missed_known_ >= search_missed_) {
      search_missed_ = 2 * missed_known_;
      return Find{oldest_step(*marking, marking->whole), Search::kKinds};
    }
  } else if (deaf_ == 0 || known_[0] != 0) {
    const bool news =
        std::find(known_.begin(), known_.end(), marking->history.hash(1)) == known_.end();
    if (first || (pattern != 0 && news)) start();
  }
  return std::nullopt;
}

// Whether the plan has the last `pattern` steps.
bool Learner::known(const MarkingLane& marking, std::uint32_t pattern) const noexcept {
  for (std::uint32_t back = 1; back <= pattern; ++back) {
    const KnownKind step{lanes_[marking.lane].key, marking.history.hash(back),
                         marking.history.requests(back)};
    if (!seen_.knows(step)) return false;
  }
  return true;
}

// Where the oldest of the last steps begins that are recorded, `most` of them.
std::uint64_t Learner::oldest_step(const MarkingLane& marking, std::uint64_t most) const noexcept {
  std::uint64_t back = std::min({most, marking.whole, marking.history.kept()});
  while (back > 1 && marking.history.began(back) < record_.begin()) --back;
  return back == 0 ? record_.end() : marking.history.began(back);
}

// Where a search for kinds should begin, with the two steps before the first one of the new kind:
// what they leave alive shows there.
std::optional<std::uint64_t> Learner::new_kind(const MarkingLane& marking, const KnownKind& step,
                                               Fit fit) noexcept {
  if (marking.whole == 0 || step.requests == 0) return std::nullopt;
  // Several of the plan's in a row.
  if (beside_plan_ && fit == Fit::kAll) return std::nullopt;
  return seen_.saw(step, oldest_step(marking, 3), record_.begin(),
                   beside_plan_ ? kEnoughBesidePlan : kEnough, beside_plan_ && fit != Fit::kLittle);
}

// The steps that repeat, and as many before them: what is kept from step to step shows.
std::optional<std::uint64_t> Learner::repeats(const MarkingLane& marking,
                                              std::uint32_t pattern) const noexcept {
  // mutant: learn-recent
  std::uint64_t back =
      std::min({std::uint64_t{4} * pattern, marking.whole, marking.history.kept()});
  while (back != 0 && marking.history.began(back) < record_.begin()) --back;
  // mutant: learn-whole
  if (back < std::uint64_t{2} * pattern) return std::nullopt;
  return marking.history.began(back);
}

// Whether steps that repeat are missing from the record because others came behind them, and not
// because it began too late.
bool Learner::outgrows_record(const MarkingLane& marking, std::uint32_t pattern) const noexcept {
  const std::uint64_t back = std::uint64_t{2} * pattern;
  return back <= std::min(marking.whole, marking.history.kept()) &&
         marking.history.began(back) < record_.begin();
}

void Learner::searching(Search search) noexcept {
  last_search_ = search;
  marks_without_news_ = 0;
  // Of so many kinds the plan keeps those that serve most; a search for one more is rarely worth
  // it.
  if (search == Search::kKinds && ++kind_searches_ > kFreeKindSearches)
    // mutant: kinds-search-wait
    marks_to_wait_ = std::uint64_t{8} << std::min(kind_searches_ - kFreeKindSearches, 10u);
  if (search == Search::kCycle) {
    marks_in_cycle_ = 0;
    cycles_tried_ = std::min(cycles_tried_ + 1, kMostDoublings);
  }
  if (search != Search::kByPeriod) return;
  const std::uint64_t known = record_.end() - began_;
  next_search_ = 2 * known;
  ++searches_;
  searched_all_ = known >= RunRecord::kMostEntries;
}

void Learner::in_vain() noexcept {
  if (!records()) return;
  finds_no_period_ |= last_search_ == Search::kByPeriod && searches_ >= kManySearches;
  if (last_search_ != Search::kByPeriod) {
    // mutant: learn-vain
    marks_to_wait_ = std::max(marks_to_wait_, std::uint64_t{1} << std::min(vain_at_marks_++, 16u));
    // mutant: learn-silence
  } else if (searched_all_ || searches_ >= kMostSearches) {
    fall_silent();
  }
}

void Learner::excerpt(std::uint64_t from, Excerpt& into) noexcept {
  record_.share(from, into.share);
  for (std::uint32_t i = 0; i < lane_count_; ++i) into.lanes[i] = lanes_[i].key;
  into.lanes.resize(lane_count_);
}

Trace Learner::Excerpt::trace(const trace::Program& program, Bytes alignment) const {
  Trace result;
  result.program = program;
  result.alignment = alignment;
  for (const LaneKey key : lanes) result.lanes.push_back({key});
  result.entries.reserve(share.size());
  share.for_each([&](const RunRecord::Entry& entry) {
    trace::Entry& to = result.entries.emplace_back();
    to.tick = result.entries.size() - 1;
    to.thread = entry.lane;
    switch (entry.kind) {
      case RunRecord::Kind::kRequest:
        to.event = trace::Request{entry.id, entry.bytes, entry.lane, entry.tag};
        break;
      case RunRecord::Kind::kFree:
        to.event = trace::Free{entry.id};
        break;
      case RunRecord::Kind::kUse:
        to.event = trace::Use{entry.id, entry.lane};
        break;
      case RunRecord::Kind::kMark:
        to.event = trace::StepMark{entry.lane};
        break;
    }
  });
  return result;
}

}  // namespace berth
