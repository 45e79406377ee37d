#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <string>

// Storages whose bytes are elsewhere: who asks for them by a pointer gets an error.
namespace berth::torch::step {

// Why, as one text, which each storage gets a copy of.
class Denial {
 public:
  // `why` ends the sentence "the bytes of a tensor were accessed behind libtorch's operators ".
  explicit Denial(const char* why);
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

// From now on who asks the storage for its bytes gets a c10::Error.
void deny_bytes(c10::StorageImpl& storage, const Denial& why);
[[nodiscard]] bool denies_bytes(const c10::StorageImpl& storage);
// No longer; and again, for the reason that it has.
void allow_bytes(c10::StorageImpl& storage);
void deny_bytes_again(c10::StorageImpl& storage);
// Whether that is what was thrown.
[[nodiscard]] bool asks_for_bytes(const c10::Error& error);

}  // namespace berth::torch::step
