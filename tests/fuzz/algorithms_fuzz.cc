// The reader of files of measured algorithms: what it accepts is within its limits and is written
// as it was read.
#include "csrc/core/checksum.h"
#include "csrc/graph/algorithm_cache.h"
#include "tests/fuzz/fuzz.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

namespace berth {
namespace {

constexpr std::string_view kFirstLine = "berth algorithms 1\n";
constexpr std::size_t kSumBytes = 16;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

fuzz::Input as_input(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

namespace fuzz {

std::vector<std::pair<std::string, Input>> seeds() {
  const graph::AlgorithmProfile none = {.ns = 5, .algorithms = {}};
  const graph::AlgorithmProfile some = {
      .ns = 70'000,
      .algorithms = {{.name = "4:0=1;12=2|7", .ns = 1, .workspace = 1 << 20, .same_bits = false},
                     {.name = "1|7", .ns = 90'000, .workspace = 0, .same_bits = true}}};
  std::vector<std::pair<std::string, graph::AlgorithmProfile>> profiles = {
      {"NVIDIA H100|cuDNN 91900|forward f8x64x56x56/200704x3136x56x1a32", some}, {"b", none}};
  return {{"empty", as_input(graph::write_algorithms({}))},
          {"two", as_input(graph::write_algorithms(profiles))}};
}

void repair(Input& input) {
  const std::size_t begin = kFirstLine.size() + kSumBytes + 1;
  if (input.size() < begin) return;
  std::copy(kFirstLine.begin(), kFirstLine.end(), input.begin());
  const std::string sum =
      fmt::format("{:016x}\n", checksum(std::as_bytes(std::span(input).subspan(begin))));
  std::copy(sum.begin(), sum.end(), input.begin() + kFirstLine.size());
}

}  // namespace fuzz
}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace berth;
  try {
    const auto profiles = graph::parse_algorithms(std::as_bytes(std::span(data, size)), "the file");
    require(profiles.size() <= graph::AlgorithmCache::kMaxProfiles, "profiles are bounded");
    for (const auto& [key, profile] : profiles)
      require(profile.algorithms.size() <= graph::AlgorithmCache::kMaxAlgorithms,
              "algorithms are bounded");
    const std::string again = graph::write_algorithms(profiles);
    require(graph::parse_algorithms(std::as_bytes(std::span(again.data(), again.size())),
                                    "again") == profiles,
            "what is written reads back");
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kInput, "what is refused is the input's fault");
  }
  return 0;
}
