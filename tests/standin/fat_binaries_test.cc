#include "csrc/standin/fat_binaries.h"

#include "tests/catch.h"

#include <cstring>
#include <utility>
#include <vector>

using namespace berth::standin;

namespace {

constexpr std::uint16_t kPtx = 1, kElf = 2;
constexpr std::uint32_t kMagic = 0xba55ed50;

template <typename T>
void put(std::vector<char>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// As nvcc writes it: parts of a kind and an architecture, with some bytes of code each.
std::vector<char> fat_binary(const std::vector<std::pair<std::uint16_t, std::uint32_t>>& parts) {
  std::vector<char> body;
  for (const auto& [kind, architecture] : parts) {
    put<std::uint16_t>(body, kind);
    put<std::uint16_t>(body, 0x101);
    put<std::uint32_t>(body, 64);
    put<std::uint64_t>(body, 40);
    put<std::uint64_t>(body, 0);
    put<std::uint32_t>(body, 0);
    put<std::uint32_t>(body, architecture);
    body.resize(body.size() + 32 + 40);
  }
  std::vector<char> bytes;
  put<std::uint32_t>(bytes, kMagic);
  put<std::uint16_t>(bytes, 1);
  put<std::uint16_t>(bytes, 16);
  put<std::uint64_t>(bytes, body.size());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

LibraryCode code_of(const std::vector<char>& bytes) {
  LibraryCode code;
  add_code(bytes.data(), code);
  return code;
}

}  // namespace

TEST_CASE("A fat binary says for which GPUs it was compiled", "[standin][code]") {
  const LibraryCode code = code_of(fat_binary({{kElf, 75}, {kElf, 80}, {kElf, 90}, {kPtx, 120}}));
  REQUIRE(code.compiled == std::set<std::uint32_t>{75, 80, 90});
  REQUIRE(code.translated == std::set<std::uint32_t>{120});
}

TEST_CASE("A GPU runs code of its generation that is not newer, and older PTX", "[standin][code]") {
  const LibraryCode code = code_of(fat_binary({{kElf, 75}, {kElf, 80}, {kElf, 90}, {kPtx, 90}}));
  for (const char* const name : {"T4", "A100-80", "RTX3090", "L4", "H100-80", "B200", "RTX5090"})
    REQUIRE(code.runs_on(*find_gpu(name)));
  REQUIRE_FALSE(code.runs_on(*find_gpu("V100-16")));
  const LibraryCode without_ptx = code_of(fat_binary({{kElf, 86}, {kElf, 100}}));
  REQUIRE_FALSE(without_ptx.runs_on(*find_gpu("A100-80")));  // newer than it
  REQUIRE_FALSE(without_ptx.runs_on(*find_gpu("H100-80")));
  REQUIRE(without_ptx.runs_on(*find_gpu("L4")));
  REQUIRE(without_ptx.runs_on(*find_gpu("B300")));
}

TEST_CASE("A GPU runs the newest code of its generation that it can, and PTX after that",
          "[standin][code]") {
  const LibraryCode code = code_of(fat_binary({{kElf, 80}, {kElf, 86}, {kElf, 90}, {kPtx, 90}}));
  REQUIRE(code.version_on(*find_gpu("A100-80")) == 80);
  REQUIRE(code.version_on(*find_gpu("L4")) == 86);
  REQUIRE(code.version_on(*find_gpu("H100-80")) == 90);
  REQUIRE(code.version_on(*find_gpu("B200")) == 90);  // by PTX
  REQUIRE(code.version_on(*find_gpu("T4")) == 75);    // nothing runs: its own
}

TEST_CASE("Bytes that are no fat binary, or a cut one, add nothing that is not there",
          "[standin][code]") {
  std::vector<char> bytes = fat_binary({{kElf, 80}, {kElf, 90}});
  REQUIRE(code_of(std::vector<char>(64, 'x')).compiled.empty());
  const std::uint64_t shorter = 64 + 40 + 8;  // the second part is not whole
  std::memcpy(bytes.data() + 8, &shorter, sizeof shorter);
  REQUIRE(code_of(bytes).compiled == std::set<std::uint32_t>{80});
  const std::uint64_t huge = ~std::uint64_t{0};
  std::memcpy(bytes.data() + 16 + 8, &huge, sizeof huge);  // of the first part
  REQUIRE(code_of(bytes).compiled.empty());
  LibraryCode code;
  add_code(nullptr, code);
  note_fat_binary(nullptr);
  note_fat_binary(bytes.data());
  REQUIRE(code.compiled.empty());
}
