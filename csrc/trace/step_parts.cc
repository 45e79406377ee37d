#include "csrc/trace/step_parts.h"

#include "csrc/core/checksum.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace berth {

// Hashes of any stretch of a step: polynomials in kBase.
class StepParts::Hashes {
 public:
  explicit Hashes(std::span<const Bytes> step) {
    sums_.reserve(step.size() + 1);
    powers_.reserve(step.size() + 1);
    for (const Bytes bytes : step) {
      sums_.push_back(sums_.back() * kBase + hash_combine(0, bytes));
      powers_.push_back(powers_.back() * kBase);
    }
  }
  [[nodiscard]] std::uint64_t of(std::size_t from, std::size_t to) const noexcept {
    return sums_[to] - sums_[from] * powers_[to - from];
  }

 private:
  static constexpr std::uint64_t kBase = 0x9E3779B97F4A7C15;
  std::vector<std::uint64_t> sums_ = {0}, powers_ = {1};
};

StepParts::StepParts(std::vector<std::span<const Bytes>> steps) {
  // The shortest first: what they are made of is known when longer ones are looked at.
  std::sort(steps.begin(), steps.end(), [](auto a, auto b) { return a.size() < b.size(); });
  std::map<std::size_t, std::unordered_set<std::uint64_t>> known;
  for (const std::span<const Bytes> step : steps) {
    if (step.size() < kShortest) continue;
    const Hashes hashes(step);
    if (!known[step.size()].insert(hashes.of(0, step.size())).second) continue;
    const Division division = divide(hashes, step.size());
    const bool made = !division.cuts.empty();
    made_ += made;
    if (division.whole) continue;
    fresh_ += made;
    parts_[division.last - division.first].insert(hashes.of(division.first, division.last));
  }
}

std::vector<std::size_t> StepParts::cuts(std::span<const Bytes> step) const {
  Division division = divide(Hashes(step), step.size());
  std::sort(division.cuts.begin(), division.cuts.end());
  return std::move(division.cuts);
}

bool StepParts::is_part(std::uint64_t hash, std::size_t length) const {
  const auto of_length = parts_.find(length);
  return of_length != parts_.end() && of_length->second.contains(hash);
}

StepParts::Division StepParts::divide(const Hashes& step, std::size_t count) const {
  Division result{.cuts = {}, .first = 0, .last = count};
  std::size_t& first = result.first;
  std::size_t& last = result.last;
  const auto cut_off_one = [&] {
    for (auto of_length = parts_.rbegin(); of_length != parts_.rend(); ++of_length) {
      const auto& [length, hashes] = *of_length;
      if (length + kShortest > last - first) continue;
      if (hashes.contains(step.of(last - length, last))) {
        result.cuts.push_back(last -= length);
        return true;
      }
      if (hashes.contains(step.of(first, first + length))) {
        result.cuts.push_back(first += length);
        return true;
      }
    }
    return false;
  };
  while (cut_off_one()) continue;
  result.whole = is_part(step.of(first, last), last - first);
  if (result.whole || result.cuts.empty()) return result;
  // Equal parts in a row.
  const std::size_t left = last - first;
  for (std::size_t length = kShortest; length <= left / 2; ++length) {
    if (left % length != 0 || step.of(first, last - length) != step.of(first + length, last))
      continue;
    for (std::size_t at = first + length; at < last; at += length) result.cuts.push_back(at);
    last = first + length;
    break;
  }
  return result;
}

}  // namespace berth
