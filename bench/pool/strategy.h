#pragma once

#include "csrc/pool/mobility.h"
#include "csrc/replay/workload.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace berth::bench {

// Which end of the pool a request goes to. Told of everything that a pool's user sees.
class Strategy {
 public:
  virtual ~Strategy() = default;
  [[nodiscard]] virtual Mobility classify(const replay::Operation& request) = 0;
  virtual void freed(std::uint64_t block) = 0;
  virtual void mark() = 0;
};

// How requests are told apart.
enum class Split : std::uint8_t {
  kOneEnd,     // all to the low end
  kSize,       // as berth does: small ones low, large ones high, residents learned
  kClass,      // by lifetimes learned of (size, lane, tag, position after the mark)
  kForesight,  // by the lifetime that each block will have
};

// `brief`: of kClass and kForesight, how many requests a movable block outlives at most. Dymem's
// are freed after the next one or two.
[[nodiscard]] std::unique_ptr<Strategy> make_strategy(Split split, const replay::Workload& workload,
                                                      std::uint64_t brief = 2);

}  // namespace berth::bench
