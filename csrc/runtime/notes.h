#pragma once

#include <berth/warnings.h>

#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth {

// Warnings that came up under the lock; they go out when it is free. Where host memory is short a
// warning is lost, and no more.
class Notes {
 public:
  ~Notes() {
    for (const auto& [name, text] : notes_) warn(name, text);
  }
  // `text()` is what is said.
  template <class Text>
  void add(std::string_view name, const Text& text) noexcept {
    try {
      notes_.emplace_back(name, text());
    } catch (const std::bad_alloc&) {
    }
  }

 private:
  std::vector<std::pair<std::string_view, std::string>> notes_;
};

}  // namespace berth
