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
  // The code that such a GPU runs: sm_86 on an L4 (sm_89) where there is none for that. PTX comes
  // after compiled code. That of the GPU itself where nothing runs on it.
  [[nodiscard]] std::uint32_t version_on(const GpuModel& gpu) const;
};

// Adds what one fat binary holds (the bytes that nvcc puts into a program). Bytes that are none add
// nothing.
void add_code(const void* fat_binary, LibraryCode& code);

// Notes one that is registered, by the wrapper that __cudaRegisterFatBinary() gets. Of each library
// the first few are read, for all are compiled alike: their headers lie far apart in its file.
void note_fat_binary(const void* wrapper);

// version_on() of the library that a kernel is in; of the GPU itself where that is not known.
[[nodiscard]] std::uint32_t code_version(const void* kernel, const GpuModel& gpu);

// Of all libraries that registered kernels, in the order in which they did.
[[nodiscard]] std::vector<LibraryCode> registered_code();

}  // namespace berth::standin
