#pragma once

#include "csrc/pool/pool.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace berth {

// Tells a request's mobility from its size and from how long earlier blocks of the same size, lane
// and tag stayed.
//
// A request is resident where no block of its kind was ever freed and one has outlived a step, or
// where the last two that were freed had outlived two marks. Of the others small ones are movable
// and large ones temporary: small blocks then never split the holes of large ones, whether they
// stay or not. Splitting large ones by lifetime was measured and made the pool larger; see the
// README.
//
// Kinds live in a table of fixed size, 128 KiB, where a new one takes an older one's place. O(1),
// no allocation but that table's. Not thread-safe.
class MobilityClassifier {
 public:
  // `has_steps`: whether mark_step() is ever called; else no request is resident, and there is no
  // table. Throws std::bad_alloc.
  explicit MobilityClassifier(bool has_steps = true)
      : kinds_(has_steps ? std::make_unique<Kind[]>(kKinds) : nullptr) {}

  static constexpr Bytes kSmall = Bytes{1} << 20;

  // Where a request should go.
  [[nodiscard]] Mobility classify(Bytes size, LaneKey lane, std::uint32_t tag) noexcept;
  // Step marks so far: the birth, for learn(), of the block just classified.
  [[nodiscard]] std::uint64_t now() const noexcept { return steps_; }
  // A block is freed that was classified with the same size, lane and tag at `born`.
  void learn(Bytes size, LaneKey lane, std::uint32_t tag, std::uint64_t born) noexcept;
  void mark_step() noexcept { ++steps_; }

 private:
  static constexpr std::size_t kKinds = 4096;

  struct Kind {
    std::uint64_t key = 0;         // hash of size, lane and tag; 0: none
    std::uint64_t first_step = 0;  // of its first request
    bool freed = false;            // one block of it, ever
    std::uint8_t outlived = 0;     // of the last frees, how many in a row had outlived two marks
  };

  [[nodiscard]] static std::uint64_t key_of(Bytes size, LaneKey lane, std::uint32_t tag) noexcept;

  const std::unique_ptr<Kind[]> kinds_;
  std::uint64_t steps_ = 0;
};

}  // namespace berth
