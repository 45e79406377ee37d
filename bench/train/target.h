#pragma once

#include <nlohmann/json.hpp>

#include <string>

// The device that a training program is linked for: `train` the CPU, `train_cuda` CUDA, whose
// libraries most machines lack.
namespace berth::bench {

extern const char* const kTarget;  // "cpu" or "cuda"

// Puts berth in place, in the mode that BERTH_MODE says.
void install();
// berth's counters; null where it is not installed.
[[nodiscard]] nlohmann::json statistics();
// What the device's allocator holds, whichever it is: peaks and calls of the driver since
// reset_memory(). Null on the CPU.
[[nodiscard]] nlohmann::json memory();
void reset_memory();

// Becomes the program beside this one that is linked for `device`. Throws where there is none.
[[noreturn]] void run_program_for(const std::string& device, char** argv);

}  // namespace berth::bench
