// Runs a fuzz target over its seeds, mutants of them and files, where there is no libFuzzer.
//
//   fuzz_NAME [--mutants N] [--seed S] [--write FOLDER] [file...]
//
// --write puts the seeds into a folder, for libFuzzer to start from.
#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

namespace {

using berth::fuzz::Input;

void mutate(Input& input, const Input& other, std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  for (std::size_t changes = 1 + below(4); changes != 0 && !input.empty(); --changes) {
    const std::size_t at = below(input.size());
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(6)) {
      case 0:
        *place ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        *place = static_cast<std::uint8_t>(random());
        break;
      case 2: {
        constexpr std::uint8_t kHostile[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
        const std::size_t count = std::min<std::size_t>(1 + below(8), input.size() - at);
        std::fill_n(place, count, kHostile[below(std::size(kHostile))]);
        break;
      }
      case 3:
        input.resize(at);
        break;
      case 4:
        input.erase(place, place + static_cast<std::ptrdiff_t>(
                                       std::min<std::size_t>(1 + below(64), input.size() - at)));
        break;
      default:
        if (other.empty()) break;
        const std::size_t from = below(other.size());
        const std::size_t count = std::min<std::size_t>(1 + below(256), other.size() - from);
        const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
        input.insert(place, first, first + static_cast<std::ptrdiff_t>(count));
    }
  }
}

Input read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

int main(int count, char** arguments) {
  std::uint64_t mutants = 2000, seed = 1;
  std::vector<std::pair<std::string, Input>> inputs = berth::fuzz::seeds();
  for (int i = 1; i < count; ++i) {
    const bool more = i + 1 < count;
    if (std::strcmp(arguments[i], "--mutants") == 0 && more) {
      mutants = std::strtoull(arguments[++i], nullptr, 10);
    } else if (std::strcmp(arguments[i], "--seed") == 0 && more) {
      seed = std::strtoull(arguments[++i], nullptr, 10);
    } else if (std::strcmp(arguments[i], "--write") == 0 && more) {
      const std::filesystem::path folder = arguments[++i];
      for (const auto& [name, input] : inputs) {
        std::ofstream file(folder / name, std::ios::binary);
        file.write(reinterpret_cast<const char*>(input.data()),
                   static_cast<std::streamsize>(input.size()));
      }
      return 0;
    } else {
      inputs.emplace_back(arguments[i], read(arguments[i]));
    }
  }
  for (const auto& [name, input] : inputs) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (std::uint64_t i = 0; i < mutants && !inputs.empty(); ++i) {
    Input input = inputs[random() % inputs.size()].second;
    mutate(input, inputs[random() % inputs.size()].second, random);
    if (random() % 4 != 0) berth::fuzz::repair(input);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu inputs and %llu mutants: nothing broke\n", inputs.size(),
              static_cast<unsigned long long>(mutants));
  return 0;
}
