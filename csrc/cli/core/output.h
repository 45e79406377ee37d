#pragma once

#include "csrc/core/bytes.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace berth::cli {

// Columns of a terminal that help and tables fit.
inline constexpr std::size_t kLineWidth = 80;

using Json = nlohmann::ordered_json;

// Opens what of the three standard streams is closed, so that no file of ours is taken for one of
// them: writing to a closed standard output fails as it should.
void guard_standard_streams() noexcept;

// From now on print() writes to standard error: standard output takes a file of the command.
void print_to_standard_error() noexcept;

// Writes to standard output, whole and at once. Throws Error(kSystem) where it is full or closed.
void print(std::string_view text);
// The same of one JSON object; texts that are no UTF-8 are mended.
void print_json(const Json& json);

// `berth: error: TEXT` and `berth: TEXT` on standard error. Never throw.
void print_error(std::string_view text) noexcept;
void print_note(std::string_view text) noexcept;

// A text from a file, safe for a terminal: control characters are replaced.
[[nodiscard]] std::string printable(std::string_view text);

// 1234567 -> "1,234,567".
[[nodiscard]] std::string format_count(std::uint64_t count);
// Of nothing: 0.
[[nodiscard]] double share(std::uint64_t part, std::uint64_t all);
// 0.0123 -> "1.23 %".
[[nodiscard]] std::string format_percent(double ratio);
// 1536 -> "1.5 KiB (1,536 bytes)".
[[nodiscard]] std::string format_exactly(Bytes size);
// "1 step", "2 steps".
[[nodiscard]] std::string format_number_of(std::uint64_t count, std::string_view singular);
// "once", "3 times".
[[nodiscard]] std::string format_times(std::uint64_t count);
// A text in lines of at most `width` bytes, and of kLineWidth with the indent, broken at spaces;
// the first line follows on what is there, as wide as the indent, the others are indented.
[[nodiscard]] std::string wrap(std::string_view text, std::size_t indent, std::size_t width);

// "12.345 ms".
[[nodiscard]] std::string format_ms(std::uint64_t ns);

// Columns of text with a header; numbers stand right. Where it is wider than kLineWidth, titles
// take several lines, then columns of text do, the widest first. A word that has no room is cut.
class Table {
 public:
  enum class Align : std::uint8_t { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kRight;
  };

  explicit Table(std::vector<Column> columns, std::size_t indent = 2)
      : columns_(std::move(columns)), indent_(indent) {}

  // One cell a column. Requires cells.size() == number of columns.
  void add(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::size_t indent_;
};

// One line on standard error that is written over and over. Silent where that is no terminal; gone
// at the end of its scope.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  [[nodiscard]] bool shown() const noexcept { return terminal_; }
  void show(const std::string& text) noexcept;

 private:
  bool terminal_ = false;
  bool dirty_ = false;
};

}  // namespace berth::cli
