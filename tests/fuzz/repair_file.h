#pragma once

#include "csrc/core/checksum.h"
#include "csrc/plan/section_file.h"
#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace berth::fuzz {

// Of a file of sections: all of the frame that a reader looks at before their table, and the
// checksum.
inline void repair_file(Input& input) {
  constexpr std::size_t kHeaderBytes = 32, kChecksumBytes = 8;
  if (input.size() < kHeaderBytes + kChecksumBytes) return;
  std::copy(kPlanMagic.begin(), kPlanMagic.end(), input.begin());
  std::memcpy(input.data() + 8, &kPlanFormat, sizeof kPlanFormat);
  std::memcpy(input.data() + 12, &kAlignmentRule, sizeof kAlignmentRule);
  std::memcpy(input.data() + 16, &kRoundingRule, sizeof kRoundingRule);
  const std::uint64_t size = input.size();
  std::memcpy(input.data() + 24, &size, sizeof size);
  const std::size_t end = input.size() - kChecksumBytes;
  const std::uint64_t sum = checksum(std::as_bytes(std::span(input).first(end)));
  std::memcpy(input.data() + end, &sum, sizeof sum);
}

}  // namespace berth::fuzz
