#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

namespace berth::cli {

// One command of the program: its options, as CLI11 reads them, and what it does once they are
// read. run() returns the exit code; it throws berth::Error for all that exit_code() has a code
// for.
struct Command {
  CLI::App* app = nullptr;  // owned by the program's
  std::function<int()> run;
};

// Each adds its command to `program`. One file a command.
// What `record` and `dry-run` run stands after `--`: no option of ours, so CLI11 does not see it.
Command add_record(CLI::App& program, std::vector<std::string> arguments);
Command add_doctor(CLI::App& program);
Command add_import(CLI::App& program);
Command add_dry_run(CLI::App& program, std::vector<std::string> arguments);
Command add_plan(CLI::App& program);
Command add_graph(CLI::App& program);
Command add_schedule(CLI::App& program);
Command add_show(CLI::App& program);
Command add_verify(CLI::App& program);
Command add_replay(CLI::App& program);
Command add_help(CLI::App& program);

}  // namespace berth::cli
