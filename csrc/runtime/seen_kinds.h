#pragma once

#include "csrc/core/checksum.h"
#include "csrc/device/device.h"
#include "csrc/trace/step_kinds.h"
#include "csrc/trace/step_parts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth {

// A kind of step that a plan has: the hash of its requests, or, of a bucket, 0 and how many these
// are.
struct KnownKind {
  LaneKey lane = 0;
  std::uint64_t hash = 0;
  std::uint64_t requests = 0;
};
[[nodiscard]] inline std::vector<KnownKind> known(std::span<const StepKind> kinds) {
  std::vector<KnownKind> result;
  for (const StepKind& kind : kinds) result.push_back({kind.lane, kind.hash, kind.requests.size()});
  return result;
}

// The kinds of steps that a run had lately, told by the hash of their requests, and which of them
// its plan has: says when what was recorded has a kind that is worth a plan.
//
// That is one that was seen often enough, many that are alike in the number of their requests only
// (StepKinds makes a bucket of those), or a few that are longer than all that the plan has.
// Bounded: the last kMost kinds, 20 KiB. O(kMost) a step.
class SeenKinds {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr std::size_t kMostKnown = StepKinds::kMostKinds;

  // A step ended whose record, and a little of what came before, begins at `from`; nothing before
  // `oldest` is recorded still. Where its kind is news, as it was seen `enough` times, the position
  // to search from. Where the plan `served` most of the step, and has no bucket, it is like one
  // that the plan has, with a few other requests, and no size of many.
  [[nodiscard]] std::optional<std::uint64_t> saw(const KnownKind& step, std::uint64_t from,
                                                 std::uint64_t oldest, std::uint32_t enough,
                                                 bool served) noexcept {
    ++steps_;
    if (knows(step)) return std::nullopt;
    const std::uint64_t name = name_of(step.lane, step.hash);
    const std::uint64_t shape = name_of(step.lane, step.requests);
    Kind* kind = nullptr;
    for (Kind& one : kinds_) {
      if (one.name == name) kind = &one;
    }
    if (kind == nullptr) {
      kind = &*std::min_element(kinds_.begin(), kinds_.end(),
                                [](const Kind& a, const Kind& b) { return a.last < b.last; });
      *kind = {.name = name, .shape = shape};
    }
    if (kind->from < oldest) kind->times = 0;
    if (kind->times++ == 0) kind->from = from;
    kind->last = steps_;
    // Others may have been seen often enough before, when nobody asked.
    std::optional<std::uint64_t> first;
    for (const Kind& one : kinds_) {
      if (one.last == 0 || one.from < oldest || one.times < enough) continue;
      news_ = {one.name, one.shape};
      first = std::min(first.value_or(one.from), one.from);
    }
    // mutant: kinds-several
    if (!first && !served) first = several(step, from, oldest, enough);
    return first || (served && !knows_bucket()) ? first : many_alike(shape, oldest);
  }

  [[nodiscard]] bool knows(const KnownKind& step) const noexcept {
    return knows(Known{name_of(step.lane, step.hash), name_of(step.lane, step.requests)});
  }
  // Whether the plan has the kind that was news last, or one that the plan before had not: what
  // that is made of.
  [[nodiscard]] bool learned() const noexcept { return learned_ || knows(news_); }

  // The plan has these now. Whether it has not got some that came twice, or after the first of
  // these: kinds that may come again.
  bool plan_has(std::span<const KnownKind> kinds) noexcept {
    std::array<Known, kMostKnown> known;
    const std::size_t count = std::min(kinds.size(), kMostKnown);
    learned_ = false;
    several_ = 0;
    longest_ = 0;
    for (std::size_t i = 0; i < count; ++i) {
      known[i] = {.name = kinds[i].hash == 0 ? kBucket : name_of(kinds[i].lane, kinds[i].hash),
                  .shape = name_of(kinds[i].lane, kinds[i].requests)};
      learned_ |= !knows(known[i]);
      longest_ = std::max(longest_, kinds[i].requests);
    }
    known_ = known;
    known_count_ = count;
    std::uint64_t first = ~std::uint64_t{0}, last_of_others = 0;
    bool again = false;
    for (Kind& kind : kinds_) {
      if (kind.last == 0) continue;
      if (knows(Known{kind.name, kind.shape})) {
        first = std::min(first, kind.from);
        kind = {};
      } else {
        last_of_others = std::max(last_of_others, kind.from);
        again |= kind.times > 1;
      }
    }
    return again || last_of_others > first;
  }
  void forget_plan() noexcept { known_count_ = 0; }
  // The record starts again.
  void forget_seen() noexcept {
    kinds_.fill({});
    several_ = 0;
  }

 private:
  static constexpr std::uint64_t kBucket = 0;
  struct Kind {
    std::uint64_t name = 0, shape = 0;
    std::uint64_t from = 0;
    std::uint64_t last = 0;  // step; 0: nothing here
    std::uint32_t times = 0;
  };
  struct Known {
    std::uint64_t name = 0, shape = 0;
  };

  [[nodiscard]] bool knows(const Known& kind) const noexcept {
    return std::any_of(known_.begin(), known_.begin() + static_cast<std::ptrdiff_t>(known_count_),
                       [&](const Known& one) {
                         return one.name == kBucket ? one.shape == kind.shape
                                                    : one.name == kind.name;
                       });
  }
  [[nodiscard]] bool knows_bucket() const noexcept {
    return std::any_of(known_.begin(), known_.begin() + static_cast<std::ptrdiff_t>(known_count_),
                       [](const Known& one) { return one.name == kBucket; });
  }
  [[nodiscard]] static std::uint64_t name_of(LaneKey lane, std::uint64_t value) noexcept {
    return hash_combine(hash_combine(0, lane), value);
  }
  // Steps that are longer than the plan's, each another, may be these in a row with one that the
  // plan has not got (step_parts.h).
  [[nodiscard]] std::optional<std::uint64_t> several(const KnownKind& step, std::uint64_t from,
                                                     std::uint64_t oldest,
                                                     std::uint32_t enough) noexcept {
    if (known_count_ == 0 || step.requests < longest_ + StepParts::kShortest) return std::nullopt;
    if (several_ == 0 || first_several_ < oldest) {
      several_ = 0;
      first_several_ = from;
    }
    if (++several_ <= enough) return std::nullopt;
    several_ = 0;
    news_ = {name_of(step.lane, step.hash), name_of(step.lane, step.requests)};
    return first_several_;
  }
  [[nodiscard]] std::optional<std::uint64_t> many_alike(std::uint64_t shape,
                                                        std::uint64_t oldest) noexcept {
    std::size_t count = 0;
    std::uint64_t first = ~std::uint64_t{0};
    for (const Kind& kind : kinds_) {
      if (kind.last == 0 || kind.shape != shape || kind.from < oldest) continue;
      ++count;
      first = std::min(first, kind.from);
    }
    for (std::size_t i = 0; i < known_count_; ++i) count += known_[i].shape == shape;
    const std::size_t most =
        knows_bucket() ? StepKinds::kMostBesideBucket : StepKinds::kMostOfShape;
    if (count <= most || first == ~std::uint64_t{0}) return std::nullopt;
    news_ = {0, shape};
    return first;
  }

  std::array<Kind, kMost> kinds_;
  std::array<Known, kMostKnown> known_;
  std::size_t known_count_ = 0;
  std::uint64_t longest_ = 0;  // requests of a known one, at most
  bool learned_ = false;
  std::uint64_t first_several_ = 0;
  std::uint32_t several_ = 0;
  Known news_;
  std::uint64_t steps_ = 0;
};

}  // namespace berth
