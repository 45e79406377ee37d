#include "csrc/torch/step/ghost_storage.h"

#include "csrc/torch/step/denied_bytes.h"
#include "csrc/torch/step/spills.h"

#include <cstring>
#include <utility>

namespace berth::torch::step {

namespace {

const Denial& no_bytes() {
  static const Denial why(
      "inside of a step that berth runs by a schedule: they are not there before the step has "
      "ended. Read them after it, or by an operator such as item()");
  return why;
}

}  // namespace

c10::Storage make_ghost_storage(const RecordedStorage& like) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(like.bytes),
                       c10::DataPtr(nullptr, like.device), like.allocator, true);
  deny_bytes(*storage.unsafeGetStorageImpl(), no_bytes());
  return storage;
}

bool has_bytes(c10::StorageImpl& storage) {
  return storage._mutable_data_ptr_no_checks().get() != nullptr || Spills::away(storage);
}

void take_bytes_back(c10::StorageImpl& ghost) {
  ghost.set_data_ptr_noswap(c10::DataPtr(nullptr, ghost.device()));
  deny_bytes(ghost, no_bytes());
}

namespace {

// Whether the storage has bytes already: then they are those of `real`.
bool fill(const c10::Storage& real, c10::StorageImpl& ghost) {
  const Spills::Use there(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&ghost)));
  allow_bytes(ghost);
  if (ghost.data() == nullptr) return false;
  if (ghost.data() == real.data()) return true;
  if (ghost.allocator() != nullptr)
    ghost.allocator()->copy_data(ghost.mutable_data(), real.data(), ghost.nbytes());
  else  // the body has moved it into shared memory
    std::memcpy(ghost.mutable_data(), real.data(), ghost.nbytes());
  return true;
}

}  // namespace

void share_bytes(const c10::Storage& real, c10::StorageImpl& ghost) {
  if (real.unsafeGetStorageImpl() == &ghost) return;
  const Spills::Use there(real);
  if (fill(real, ghost)) return;
  ghost.set_data_ptr(c10::DataPtr(
      real.mutable_data(), new Spills::Hold(real),
      [](void* one) { delete static_cast<Spills::Hold*>(one); }, real.device()));
}

c10::Storage take_apart(const c10::Storage& storage) {
  const Spills::Use there(storage);
  Spills::get().forget_copy_of(*storage.unsafeGetStorageImpl());
  c10::Storage real(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    storage.set_data_ptr(c10::DataPtr(nullptr, storage.device())),
                    storage.allocator(), true);
  Spills::get().pair(real, *storage.unsafeGetStorageImpl());
  return real;
}

void move_bytes(c10::Storage& real, c10::StorageImpl& ghost) {
  if (real.unsafeGetStorageImpl() == &ghost) return;
  if (Spills::on() && Spills::get().move(*real.unsafeGetStorageImpl(), ghost)) return;
  const Spills::Use there(real);
  if (fill(real, ghost) && ghost.data() != real.data()) return;
  ghost.set_data_ptr(real.set_data_ptr(c10::DataPtr(nullptr, real.device())));
  Spills::get().see(ghost);
}

}  // namespace berth::torch::step
