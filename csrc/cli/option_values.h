#pragma once

#include "csrc/core/bytes.h"
#include "csrc/replay/perturbation.h"

#include <string>

// Values of options: those that CLI11 cannot read, and checks whose words say what was typed and
// what is wanted.
namespace berth::cli {

// "8GiB", above 0. Throws Error(kUsage) that names the option.
[[nodiscard]] Bytes size_option(const char* name, const std::string& text);

// Reads "insert:0.01". Throws Error(kUsage) for an unknown kind or a rate that is none.
void add_perturbation(replay::Perturbation& perturbation, const std::string& text);

// Checks for CLI::Option::check(): what is wrong with a text, or nothing.
[[nodiscard]] std::string is_whole_number(const std::string& text);  // of 64 bits, from 0 on
[[nodiscard]] std::string is_time_limit(const std::string& text);    // seconds, above 0

}  // namespace berth::cli
