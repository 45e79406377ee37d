#include "csrc/trace/step_lane.h"

#include <algorithm>

namespace berth::trace {
namespace {

// One in this many repeats of a request may outlive the period without it being left out.
constexpr std::uint64_t kTolerated = 10;

// What all repeats say of the lifetime of one request.
class LifetimeEvidence {
 public:
  explicit LifetimeEvidence(std::uint64_t period) : period_(period) {}

  // It lived for `length` ticks.
  void ended(std::uint64_t length) {
    ++seen_;
    if (length > period_) {
      ++beyond_;
      longest_beyond_ = std::max(longest_beyond_, length);
    } else {
      longest_ = std::max(longest_, length);
    }
  }
  // It lived for `length` ticks at least, and nothing is known of its end.
  void still_alive(std::uint64_t length) {
    if (length <= period_) return;  // other repeats know
    ++seen_;
    ++beyond_;
    at_least_ = std::max(at_least_, length);
  }

  [[nodiscard]] std::uint64_t length() const {
    if (longest_ != 0 && beyond_ * kTolerated <= seen_) return longest_;
    return at_least_ > longest_beyond_ ? StepLaneLog::Slot::kForEver : longest_beyond_;
  }

 private:
  std::uint64_t period_;
  std::uint64_t seen_ = 0, beyond_ = 0;
  std::uint64_t longest_ = 0, longest_beyond_ = 0, at_least_ = 0;
};

}  // namespace

std::optional<StepLaneLog> StepLaneLog::make(const LaneLog& log, LaneId lane, const StepCut& cut) {
  const std::size_t repeats = (cut.bounds.size() - 1) / cut.pattern;
  StepLaneLog result;
  result.lane_ = lane;
  result.begin_ = log.position_at(cut.bounds.front());
  result.period_ = log.position_at(cut.bounds[cut.pattern]) - result.begin_;
  if (result.period_ == 0) return std::nullopt;
  for (std::size_t repeat = 0; repeat <= repeats; ++repeat) {
    result.bounds_.push_back(cut.bounds[repeat * cut.pattern]);
    if (log.position_at(result.bounds_.back()) !=
        result.begin_of(static_cast<std::uint32_t>(repeat)))
      return std::nullopt;
  }
  const auto& requests = log.requests;
  const std::uint32_t end = result.begin_of(static_cast<std::uint32_t>(repeats));
  const auto repeats_at = [&](std::uint32_t i) {
    return requests[i].bytes == requests[i - result.period_].bytes;
  };
  for (std::uint32_t i = result.begin_ + result.period_; i < end; ++i) {
    if (!repeats_at(i)) return std::nullopt;
  }
  // The step may go on for a while beyond the last whole repeat.
  std::uint32_t known_to = end;
  while (known_to < requests.size() && repeats_at(known_to)) ++known_to;

  for (std::uint32_t k = 0; k < result.period_; ++k) {
    LifetimeEvidence evidence(result.period_);
    for (std::uint32_t i = result.begin_ + k; i < end; i += result.period_) {
      const std::uint32_t freed = requests[i].end;
      // What is freed after the last request that repeats is so by the program's end or by what
      // comes instead of the next step, unless it is of the last repeat and freed within that.
      const bool in_last = requests[i].freed < result.bounds_.back() && i + result.period_ >= end;
      if (freed < known_to || (in_last && freed == end)) {
        evidence.ended(freed - i);
      } else {
        evidence.still_alive(known_to - i);
      }
    }
    result.slots_.push_back({requests[result.begin_ + k].bytes, evidence.length()});
  }
  return result;
}

Bytes StepLaneLog::peak() const {
  std::vector<Bytes> change(period_ + 1, 0);  // differences that wrap around
  Bytes load = 0;                             // alive at tick 0 from before
  for (std::uint32_t birth = 0; birth < period_; ++birth) {
    const Slot& slot = slots_[birth];
    const auto end = birth + std::min<std::uint64_t>(slot.length, period_);
    change[birth] += slot.bytes;
    change[end % period_] -= slot.bytes;
    if (end >= period_) load += slot.bytes;
  }
  Bytes peak = 0;
  for (std::uint32_t tick = 0; tick < period_; ++tick) {
    load += change[tick];
    peak = std::max(peak, load);
  }
  return peak;
}

}  // namespace berth::trace
