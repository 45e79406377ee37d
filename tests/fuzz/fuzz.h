#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// What one fuzz target gives to both drivers: libFuzzer (BERTH_BUILD_FUZZERS, clang) and
// corpus_main.cc, which runs everywhere as a test.
namespace berth::fuzz {

using Input = std::vector<std::uint8_t>;

// Inputs to start from, with names for their files.
[[nodiscard]] std::vector<std::pair<std::string, Input>> seeds();

// Makes checksums right again, so that mutants get past them. May leave the input as it is.
void repair(Input& input);

}  // namespace berth::fuzz

// Reads the input; anything but a documented error or a sound result aborts.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
