#include "csrc/torch/step/written_rooms.h"

#include "csrc/torch/step/spills.h"

#include <ATen/Context.h>

#include <cstring>
#include <utility>

namespace berth::torch::step {

namespace {

// No number that a program would write so often.
constexpr std::uint64_t kMark = 0xB3A96C5FD1E28743;

}  // namespace

// The first and the last bytes, and others between.
std::size_t WrittenRooms::place_of(std::size_t mark, Bytes bytes) noexcept {
  return static_cast<std::size_t>(bytes - sizeof(kMark)) / (kMarks - 1) * mark;
}

void WrittenRooms::note_made(StorageNumber number, const c10::Storage& storage) {
  const Bytes bytes = storage.nbytes();
  if (!storage.device().is_cpu() || bytes < 2 * kMarks * sizeof(kMark)) return;
  auto* const data = static_cast<std::byte*>(storage.data_ptr().get());
  // Where libtorch fills such memory the program may read it.
  const at::Context& context = at::globalContext();
  if (data == nullptr ||
      (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    return;
  for (std::size_t mark = 0; mark < kMarks; ++mark)
    std::memcpy(data + place_of(mark, bytes), &kMark, sizeof(kMark));
  rooms_.insert_or_assign(number, Room{storage.getWeakStorageImpl(), bytes});
}

bool WrittenRooms::take_written(StorageNumber number) {
  const auto found = rooms_.find(number);
  if (found == rooms_.end()) return false;
  const Room room = std::move(found->second);
  rooms_.erase(found);
  const auto storage = room.storage.lock();
  if (storage == nullptr || storage->nbytes() != room.bytes) return false;
  // It may have left since the body wrote it.
  const Spills::Use there{c10::Storage(storage)};
  const auto* const data = static_cast<const std::byte*>(storage->data_ptr().get());
  if (data == nullptr) return false;
  for (std::size_t mark = 0; mark < kMarks; ++mark)
    if (std::memcmp(data + place_of(mark, room.bytes), &kMark, sizeof(kMark)) != 0) return true;
  return false;
}

}  // namespace berth::torch::step
