#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The built program, run as a person would.
namespace berth::test {

struct Ran {
  int code = -1;    // exit code, 128 + the signal where one ended it
  std::string out;  // standard output
  std::string err;  // standard error
};

// The words of a text with one space between, wherever its lines break.
inline std::string one_line(const std::string& text) {
  std::string words;
  for (const char c : text) {
    if (c != ' ' && c != '\n') {
      words += c;
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  return words;
}

enum class Stream { kCaptured, kTerminal, kFull, kClosed };

struct RunOptions {
  std::vector<std::pair<std::string, std::string>> variables;
  Stream output = Stream::kCaptured;
  Stream error = Stream::kCaptured;  // captured or a terminal
  int signal = 0;                    // sent to it alone
  std::string when_exists;  // once this file is there; where empty once the signal is caught
  std::string when_said;    // or once standard error has this
  std::optional<std::string> input;  // what a pipe at its standard input gives; nothing: /dev/null
  std::string folder;                // where it runs
  std::uint64_t memory = 0;          // addresses that it may take, 0: as many as it likes
};

// Runs `berth ARGUMENTS...`.
[[nodiscard]] Ran run_berth(const std::vector<std::string>& arguments,
                            const RunOptions& options = {});

// The same with --json: the one object on standard output.
[[nodiscard]] nlohmann::json run_berth_json(std::vector<std::string> arguments,
                                            int expected_code = 0);

// Files to run it on.
void write_text(const std::string& path, const std::string& text);
[[nodiscard]] std::string read_text(const std::string& path);
[[nodiscard]] bool exists(const std::string& path);

// An events CSV of `steps` equal steps: weights of 1 MiB, then activations that die in reverse.
[[nodiscard]] std::string events_csv(int steps, int requests = 8);

// A small program that is linked to berth: see recorded_program.cc.
[[nodiscard]] std::string recorded_program();

}  // namespace berth::test
