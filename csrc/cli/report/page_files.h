#pragma once

#include <string_view>

// The files of `page/`, which CMake puts into the program: embed_page.cmake.
namespace berth::cli {

[[nodiscard]] std::string_view page_html() noexcept;
[[nodiscard]] std::string_view page_style() noexcept;
[[nodiscard]] std::string_view page_script() noexcept;  // all of its parts, in order

}  // namespace berth::cli
