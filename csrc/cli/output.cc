#include "csrc/cli/output.h"

#include "csrc/core/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace berth::cli {
namespace {

constexpr std::size_t kLineWidth = 100;

// Columns that a text takes on a terminal: code points of UTF-8.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The first `width` columns of a text, the last of them an ellipsis where it was longer.
std::string cut(const std::string& text, std::size_t width) {
  if (width_of(text) <= width) return text;
  std::string kept;
  std::size_t columns = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80 && ++columns == width) break;
    kept += c;
  }
  return kept + "…";
}

void write_line(std::string_view start, std::string_view text) noexcept {
  try {
    const std::string line = fmt::format("{}{}\n", start, printable(text));
    std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (const std::exception&) {
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
}

}  // namespace

void guard_standard_streams() noexcept {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one. Input is at its end, output refuses every write.
    if (::open("/dev/null", fd == 0 ? O_RDONLY : (fd == 1 ? O_RDONLY : O_WRONLY)) != fd) return;
  }
}

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw Error(ErrorKind::kSystem,
                  fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void print_json(const Json& json) {
  print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_error(std::string_view text) noexcept { write_line("berth: error: ", text); }
void print_note(std::string_view text) noexcept { write_line("berth: ", text); }

std::string printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7F) c = '?';
  }
  return clean;
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t end = digits.size(); end > 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

double share(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

std::string format_percent(double ratio) { return fmt::format("{:.2f} %", ratio * 100); }

std::string format_exactly(Bytes size) {
  if (size < 1024) return fmt::format("{} bytes", size);
  return fmt::format("{} ({} bytes)", format_bytes(size), format_count(size));
}

std::string format_number_of(std::uint64_t count, std::string_view singular) {
  return fmt::format("{} {}{}", format_count(count), singular, count == 1 ? "" : "s");
}

std::string wrap(std::string_view text, std::size_t indent, std::size_t width) {
  std::string wrapped;
  while (!text.empty()) {
    std::size_t end = text.size() <= width ? text.size() : text.rfind(' ', width);
    if (end == std::string_view::npos || end == 0) end = std::min(text.size(), width);
    if (!wrapped.empty()) wrapped += std::string(indent, ' ');
    wrapped += text.substr(0, end);
    wrapped += '\n';
    text.remove_prefix(end);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return wrapped;
}

void Table::add(std::vector<std::string> cells) {
  BERTH_ASSERT(cells.size() == columns_.size(), "{} cells, {} columns", cells.size(),
               columns_.size());
  for (std::string& cell : cells) {
    cell = printable(cell);
    std::replace(cell.begin(), cell.end(), '\n', ' ');
  }
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.title));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::size_t total = indent_ + 2 * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  if (total > kLineWidth) {  // the widest column of text gives
    constexpr std::size_t kLeast = 12;
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (columns_[i].align == Align::kLeft && (widest == nullptr || widths[i] > *widest))
        widest = &widths[i];
    }
    if (widest != nullptr && *widest > kLeast)
      *widest = std::max(kLeast, *widest - std::min(*widest, total - kLineWidth));
  }

  // A column without a single cell says nothing.
  std::vector<bool> filled(columns_.size(), false);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) filled[i] = filled[i] || !row[i].empty();
  }

  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line(indent_, ' ');
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (!filled[i]) continue;
      const std::string cell = cut(cell_of(i), widths[i]);
      const std::string padding(widths[i] - width_of(cell), ' ');
      if (line.size() > indent_) line += "  ";
      line += columns_[i].align == Align::kLeft ? cell + padding : padding + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](std::size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](std::size_t i) { return row[i]; });
  return text;
}

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (dirty_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::show(const std::string& text) noexcept {
  if (!terminal_) return;
  std::size_t columns = kLineWidth;
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) columns = size.ws_col;
  // A full line would wrap, and the next one be written below it.
  const std::string line = text.substr(0, columns - 1);
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  dirty_ = true;
}

std::string format_ms(std::uint64_t ns) {
  return fmt::format("{:.3f} ms", static_cast<double>(ns) / 1e6);
}

}  // namespace berth::cli
