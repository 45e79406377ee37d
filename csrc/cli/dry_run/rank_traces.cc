#include "csrc/cli/dry_run/rank_traces.h"

#include "csrc/core/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

namespace berth::cli {
namespace {

namespace fs = std::filesystem;

// The folder of a name, without those parts that hold a brace.
fs::path folder_of(const std::string& name) {
  fs::path folder = fs::path(name).parent_path();
  while (folder.string().find('{') != std::string::npos) folder = folder.parent_path();
  return folder;
}

std::string prefix() { return fmt::format(".berth-dry-run-{}-", ::getpid()); }

template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::string expanded(std::string name, const RankTraces::File& file) {
  const auto put = [&](std::string_view word, const std::string& value) {
    for (std::size_t at = 0; (at = name.find(word, at)) != std::string::npos; at += value.size())
      name.replace(at, word.size(), value);
  };
  put("{rank}", std::to_string(file.rank));
  put("{device}", std::to_string(file.device));
  put("{pid}", std::to_string(file.pid));
  return name;
}

std::string before_extension(const std::string& name, const std::string& text) {
  const fs::path path = name;
  return (path.parent_path() / path.stem()).string() + text + path.extension().string();
}

}  // namespace

std::string RankTraces::written_to() const {
  return (folder_of(name_) / (prefix() + "{rank}-{device}-{pid}.trace")).string();
}

std::vector<std::string> RankTraces::names(const std::string& name,
                                           const std::vector<File>& files) {
  std::vector<std::string> names;
  for (const File& file : files) names.push_back(expanded(name, file));
  // Adds to those names that several have.
  const auto tell_apart = [&](const auto& text) {
    std::map<std::string, std::size_t> uses;
    for (const std::string& one : names) ++uses[one];
    for (std::size_t i = 0; i < files.size(); ++i)
      if (uses[names[i]] > 1) names[i] = before_extension(names[i], text(files[i]));
  };
  tell_apart([](const File& file) { return fmt::format("-{}-{}", file.rank, file.device); });
  tell_apart([](const File& file) { return fmt::format("-{}", file.pid); });
  return names;
}

std::vector<RankTraces::File> RankTraces::written() const {
  std::vector<File> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(name_), ignored)) {
    const std::string name = entry.path().filename().string();
    std::string_view rest = name;
    File file{.path = entry.path().string()};
    if (take_word(rest, prefix()) && take_number(rest, file.rank) && take_word(rest, "-") &&
        take_number(rest, file.device) && take_word(rest, "-") && take_number(rest, file.pid) &&
        rest == ".trace")
      files.push_back(std::move(file));
  }
  std::ranges::sort(files, {},
                    [](const File& file) { return std::tuple(file.rank, file.device, file.pid); });
  return files;
}

Bytes RankTraces::largest() const {
  Bytes most = 0;
  std::error_code error;
  for (const File& file : written()) {
    const std::uintmax_t size = fs::file_size(file.path, error);
    if (!error) most = std::max<Bytes>(most, size);
  }
  return most;
}

std::vector<RankTraces::File> RankTraces::take() const {
  std::vector<File> files = written();
  const std::vector<std::string> to = names(name_, files);
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::error_code error;
    fs::rename(files[i].path, to[i], error);
    BERTH_CHECK(!error, kSystem, "cannot write '{}': {}", to[i], error.message());
    files[i].path = to[i];
  }
  return files;
}

RankTraces::~RankTraces() {
  std::error_code ignored;
  for (const File& file : written()) fs::remove(file.path, ignored);
}

}  // namespace berth::cli
