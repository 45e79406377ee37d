#pragma once

#include "tests/support/run_program.h"

// The children of these tests: see probe.cc.
namespace berth::test {

[[nodiscard]] inline ProgramResult probe(
    const char* scenario, const std::map<std::string, std::string>& environment = {}) {
  return run_program({BERTH_TEST_PROBE, scenario}, environment);
}

// The same, linked to the object that installs berth by itself.
[[nodiscard]] inline ProgramResult probe_auto(
    const char* scenario, const std::map<std::string, std::string>& environment = {}) {
  return run_program({BERTH_TEST_PROBE_AUTO, scenario}, environment);
}

}  // namespace berth::test
