#include "csrc/graph/algorithm_cache.h"

#include "csrc/core/file.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/warnings.h"

#include <berth/error.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace berth::graph {
namespace {

using test::TemporaryFolder;
using test::Warnings;

const AlgorithmProfile kProfile = {
    .ns = 70'000,
    .algorithms = {{.name = "4:0=1;12=2|7", .ns = 50'000, .workspace = 1 << 20, .same_bits = false},
                   {.name = "1|7", .ns = 90'000, .workspace = 0, .same_bits = true}}};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void write(const std::string& path, const std::string& text) {
  write_file_atomically(path, bytes_of(text));
}

std::string text_of(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path, AlgorithmCache::kMaxFileBytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_algorithms(bytes_of(text), "x");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return {};
}

TEST_CASE("What was measured of algorithms is there in the next process", "[graph][algorithms]") {
  const TemporaryFolder folder;
  const Warnings warnings;
  {
    AlgorithmCache cache(folder / "algorithms");
    REQUIRE(cache.find("GPU|cuDNN 91900|forward") == nullptr);
    cache.add("GPU|cuDNN 91900|forward", kProfile);
    cache.save();
  }
  const AlgorithmCache next(folder / "algorithms");
  REQUIRE(next.find("GPU|cuDNN 91900|forward") != nullptr);
  REQUIRE(*next.find("GPU|cuDNN 91900|forward") == kProfile);
  REQUIRE(next.find("GPU|cuDNN 91901|forward") == nullptr);
  REQUIRE(warnings.names.empty());
}

TEST_CASE("Nothing is written where nothing was measured, and nothing without a file",
          "[graph][algorithms]") {
  const TemporaryFolder folder;
  AlgorithmCache cache(folder / "algorithms");
  cache.save();
  REQUIRE_FALSE(is_there(folder / "algorithms"));
  AlgorithmCache in_memory;
  in_memory.add("a", kProfile);
  in_memory.save();
  REQUIRE(in_memory.find("a") != nullptr);
}

TEST_CASE("Processes that share a file of algorithms add to it", "[graph][algorithms]") {
  const TemporaryFolder folder;
  AlgorithmCache one(folder / "algorithms"), other(folder / "algorithms");
  one.add("a", kProfile);
  other.add("b", kProfile);
  one.save();
  other.save();
  REQUIRE(AlgorithmCache(folder / "algorithms").size() == 2);
}

TEST_CASE("A damaged file of algorithms is one warning, and is replaced", "[graph][algorithms]") {
  const TemporaryFolder folder;
  const std::string path = folder / "algorithms";
  AlgorithmCache cache(path);
  cache.add("a", kProfile);
  cache.save();
  const std::string whole = text_of(path);
  for (const std::string& damaged : {whole.substr(0, whole.size() - 5), std::string("not ours"),
                                     std::string(), whole.substr(0, whole.size() - 2) + "0\n"}) {
    write(path, damaged);
    const Warnings warnings;
    AlgorithmCache again(path);
    REQUIRE(again.size() == 0);
    REQUIRE(warnings.names == std::vector<std::string>{"algorithms-file"});
    again.add("a", kProfile);
    again.save();
    REQUIRE(warnings.names.size() == 1);
    REQUIRE(text_of(path) == whole);
  }
}

TEST_CASE("A file of algorithms that cannot be written is one warning", "[graph][algorithms]") {
  const TemporaryFolder folder;
  const Warnings warnings;
  AlgorithmCache cache(folder / "no" + std::string("/algorithms"));
  cache.add("a", kProfile);
  cache.save();
  cache.add("b", kProfile);
  cache.save();
  REQUIRE(warnings.names == std::vector<std::string>{"algorithms-file"});
  REQUIRE(cache.find("b") != nullptr);
}

TEST_CASE("A file of algorithms has a limit, and the oldest go", "[graph][algorithms]") {
  const TemporaryFolder folder;
  const std::string path = folder / "algorithms";
  AlgorithmCache cache(path);
  for (std::size_t n = 0; n <= AlgorithmCache::kMaxProfiles; ++n)
    cache.add("key " + std::to_string(n), kProfile);
  REQUIRE(cache.size() == AlgorithmCache::kMaxProfiles);
  REQUIRE(cache.find("key 0") == nullptr);
  REQUIRE(cache.find("key 1") != nullptr);
  cache.save();
  AlgorithmProfile many = kProfile;
  many.algorithms.resize(AlgorithmCache::kMaxAlgorithms + 5, kProfile.algorithms.front());
  cache.add("many", many);
  REQUIRE(cache.find("many")->algorithms.size() == AlgorithmCache::kMaxAlgorithms);
  cache.save();
  const AlgorithmCache again(path);
  REQUIRE(again.size() == AlgorithmCache::kMaxProfiles);
  REQUIRE(again.find("key 1") == nullptr);
  REQUIRE(again.find("many") != nullptr);
}

TEST_CASE("What is wrong with a file of algorithms is named", "[graph][algorithms]") {
  const std::vector<std::pair<std::string, AlgorithmProfile>> profiles = {{"a", kProfile}};
  const std::string good = write_algorithms(profiles);
  REQUIRE(parse_algorithms(bytes_of(good), "x") == profiles);
  REQUIRE(error_of("") == "x is no file of algorithms of this berth");
  REQUIRE(error_of("berth algorithms 2\n") == "x is no file of algorithms of this berth");
  std::string flipped = good;
  flipped[flipped.size() - 4] ^= 1;
  REQUIRE(error_of(flipped) == "x is damaged: its checksum is another");
}

}  // namespace
}  // namespace berth::graph
