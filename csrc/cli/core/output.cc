#include "csrc/cli/core/output.h"

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

// Where print() writes.
int printed_to = STDOUT_FILENO;

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

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    longest = std::max(longest, width_of(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

// A text in lines of at most `width` columns; words that are longer are cut.
std::vector<std::string> broken(const std::string& text, std::size_t width) {
  if (width_of(text) <= width) return {text};
  std::vector<std::string> lines;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    const std::string word = cut(std::string(rest.substr(0, end)), width);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!lines.empty() && width_of(lines.back()) + 1 + width_of(word) <= width) {
      lines.back() += " " + word;
    } else {
      lines.push_back(word);
    }
  }
  return lines;
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

void print_to_standard_error() noexcept { printed_to = STDERR_FILENO; }

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(printed_to, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw Error(ErrorKind::kSystem, fmt::format("cannot write to standard {}: {}",
                                                  printed_to == STDOUT_FILENO ? "output" : "error",
                                                  std::strerror(errno)));
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

std::string format_times(std::uint64_t count) {
  return count == 1 ? "once" : format_count(count) + " times";
}

std::string format_number_of(std::uint64_t count, std::string_view singular) {
  return fmt::format("{} {}{}", format_count(count), singular, count == 1 ? "" : "s");
}

std::string wrap(std::string_view text, std::size_t indent, std::size_t width) {
  width = std::min(width, kLineWidth - std::min(indent, kLineWidth / 2));
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
  // A column without a single cell says nothing.
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (std::ranges::any_of(rows_, [i](const auto& row) { return !row[i].empty(); }))
      shown.push_back(i);
  }
  std::vector<std::size_t> widths(columns_.size());
  const auto total = [&] {
    std::size_t sum = indent_;
    for (const std::size_t i : shown) sum += widths[i] + (i == shown.front() ? 0 : 2);
    return sum;
  };
  // As wide as the cells, and as the title or at least its longest word.
  const auto fit = [&](bool whole_titles) {
    for (const std::size_t i : shown) {
      widths[i] = whole_titles ? width_of(columns_[i].title) : longest_word(columns_[i].title);
      for (const auto& row : rows_) widths[i] = std::max(widths[i], width_of(row[i]));
    }
  };
  fit(true);
  if (total() > kLineWidth) fit(false);
  for (std::size_t over = total(); over > kLineWidth; over = total()) {  // the widest text gives
    constexpr std::size_t kLeast = 12;
    std::size_t* widest = nullptr;
    for (const std::size_t i : shown) {
      if (columns_[i].align == Align::kLeft && widths[i] > kLeast &&
          (widest == nullptr || widths[i] > *widest))
        widest = &widths[i];
    }
    if (widest == nullptr) break;
    *widest = std::max(kLeast, *widest - std::min(*widest, over - kLineWidth));
  }

  std::string text;
  // A title of fewer lines than others stands right above its column.
  const auto add_row = [&](const auto& cell_of, bool titles) {
    std::vector<std::vector<std::string>> cells;
    std::size_t lines = 1;
    for (const std::size_t i : shown) {
      const bool breaks = titles || columns_[i].align == Align::kLeft;
      cells.push_back(breaks ? broken(cell_of(i), widths[i]) : std::vector{cell_of(i)});
      lines = std::max(lines, cells.back().size());
    }
    for (std::size_t line = 0; line < lines; ++line) {
      std::string made(indent_, ' ');
      for (std::size_t k = 0; k < shown.size(); ++k) {
        const std::size_t skipped = titles ? lines - cells[k].size() : 0;
        const bool there = line >= skipped && line - skipped < cells[k].size();
        const std::string cell = there ? cells[k][line - skipped] : std::string();
        const std::size_t width = widths[shown[k]];
        const std::string padding(width - std::min(width, width_of(cell)), ' ');
        if (k != 0) made += "  ";
        made += columns_[shown[k]].align == Align::kLeft ? cell + padding : padding + cell;
      }
      made.erase(made.find_last_not_of(' ') + 1);
      text += made + "\n";
    }
  };
  add_row([&](std::size_t i) { return columns_[i].title; }, true);
  for (const auto& row : rows_) add_row([&](std::size_t i) { return row[i]; }, false);
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
