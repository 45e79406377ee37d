#include "tests/catch.h"

#include <berth/warnings.h>

#include <stdexcept>
#include <string>
#include <vector>

TEST_CASE("Warnings go to the sink that the user set, with their name", "[warnings]") {
  std::vector<std::string> seen;
  berth::set_warning_sink([&](std::string_view name, const std::string& text) {
    seen.push_back(std::string(name) + ": " + text);
  });
  berth::warn("plan-mismatch", "made by torch 2.10, this is 2.11");
  berth::set_warning_sink({});
  REQUIRE(seen == std::vector<std::string>{"plan-mismatch: made by torch 2.10, this is 2.11"});
}

TEST_CASE("Reports go to the sink of the warnings", "[warnings]") {
  std::vector<std::string> seen;
  berth::set_warning_sink([&](std::string_view name, const std::string& text) {
    seen.push_back(std::string(name) + ": " + text);
  });
  berth::report("summary", "cpu 0: all is well");
  berth::set_warning_sink({});
  REQUIRE(seen == std::vector<std::string>{"summary: cpu 0: all is well"});
}

TEST_CASE("A sink that throws harms nobody", "[warnings]") {
  berth::set_warning_sink(
      [](std::string_view, const std::string&) { throw std::runtime_error("sink"); });
  berth::warn("x", "y");
  berth::set_warning_sink({});
}
