#pragma once

#include "csrc/torch/step/instructions.h"

#include <cstddef>
#include <memory_resource>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth::torch::step {

// Which storages the buffers of a step have while its instructions run. `Memory` is what a buffer
// has of a storage: its bytes for the executor, a count of them for the account. One that was made
// without arguments is nothing, and is false.
template <typename Memory>
class Buffers {
 public:
  Buffers(const Program& program, const Instructions& instructions,
          std::pmr::memory_resource* memory = std::pmr::get_default_resource())
      : first_of_(instructions.first_of),
        memory_(instructions.buffers, memory),
        holds_(instructions.buffers, kNoStorage, memory),
        holders_(program.storages.size(), kNoBuffer, memory),
        versions_(program.storages.size(), 0, memory) {}

  [[nodiscard]] std::size_t size() const noexcept { return memory_.size(); }
  [[nodiscard]] std::size_t storages() const noexcept { return holders_.size(); }
  [[nodiscard]] Memory& operator[](BufferNumber buffer) noexcept { return memory_[buffer]; }
  [[nodiscard]] const Memory& operator[](BufferNumber buffer) const noexcept {
    return memory_[buffer];
  }
  // Where a storage from outside is.
  [[nodiscard]] const Memory& first_of(StorageNumber storage) const noexcept {
    return memory_[first_of_[storage]];
  }
  // The storage that was put there last; kNoStorage: none was.
  [[nodiscard]] StorageNumber holds(BufferNumber buffer) const noexcept { return holds_[buffer]; }
  // The buffer that has the storage's last version; kNoBuffer: none has.
  [[nodiscard]] BufferNumber holder(StorageNumber storage) const noexcept {
    return holders_[storage];
  }
  // The storage's last version, or what was put aside of it; null where it is nowhere.
  [[nodiscard]] Memory* find(StorageNumber storage) noexcept {
    if (const auto kept = kept_.find(storage); kept != kept_.end()) return &kept->second;
    const BufferNumber buffer = holders_[storage];
    return buffer != kNoBuffer && memory_[buffer] ? &memory_[buffer] : nullptr;
  }

  // A storage from outside is there.
  void bind(StorageNumber storage, Memory memory) {
    const BufferNumber buffer = first_of_[storage];
    memory_[buffer] = std::move(memory);
    holds_[buffer] = storage;
    holders_[storage] = buffer;
  }
  // An instruction has put its results into their buffers.
  void note_made(const Instruction& instruction) {
    for (const Instruction::Made& made : instruction.made) {
      const StorageNumber before = std::exchange(holds_[made.buffer], made.storage);
      if (before != kNoStorage && before != made.storage && holders_[before] == made.buffer)
        holders_[before] = kNoBuffer;
      if (made.version < versions_[made.storage]) continue;  // an older one, made again
      versions_[made.storage] = made.version;
      holders_[made.storage] = made.buffer;
    }
  }

  // Whether the bytes that the instruction lets go of, or has written over, may still be asked for:
  // what the schedule has there is not there yet where the step has gone another way.
  template <typename Needed>
  [[nodiscard]] bool would_keep(const Instruction& instruction, const Needed& needed) const {
    const StorageNumber storage = holds_[instruction.buffer];
    if (storage == kNoStorage || holders_[storage] != instruction.buffer) return false;
    const bool recomputed_at = instruction.recomputed_at && storage == instruction.storage;
    // mutant: step-needed
    return !recomputed_at && needed(storage);
  }
  // Puts these bytes aside. Requires would_keep().
  void keep(BufferNumber buffer) {
    const StorageNumber storage = holds_[buffer];
    kept_[storage] = memory_[buffer];
    holders_[storage] = kNoBuffer;
  }
  // Of what was put aside, what nobody asks for any more. O(what was).
  template <typename Needed>
  void drop_kept(const Needed& needed) {
    std::erase_if(kept_, [&](const auto& one) { return !needed(one.first); });
  }

  // The buffer is empty. Returns the storage whose last version it had; kNoStorage: of none.
  StorageNumber drop(BufferNumber buffer) {
    const StorageNumber storage = holds_[buffer];
    const bool last = storage != kNoStorage && holders_[storage] == buffer;
    if (last) holders_[storage] = kNoBuffer;
    memory_[buffer] = {};
    return last ? storage : kNoStorage;
  }

 private:
  const std::vector<BufferNumber>& first_of_;
  std::pmr::vector<Memory> memory_;
  std::pmr::vector<StorageNumber> holds_;           // by buffer
  std::pmr::vector<BufferNumber> holders_;          // by storage
  std::pmr::vector<std::uint32_t> versions_;        // by storage: the highest that was made
  std::unordered_map<StorageNumber, Memory> kept_;  // gone by the schedule, but needed then
};

}  // namespace berth::torch::step
