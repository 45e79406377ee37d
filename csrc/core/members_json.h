#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace berth {

// Appends what for_each_member() gives of `of`, numbers and texts, to a JSON object: `before` the
// first name, `between` a value and the next name. By hand: where memory runs out, a JSON value
// that goes asks for some.
template <class Of>
void append_members(std::string& all, const Of& of, const char* before, const char* between) {
  const auto key = [&](const char* name) {
    all += std::exchange(before, between);
    all += name;
    all += "\": ";
  };
  for_each_member(
      of,
      [&](const char* name, std::uint64_t value) {
        key(name);
        const fmt::format_int digits(value);
        all.append(digits.data(), digits.size());
      },
      [&](const char* name, std::string_view value) {
        key(name);
        all += '"';
        for (const char letter : value) {
          if (letter == '"' || letter == '\\') all += '\\';
          all += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
        }
        all += '"';
      });
}

}  // namespace berth
