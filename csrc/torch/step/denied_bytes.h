#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

// Storages whose bytes are elsewhere: who asks for them by a pointer gets an error.
namespace berth::torch::step {

// From now on who asks the storage for its bytes gets a c10::Error. `why` ends the sentence "the
// bytes of a tensor were asked for behind libtorch's operators ".
void deny_bytes(c10::StorageImpl& storage, const char* why);
// No longer.
void allow_bytes(c10::StorageImpl& storage);
// Whether that is what was thrown.
[[nodiscard]] bool asks_for_bytes(const c10::Error& error);

}  // namespace berth::torch::step
