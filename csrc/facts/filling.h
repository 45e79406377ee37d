#pragma once

#include <string_view>

namespace berth::facts {

// Writes all of its first argument, of which it reads nothing: a copy, a fill, or a draw in place.
// The name is libtorch's, with or without the overload behind a dot.
[[nodiscard]] constexpr bool fills_in_place(std::string_view name, bool random) noexcept {
  name = name.substr(0, name.find('.'));
  return name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_" ||
         (random && name.ends_with('_'));
}

}  // namespace berth::facts
