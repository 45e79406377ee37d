#pragma once

#include "csrc/torch/step/record.h"

#include <c10/core/Storage.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace berth::torch::step {

// Whether a body writes memory that an operator made room for by its address, before another
// operator uses it: as torch.tensor() writes a list. While a step is recorded, such memory on the
// CPU gets marks where nothing is yet; marks that are gone were written over.
class WrittenRooms {
 public:
  // An operator has made room, and nothing has been written there. O(1).
  void note_made(StorageNumber number, const c10::Storage& storage);
  // The first operator uses it: whether the body has written it. Later calls say false. O(1).
  [[nodiscard]] bool take_written(StorageNumber number);

 private:
  static constexpr std::size_t kMarks = 8;
  using Marks = std::array<std::uint64_t, kMarks>;
  struct Room {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Bytes bytes = 0;
  };
  [[nodiscard]] static std::size_t place_of(std::size_t mark, Bytes bytes) noexcept;
  std::unordered_map<StorageNumber, Room> rooms_;
};

}  // namespace berth::torch::step
