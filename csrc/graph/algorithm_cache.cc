#include "csrc/graph/algorithm_cache.h"

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/core/checksum.h"
#include "csrc/core/file.h"

#include <berth/warnings.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace berth::graph {

namespace {

constexpr std::string_view kFirstLine = "berth algorithms 1\n";
constexpr std::uint64_t kMaxProfileNs = std::uint64_t{1} << 50;  // 13 days

using Profiles = std::vector<std::pair<std::string, AlgorithmProfile>>;

bool is_key(std::string_view key) {
  return !key.empty() && key.size() <= AlgorithmCache::kMaxKey &&
         std::none_of(key.begin(), key.end(), [](char c) {
           return static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~';
         });
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= AlgorithmCache::kMaxName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view(":=;|-._+").find(c) != std::string_view::npos;
         });
}

// What is before the first `separator`, which is taken away with it; all where there is none.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view first = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return first;
}

class Line {
 public:
  Line(std::string_view text, const std::string& file, std::size_t number)
      : text_(text), file_(file), number_(number) {}

  std::pair<std::string, AlgorithmProfile> parse() {
    const std::string_view key = cut(text_, '\t');
    check(is_key(key), "a key of at most 1024 printable characters is wanted");
    AlgorithmProfile profile;
    profile.ns = number(cut(text_, '\t'), kMaxProfileNs);
    while (!text_.empty()) {
      check(profile.algorithms.size() < AlgorithmCache::kMaxAlgorithms, "more than 63 algorithms");
      std::string_view field = cut(text_, '\t');
      Algorithm& algorithm = profile.algorithms.emplace_back();
      const std::string_view name = cut(field, ',');
      check(is_name(name), "an algorithm's name is none");
      algorithm.name = name;
      algorithm.ns = number(cut(field, ','), kMaxProfileNs);
      algorithm.workspace = number(cut(field, ','), kMaxBytes);
      check(field == "0" || field == "1", "whether its bits are the same is neither 0 nor 1");
      algorithm.same_bits = field == "1";
    }
    return {std::string(key), std::move(profile)};
  }

 private:
  void check(bool holds, std::string_view wrong) const {
    BERTH_CHECK(holds, kInput, "{}: line {}: {}", file_, number_, wrong);
  }
  std::uint64_t number(std::string_view digits, std::uint64_t most) const {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    check(error == std::errc() && end == digits.data() + digits.size() && value <= most,
          "a number is none, or too large");
    return value;
  }

  std::string_view text_;
  const std::string& file_;
  const std::size_t number_;
};

std::uint64_t sum_of(std::string_view text) {
  return checksum(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

Profiles parse_algorithms(std::span<const std::byte> file, const std::string& name) {
  BERTH_CHECK(file.size() <= AlgorithmCache::kMaxFileBytes, kInput,
              "{}: {} are more than the {} that a file of algorithms may have", name,
              format_bytes(file.size()), format_bytes(AlgorithmCache::kMaxFileBytes));
  std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  BERTH_CHECK(text.starts_with(kFirstLine), kInput, "{} is no file of algorithms of this berth",
              name);
  text.remove_prefix(kFirstLine.size());
  const std::string_view sum = cut(text, '\n');
  BERTH_CHECK(sum == fmt::format("{:016x}", sum_of(text)), kInput,
              "{} is damaged: its checksum is another", name);
  Profiles profiles;
  for (std::size_t number = 3; !text.empty(); ++number) {
    BERTH_CHECK(profiles.size() < AlgorithmCache::kMaxProfiles, kInput, "{}: more than {} profiles",
                name, AlgorithmCache::kMaxProfiles);
    BERTH_CHECK(text.find('\n') != std::string_view::npos, kInput, "{}: the last line has no end",
                name);
    profiles.push_back(Line(cut(text, '\n'), name, number).parse());
  }
  return profiles;
}

std::string write_algorithms(std::span<const std::pair<std::string, AlgorithmProfile>> profiles) {
  std::string rest;
  for (const auto& [key, profile] : profiles) {
    rest += fmt::format("{}\t{}", key, profile.ns);
    for (const Algorithm& one : profile.algorithms)
      rest += fmt::format("\t{},{},{},{:d}", one.name, one.ns, one.workspace, one.same_bits);
    rest += '\n';
  }
  return fmt::format("{}{:016x}\n{}", kFirstLine, sum_of(rest), rest);
}

AlgorithmCache::AlgorithmCache(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  try {
    if (!is_there(path_)) return;
    for (auto& [key, profile] : parse_algorithms(read_file(path_, kMaxFileBytes), path_))
      put(std::move(key), std::move(profile));
  } catch (const Error& error) {
    profiles_.clear();
    by_key_.clear();
    warn("algorithms-file",
         fmt::format("{}: algorithms are measured again, and the file is replaced", error.what()));
  }
}

void AlgorithmCache::put(std::string key, AlgorithmProfile profile) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    profiles_.erase(found->second);
    by_key_.erase(found);
  }
  profiles_.push_back({std::move(key), std::move(profile)});
  by_key_.emplace(profiles_.back().key, std::prev(profiles_.end()));
  if (profiles_.size() > kMaxProfiles) {
    by_key_.erase(profiles_.front().key);
    profiles_.pop_front();
  }
}

const AlgorithmProfile* AlgorithmCache::find(std::string_view key) const {
  const auto found = by_key_.find(std::string(key));
  return found == by_key_.end() ? nullptr : &found->second->profile;
}

void AlgorithmCache::add(const std::string& key, AlgorithmProfile profile) {
  BERTH_CHECK(is_key(key), kUsage, "'{}' is no key of algorithms", key);
  std::erase_if(profile.algorithms, [](const Algorithm& one) { return !is_name(one.name); });
  if (profile.algorithms.size() > kMaxAlgorithms) profile.algorithms.resize(kMaxAlgorithms);
  profile.ns = std::min(profile.ns, kMaxProfileNs);
  for (Algorithm& one : profile.algorithms) one.ns = std::min(one.ns, kMaxProfileNs);
  put(key, std::move(profile));
  profiles_.back().added = true;
}

void AlgorithmCache::save() {
  const auto added = [](const Entry& one) { return one.added; };
  if (path_.empty() || failed_ || std::none_of(profiles_.begin(), profiles_.end(), added)) return;
  try {
    // What others have written meanwhile stays.
    AlgorithmCache now;
    if (is_there(path_)) {
      try {
        for (auto& [key, profile] : parse_algorithms(read_file(path_, kMaxFileBytes), path_))
          now.put(std::move(key), std::move(profile));
      } catch (const Error&) {  // said when it was read, or damaged since: replaced
      }
    }
    for (Entry& one : profiles_)
      if (one.added) now.put(one.key, one.profile);
    Profiles all;
    for (const Entry& one : now.profiles_) all.emplace_back(one.key, one.profile);
    std::string text = write_algorithms(all);
    while (text.size() > kMaxFileBytes) {
      all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2 + 1));
      text = write_algorithms(all);
    }
    write_file_atomically(path_, std::as_bytes(std::span(text.data(), text.size())));
    for (Entry& one : profiles_) one.added = false;
  } catch (const Error& error) {
    failed_ = true;
    warn("algorithms-file", fmt::format("what was measured of algorithms is kept for this process "
                                        "only: {}",
                                        error.what()));
  }
}

}  // namespace berth::graph
