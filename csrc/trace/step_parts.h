#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_set>
#include <vector>

namespace berth {

// Which steps of a lane are others in a row, with no mark between them: an evaluation, or several,
// and the training step whose optimizer marks the end of them all. Told by the sizes of their
// requests: a step that ends or begins as a shorter one, as whole, is made of that and of what is
// left, and what is left of equal parts is made of these.
//
// Where that says how several steps are made it is worth more than to know each as a whole: what
// comes in any turns makes ever new ones. O(requests + steps times parts).
class StepParts {
 public:
  static constexpr std::size_t kShortest = 16;  // requests of a part

  // Steps that came as wholes.
  explicit StepParts(std::vector<std::span<const Bytes>> steps);

  // Whether more steps are made of parts than there are parts that never were a step.
  [[nodiscard]] bool tell() const noexcept { return made_ > fresh_; }

  // The requests at which the second and later parts of a step begin; empty where it has none.
  [[nodiscard]] std::vector<std::size_t> cuts(std::span<const Bytes> step) const;

 private:
  class Hashes;
  // Cuts what is left of a step once its ends that are parts are cut off, if it is new.
  struct Division {
    std::vector<std::size_t> cuts;
    std::size_t first = 0, last = 0;  // what is left
    bool whole = false;               // that is a part, too
  };
  [[nodiscard]] Division divide(const Hashes& step, std::size_t count) const;
  [[nodiscard]] bool is_part(std::uint64_t hash, std::size_t length) const;

  std::map<std::size_t, std::unordered_set<std::uint64_t>> parts_;  // by length
  std::size_t made_ = 0, fresh_ = 0;
};

}  // namespace berth
