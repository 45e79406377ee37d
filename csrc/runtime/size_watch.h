#pragma once

#include "csrc/core/bytes.h"
#include "csrc/core/checksum.h"

#include <bitset>
#include <cmath>
#include <cstdint>

namespace berth {

// Whether a run asks for other sizes than it did, or for ones that return where none did: the sign
// that what was searched for a step in vain may now have one.
//
// Windows of kWindow requests are compared by the shares of requests whose sizes the first window
// did not have, and the window before did not. A run has changed where one of them differs by
// kMarkedly from what it was in the first windows. Sizes are told by one bit of kBits: 3 KiB, O(1)
// a request.
class SizeWatch {
 public:
  static constexpr std::uint32_t kWindow = 4096;

  void start() noexcept { *this = SizeWatch(); }

  // Takes a request; whether the run has changed, asked once a window.
  [[nodiscard]] bool changed_at(Bytes bytes) noexcept {
    const std::size_t bit = hash_combine(0, bytes) % kBits;
    new_to_first_ += !first_[bit];
    new_to_last_ += !last_[bit];
    now_[bit] = true;
    if (++seen_ < kWindow) return false;
    const Shares shares{static_cast<double>(new_to_first_) / kWindow,
                        static_cast<double>(new_to_last_) / kWindow};
    bool changed = false;
    if (windows_ == 0) {
      first_ = now_;
    } else if (windows_ == 1) {
      usual_ = shares;
    } else {
      changed = std::abs(shares.new_to_first - usual_.new_to_first) >= kMarkedly ||
                std::abs(shares.new_to_last - usual_.new_to_last) >= kMarkedly;
    }
    ++windows_;
    last_ = now_;
    now_.reset();
    seen_ = new_to_first_ = new_to_last_ = 0;
    return changed;
  }

 private:
  static constexpr std::size_t kBits = 8192;
  static constexpr double kMarkedly = 0.25;
  struct Shares {
    double new_to_first = 0, new_to_last = 0;
  };
  std::bitset<kBits> first_, last_, now_;
  Shares usual_;
  std::uint64_t windows_ = 0;
  std::uint32_t seen_ = 0, new_to_first_ = 0, new_to_last_ = 0;
};

}  // namespace berth
