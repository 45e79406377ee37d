#include "bench/pool/mixes.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace berth::bench {
namespace {

using replay::Operation;
using replay::Workload;
using Kind = Operation::Kind;

class Draw {
 public:
  Draw(Sizes sizes, std::uint64_t seed) : sizes_(sizes), random_(seed) {
    for (Bytes& size : few_) size = chance(0.6) ? log(512, 1 << 20) : log(1 << 20, 32 << 20);
    few_.front() = log(1 << 20, 32 << 20);
  }
  bool chance(double p) { return static_cast<double>(random_() >> 11) < p * 0x1p53; }
  double between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_()) % count; }
  Bytes size() {
    switch (sizes_) {
      case Sizes::kSmall:
        return static_cast<Bytes>(between(512, 64 << 10));
      case Sizes::kLog:
        return log(512, 1 << 20);
      case Sizes::kWide:
        return log(512, 64 << 20);
      case Sizes::kFew:
        return few_[below(few_.size())];
      case Sizes::kPowers:
        return Bytes{512} << below(17);
      case Sizes::kLarge:
        return static_cast<Bytes>(between(1 << 20, 64 << 20));
    }
    return 0;
  }

 private:
  Bytes log(double low, double high) {
    return static_cast<Bytes>(std::exp2(between(std::log2(low), std::log2(high))));
  }
  Sizes sizes_;
  std::mt19937_64 random_;
  std::array<Bytes, 12> few_{};
};

}  // namespace

Workload random_mix(Sizes sizes, Lives lives, std::uint64_t operations, Bytes most_live,
                    std::uint64_t seed) {
  Draw draw(sizes, seed);
  Workload workload;
  workload.alignment = 512;
  workload.lane_keys = {0};
  using Live = std::pair<std::uint64_t, Bytes>;
  std::deque<Live> live, brief;
  Bytes held = 0, goal = most_live;
  bool growing = true;
  const auto free = [&](std::deque<Live>& from, std::size_t at) {
    held -= from[at].second;
    workload.operations.push_back({Kind::kFree, 0, from[at].first, 0});
    if (&from == &live && (lives == Lives::kAny || lives == Lives::kBriefAndLong)) {
      std::swap(from[at], from.back());  // their order means nothing
      from.pop_back();
    } else {
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
    }
  };
  // How often a request is made rather than a long block freed: of brief and long ones most are
  // brief.
  const double asks = lives == Lives::kBriefAndLong ? 0.9 : 0.6;
  const double asks_less = lives == Lives::kBriefAndLong ? 0.7 : 0.4;
  while (workload.operations.size() < operations) {
    if (!brief.empty() && draw.chance(0.5)) {
      free(brief, 0);
      continue;
    }
    const Bytes size = draw.size();
    const bool full = held + size > most_live;
    if (growing ? held >= goal || full : held <= goal) {
      growing = !growing;
      goal = static_cast<Bytes>(static_cast<double>(most_live) *
                                (growing ? draw.between(0.8, 1) : draw.between(0.5, 0.8)));
    }
    if (!full && (live.empty() || draw.chance(growing ? asks : asks_less))) {
      held += size;
      workload.operations.push_back({Kind::kAllocate, 0, workload.block_count, size});
      const bool goes_soon = lives == Lives::kBriefAndLong && draw.chance(0.7);
      (goes_soon ? brief : live).emplace_back(workload.block_count++, size);
    } else if (!live.empty()) {
      // A stack's depth and a queue's length change, so not always the very last one.
      const std::size_t slack = draw.below(std::min<std::size_t>(live.size(), 4));
      free(live, lives == Lives::kStack   ? live.size() - 1 - slack
                 : lives == Lives::kQueue ? slack
                                          : draw.below(live.size()));
    } else if (!brief.empty()) {
      free(brief, 0);
    }
  }
  workload.count_operations();
  return workload;
}

}  // namespace berth::bench
