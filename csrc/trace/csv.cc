#include "csrc/trace/csv.h"

#include "csrc/core/check.h"

#include <charconv>

namespace berth::csv {

Rows::Rows(std::string_view text, const std::string& name) : rest_(text), name_(name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

bool Rows::next() {
  if (rest_.empty()) return false;
  ++line_;
  const std::size_t end = rest_.find('\n');
  row_ = rest_.substr(0, end);
  rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
  if (row_.ends_with('\r')) row_.remove_suffix(1);
  if (row_.empty()) {
    if (rest_.find_first_not_of("\r\n") != std::string_view::npos) fail("is empty");
    rest_ = {};
    return false;
  }
  size_ = 0;
  for (std::size_t begin = 0; begin <= row_.size();) {
    const std::size_t comma = std::min(row_.find(',', begin), row_.size());
    if (size_ == kMaxFields) fail(fmt::format("has more than {} fields", kMaxFields));
    fields_[size_++] = row_.substr(begin, comma - begin);
    begin = comma + 1;
  }
  return true;
}

std::uint64_t Rows::number(std::size_t index, std::string_view what, std::uint64_t limit) const {
  const std::string_view field = fields_[index];
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  const bool whole = end == field.data() + field.size() && !field.empty();
  if (whole && (error == std::errc::result_out_of_range || (error == std::errc() && value > limit)))
    fail(fmt::format("has {} {}, the limit is {}", what, printable(field), limit));
  if (!whole || error != std::errc())
    fail(fmt::format("has {} '{}', which is no whole number from 0 on", what, printable(field)));
  return value;
}

void Rows::fail(std::string_view problem) const {
  throw Error(ErrorKind::kInput, fmt::format("'{}' line {} {}", name_, line_, problem));
}

std::string printable(std::string_view field) {
  constexpr std::size_t kLongest = 40;
  std::string text(field.substr(0, kLongest));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (field.size() > kLongest) text += "...";
  return text;
}

}  // namespace berth::csv
