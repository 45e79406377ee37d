#pragma once

#include <string_view>

namespace berth::trace {

// Whether an operator of this name only makes room, so that another one makes the content: it says
// nothing about who needs the memory.
[[nodiscard]] inline bool only_allocates(std::string_view name) noexcept {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
         name.starts_with("aten::resize");
}

}  // namespace berth::trace
