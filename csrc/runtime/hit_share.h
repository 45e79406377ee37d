#pragma once

#include <cstdint>

namespace berth {

// Whether plans serve nearly all requests: the mean over windows of kWindow requests, of which each
// counts a quarter of all until then. A first plan begins as one that does. O(1) a look.
class HitShare {
 public:
  static constexpr std::uint64_t kWindow = 1024;

  // `requests` and `hits` are counted since the start.
  void look(bool planned, std::uint64_t requests, std::uint64_t hits) noexcept {
    const bool first = !was_planned_ || !planned;
    if (!first && requests < requests_ + kWindow) return;
    const auto served = static_cast<double>(hits - hits_);
    share_ = first ? 1 : (3 * share_ + served / static_cast<double>(requests - requests_)) / 4;
    was_planned_ = planned, requests_ = requests, hits_ = hits;
  }
  [[nodiscard]] bool is_high() const noexcept { return share_ >= kHigh; }

 private:
  static constexpr double kHigh = 0.9375;
  std::uint64_t requests_ = 0, hits_ = 0;
  bool was_planned_ = false;
  double share_ = 1;
};

}  // namespace berth
