#pragma once

#include <berth/bytes.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace berth::graph {

// One algorithm that a library has for an operator of some shape.
struct Algorithm {
  std::string name;  // by which the library finds it again: letters, digits and ":=;|-._+"
  std::uint64_t ns = 0;
  Bytes workspace = 0;
  bool same_bits = false;  // gave what the operator itself gives
  friend bool operator==(const Algorithm&, const Algorithm&) = default;
};

// What was measured of an operator of some shape: by itself, and by each algorithm.
struct AlgorithmProfile {
  std::uint64_t ns = 0;
  std::vector<Algorithm> algorithms;
  friend bool operator==(const AlgorithmProfile&, const AlgorithmProfile&) = default;
};

// What has been measured of algorithms, by device, version of the library and shape, so that it is
// measured once. In a file where one is named, so that later processes need not either: a first
// line, a checksum of the rest, and a line a profile, the oldest first. The file is replaced as a
// whole: after a crash it is the old one or the new one. Of several processes each adds to what is
// there. Trusts nothing of the file. Not thread-safe.
class AlgorithmCache {
 public:
  static constexpr std::size_t kMaxProfiles = 4096;  // the oldest go
  static constexpr std::size_t kMaxAlgorithms = 63;  // of one profile
  static constexpr std::size_t kMaxName = 512, kMaxKey = 1024;
  static constexpr Bytes kMaxFileBytes = Bytes{32} << 20;

  // In memory alone where `path` is empty. Reads the file where it is there; where it is damaged
  // or cannot be read, warns once ("algorithms-file") and begins without.
  explicit AlgorithmCache(std::string path = {});

  [[nodiscard]] const AlgorithmProfile* find(std::string_view key) const;
  // The key has no tab and no line end, and kMaxKey characters at most; a profile above the limits
  // is cut. Replaces one of the same key.
  void add(const std::string& key, AlgorithmProfile profile);
  // Writes what was added since the last time, if anything. Where that fails, warns once.
  void save();

  [[nodiscard]] std::size_t size() const noexcept { return profiles_.size(); }

 private:
  void put(std::string key, AlgorithmProfile profile);

  struct Entry {
    std::string key;
    AlgorithmProfile profile;
    bool added = false;
  };
  std::string path_;
  std::list<Entry> profiles_;  // the oldest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  bool failed_ = false;  // to write
};

// A file's profiles, in its order. Throws Error(kInput) naming `name` and what is wrong.
[[nodiscard]] std::vector<std::pair<std::string, AlgorithmProfile>> parse_algorithms(
    std::span<const std::byte> file, const std::string& name);
[[nodiscard]] std::string write_algorithms(
    std::span<const std::pair<std::string, AlgorithmProfile>> profiles);

}  // namespace berth::graph
