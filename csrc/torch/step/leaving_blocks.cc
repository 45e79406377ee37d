#include "csrc/torch/step/leaving_blocks.h"

#include "csrc/core/setup_mutex.h"

#include <mutex>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

SetupMutex mutex;  // of the blocks, too

std::vector<std::weak_ptr<LeavingBlock>>& all_blocks() {
  static auto& all = *new std::vector<std::weak_ptr<LeavingBlock>>;
  return all;
}

// Under the mutex: whoever lets go of the result frees the memory.
c10::Storage take(LeavingBlock& block) {
  if (block.storage) block.copied->block(block.stream);
  return std::exchange(block.storage, {});
}

}  // namespace

std::shared_ptr<LeavingBlock> note_leaving(LeavingBlock block) {
  auto noted = std::make_shared<LeavingBlock>(std::move(block));
  const std::lock_guard lock(mutex);
  std::vector<std::weak_ptr<LeavingBlock>>& all = all_blocks();
  if (all.size() == all.capacity())
    std::erase_if(all, [](const std::weak_ptr<LeavingBlock>& one) { return one.expired(); });
  all.push_back(noted);
  return noted;
}

void end(LeavingBlock& block) {
  c10::Storage gone;  // behind the lock
  const std::lock_guard lock(mutex);
  gone = take(block);
}

Bytes end_all_leaving(c10::Device device) {
  std::vector<c10::Storage> gone;  // behind the lock
  Bytes bytes = 0;
  const std::lock_guard lock(mutex);
  for (const std::weak_ptr<LeavingBlock>& one : all_blocks()) {
    const std::shared_ptr<LeavingBlock> block = one.lock();
    if (block == nullptr || !block->storage || block->storage.device() != device) continue;
    bytes += block->storage.nbytes();
    gone.push_back(take(*block));
  }
  return bytes;
}

}  // namespace berth::torch::step
