#include "csrc/pool/mobility.h"

#include "csrc/core/checksum.h"

#include <algorithm>

namespace berth {

std::uint64_t MobilityClassifier::key_of(Bytes size, LaneKey lane, std::uint32_t tag) noexcept {
  return hash_combine(hash_combine(size, lane), tag) | 1;
}

Mobility MobilityClassifier::classify(Bytes size, LaneKey lane, std::uint32_t tag) noexcept {
  const Mobility by_size = size < kSmall ? Mobility::kMovable : Mobility::kTemporary;
  if (kinds_ == nullptr) return by_size;
  const std::uint64_t key = key_of(size, lane, tag);
  Kind& kind = kinds_[key / 2 % kKinds];
  if (kind.key != key) {
    kind = {.key = key, .first_step = steps_};
  } else if (kind.freed ? kind.outlived >= 2 : kind.first_step != steps_) {
    return Mobility::kResident;
  }
  return by_size;
}

void MobilityClassifier::learn(Bytes size, LaneKey lane, std::uint32_t tag,
                               std::uint64_t born) noexcept {
  if (kinds_ == nullptr) return;
  const std::uint64_t key = key_of(size, lane, tag);
  Kind& kind = kinds_[key / 2 % kKinds];
  if (kind.key != key) return;  // another kind took its place
  kind.freed = true;
  kind.outlived =
      steps_ - born >= 2 ? static_cast<std::uint8_t>(std::min(kind.outlived + 1, 2)) : 0;
}

}  // namespace berth
