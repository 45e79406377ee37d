#include "tests/catch.h"

#include <berth/warnings.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
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

TEST_CASE("A child forked while other threads warn may warn as well", "[warnings][fork]") {
  berth::set_warning_sink([](std::string_view, const std::string&) {});
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!over) berth::warn("x", "y");
    });
  }
  int ended_well = 0;
  constexpr int kForks = 300;
  for (int i = 0; i < kForks && ended_well == i; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // a lock that a thread of the parent holds is held for ever
      berth::warn("x", "y");
      berth::set_warning_sink({});
      ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    ended_well += status == 0;
  }
  over = true;
  for (std::thread& other : others) other.join();
  berth::set_warning_sink({});
  REQUIRE(ended_well == kForks);
}
