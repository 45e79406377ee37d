#pragma once

#include "csrc/core/bytes.h"
#include "csrc/replay/perturbation.h"

#include <cstdint>
#include <string>

// Values of options: those that CLI11 cannot read, and checks whose words say what was typed and
// what is wanted.
namespace berth::cli {

// "8GiB", above 0. Throws Error(kUsage) that names the option.
[[nodiscard]] Bytes size_option(const char* name, const std::string& text);

// What --perturb says.
struct PerturbationOption {
  replay::Perturbation perturbation = {};
  std::uint64_t seed = 1;
};
// Reads "insert=0.1%", "insert:0.001" or "seed=7". Throws Error(kUsage) for an unknown kind, a rate
// that is none and a seed that is none.
void add_perturbation(PerturbationOption& option, const std::string& text);

// Since the first call, which the program makes when it starts.
[[nodiscard]] double seconds_since_start() noexcept;

// Checks for CLI::Option::check(): what is wrong with a text, or nothing.
[[nodiscard]] std::string is_whole_number(const std::string& text);  // of 64 bits, from 0 on
[[nodiscard]] std::string is_time_limit(const std::string& text);    // seconds, above 0

}  // namespace berth::cli
