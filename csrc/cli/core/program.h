#pragma once

namespace berth::cli {

// The program `berth`: reads its arguments, runs one command, returns the exit code. Errors go to
// standard error.
[[nodiscard]] int run_program(int argc, char** argv) noexcept;

}  // namespace berth::cli
