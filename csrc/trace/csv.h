#pragma once

#include "csrc/core/bytes.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace berth::csv {

// The rows of a CSV text without quoting, one after the other. Lines may end in CR LF; blank lines
// may follow the last row. Trusts nothing: throws Error(kInput) that names file and line.
class Rows {
 public:
  static constexpr std::size_t kMaxFields = 8;

  Rows(std::string_view text, const std::string& name);

  // Moves to the next row; false after the last.
  [[nodiscard]] bool next();

  // Of the current row. Lines count from 1.
  [[nodiscard]] std::size_t line() const noexcept { return line_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view operator[](std::size_t index) const { return fields_[index]; }
  [[nodiscard]] std::string_view whole() const noexcept { return row_; }

  // The number in a field, at most `limit`; `what` names it in the error.
  [[nodiscard]] std::uint64_t number(std::size_t index, std::string_view what,
                                     std::uint64_t limit) const;

  [[noreturn]] void fail(std::string_view problem) const;

 private:
  std::string_view rest_;
  const std::string& name_;
  std::string_view row_;
  std::array<std::string_view, kMaxFields> fields_;
  std::size_t size_ = 0;
  std::size_t line_ = 0;
};

// A field as it may be printed: short, without control characters.
[[nodiscard]] std::string printable(std::string_view field);

}  // namespace berth::csv
