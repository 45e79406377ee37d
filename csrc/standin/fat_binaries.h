#pragma once

#include "csrc/standin/gpu_model.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace berth::standin {

// For which GPUs the kernels of a library were compiled: what its fat binaries say in the headers
// of their parts. The code itself is not looked at.
struct LibraryCode {
  std::string library;                 // its path
  std::set<std::uint32_t> compiled;    // sm_90 is 90
  std::set<std::uint32_t> translated;  // PTX, which a driver compiles for that GPU and newer ones

  // Whether such a GPU can run it: code of its generation that is not newer, or PTX.
  [[nodiscard]] bool runs_on(const GpuModel& gpu) const;
};

// Adds what one fat binary holds (the bytes that nvcc puts into a program). Bytes that are none add
// nothing.
void add_code(const void* fat_binary, LibraryCode& code);

// Notes one that is registered, by the wrapper that __cudaRegisterFatBinary() gets. Of each library
// the first few are read, for all are compiled alike: their headers lie far apart in its file.
void note_fat_binary(const void* wrapper);

// Of all libraries that registered kernels, in the order in which they did.
[[nodiscard]] std::vector<LibraryCode> registered_code();

}  // namespace berth::standin
