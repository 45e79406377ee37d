#include "csrc/torch/step/ghost_storage.h"

#include <string>
#include <utility>

namespace berth::torch::step {

namespace {

// libtorch can make a storage throw where its bytes are asked for, but has no way back. An explicit
// instantiation may name a private member.
template <bool c10::StorageImpl::*member>
struct Flag {
  friend bool c10::StorageImpl::*throws_on_access() { return member; }
};
bool c10::StorageImpl::*throws_on_access();
template struct Flag<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

}  // namespace

namespace {

constexpr const char* kNoBytes =
    "the bytes of a tensor were asked for inside of a step that berth runs by a schedule, behind "
    "libtorch's operators: they are not there before the step has ended. Read them after it, or "
    "by an operator such as item()";

void deny_bytes(c10::StorageImpl& ghost) {
  ghost.release_data_and_set_meta_custom_data_ptr_error_msg_(kNoBytes);
}

}  // namespace

c10::Storage make_ghost_storage(const RecordedStorage& like) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(like.bytes),
                       c10::DataPtr(nullptr, like.device), like.allocator, true);
  deny_bytes(*storage.unsafeGetStorageImpl());
  return storage;
}

bool asks_for_bytes(const c10::Error& error) {
  return error.msg().find(kNoBytes) != std::string::npos;
}

bool has_bytes(c10::StorageImpl& storage) {
  return storage._mutable_data_ptr_no_checks().get() != nullptr;
}

void take_bytes_back(c10::StorageImpl& ghost) {
  ghost.set_data_ptr_noswap(c10::DataPtr(nullptr, ghost.device()));
  deny_bytes(ghost);
}

namespace {

// Whether the storage has bytes already: then they are those of `real`.
bool fill(const c10::Storage& real, c10::StorageImpl& ghost) {
  ghost.*throws_on_access() = false;
  if (ghost.data() == nullptr) return false;
  if (ghost.data() != real.data())
    ghost.allocator()->copy_data(ghost.mutable_data(), real.data(), ghost.nbytes());
  return true;
}

}  // namespace

void share_bytes(const c10::Storage& real, c10::StorageImpl& ghost) {
  if (real.unsafeGetStorageImpl() == &ghost || fill(real, ghost)) return;
  auto* const shared = new c10::Storage(real);
  ghost.set_data_ptr(c10::DataPtr(
      real.mutable_data(), shared, [](void* one) { delete static_cast<c10::Storage*>(one); },
      real.device()));
}

void move_bytes(c10::Storage& real, c10::StorageImpl& ghost) {
  if (real.unsafeGetStorageImpl() == &ghost) return;
  if (fill(real, ghost) && ghost.data() != real.data()) return;
  ghost.set_data_ptr(real.set_data_ptr(c10::DataPtr(nullptr, real.device())));
}

}  // namespace berth::torch::step
