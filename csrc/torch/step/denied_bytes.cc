#include "csrc/torch/step/denied_bytes.h"

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

constexpr const char* kAsked = "the bytes of a tensor were accessed behind libtorch's operators ";

}  // namespace

Denial::Denial(const char* why) : text_(std::string(kAsked) + why) {}

void deny_bytes(c10::StorageImpl& storage, const Denial& why) {
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(why.text());
}

bool denies_bytes(const c10::StorageImpl& storage) { return storage.*throws_on_access(); }
void allow_bytes(c10::StorageImpl& storage) { storage.*throws_on_access() = false; }
void deny_bytes_again(c10::StorageImpl& storage) { storage.*throws_on_access() = true; }

bool asks_for_bytes(const c10::Error& error) {
  return error.msg().find(kAsked) != std::string::npos;
}

}  // namespace berth::torch::step
