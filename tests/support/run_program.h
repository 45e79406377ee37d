#pragma once

#include <map>
#include <string>
#include <vector>

namespace berth::test {

struct ProgramResult {
  int exit_code = 0;  // 128 + signal where one ended it
  std::string out, err;
};

// Runs `command` (a path and its arguments) to its end. Its environment is this process's without
// any BERTH_ variable, and `environment`. Throws std::runtime_error where it cannot be started.
[[nodiscard]] ProgramResult run_program(const std::vector<std::string>& command,
                                        const std::map<std::string, std::string>& environment = {});

}  // namespace berth::test
