#include "csrc/cli/core/program.h"

#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/help_format.h"
#include "csrc/cli/core/interrupt.h"
#include "csrc/cli/core/option_values.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/spelling.h"
#include "csrc/core/file.h"
#include "csrc/replay/through_malloc.h"
#include "csrc/schedule/use_papers.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace berth::cli {
namespace {

constexpr Bytes kMostOfPipe = Bytes{4} << 30;

// The first argument that nobody took, where it looks like an option, told with the nearest one.
void throw_if_unknown_option(const CLI::App& app, const std::string& who) {
  for (const std::string& left : app.remaining()) {
    if (left.size() < 2 || left[0] != '-') continue;
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    }
    const std::string near =
        left.size() > 2 ? nearest(left.substr(0, left.find('=')), names) : std::string();
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is no option of `{}`{} (see `{} --help`)", left, who,
                            near.empty() ? "" : fmt::format(": did you mean '{}'?", near), who));
  }
}

int run(std::vector<std::string> arguments) {
  // Only these take another program's arguments.
  std::vector<std::string> recorded;
  const bool dry = !arguments.empty() && arguments[0] == "dry-run";
  if (!arguments.empty() && (dry || arguments[0] == "record")) {
    const auto mark = std::find(arguments.begin(), arguments.end(), "--");
    if (mark != arguments.end()) {
      recorded.assign(mark + 1, arguments.end());
      arguments.erase(mark, arguments.end());
    }
  }
  CLI::App program("berth: a memory allocator for PyTorch with planned placement", "berth");
  program.formatter(std::make_shared<HelpFormat>());  // the commands inherit it
  program.set_version_flag("--version", "berth " BERTH_VERSION, "Print the version and stop");
  program.set_help_flag("-h,--help", "Print this help and stop");
  program.require_subcommand(1);
  program.footer(
      "Example:\n"
      "  berth record -o gpt.trace -- ./train\n"
      "  berth plan gpt.trace -o gpt.plan\n"
      "  BERTH_MODE=serve BERTH_PLAN=gpt.plan ./train\n\n"
      "Exit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 unreadable or damaged input,\n"
      "4 a system failure, 130 Ctrl-C before the first result. `berth help settings` lists every "
      "setting.");
  using Arguments = std::vector<std::string>;
  const std::vector<Command> commands = {add_record(program, dry ? Arguments{} : recorded),
                                         add_import(program),
                                         add_doctor(program),
                                         add_plan(program),
                                         add_graph(program),
                                         add_schedule(program),
                                         add_show(program),
                                         add_verify(program),
                                         add_replay(program),
                                         add_dry_run(program, dry ? recorded : Arguments{}),
                                         add_help(program)};

  if (!arguments.empty() && !arguments[0].starts_with('-')) {
    std::vector<std::string> names;
    for (const Command& command : commands) names.push_back(command.app->get_name());
    throw_if_unknown("command", arguments[0], names);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // as parse() wants them
    program.parse(arguments);
  } catch (const CLI::Success& wanted) {  // --help, --version
    if (dynamic_cast<const CLI::CallForVersion*>(&wanted) != nullptr) {
      print(std::string(wanted.what()) + "\n");
    } else {
      const auto chosen = program.get_subcommands();
      print(chosen.empty() ? program.help() : chosen.front()->help("berth"));
    }
    return kDone;
  } catch (const CLI::ParseError& error) {
    const auto chosen = program.get_subcommands();
    const std::string who = chosen.empty() ? "berth" : "berth " + chosen.front()->get_name();
    throw_if_unknown_option(program, "berth");
    if (!chosen.empty()) throw_if_unknown_option(*chosen.front(), who);
    throw Error(ErrorKind::kUsage, fmt::format("{} (see `{} --help`)", error.what(), who));
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    // Those that run a program leave Ctrl-C to it.
    const std::string& name = command.app->get_name();
    if (name != "record" && name != "dry-run") end_on_interrupt();
    return command.run();
  }
  return kWrongUsage;  // not reached: parse() requires one
}

}  // namespace

int run_program(int argc, char** argv) noexcept {
  guard_standard_streams();
  static_cast<void>(seconds_since_start());  // --time-limit counts from here
  try {
    // The child of `replay`, which runs under another malloc: before anything else allocates.
    if (argc == 3 && std::string_view(argv[1]) == replay::kMallocChild)
      return replay::malloc_child(argv[2]);
    read_pipes_too(kMostOfPipe);
    use_papers_where_built();
    return run({argv + std::min(argc, 1), argv + argc});
  } catch (const Error& error) {
    print_error(error.what());
    return exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return kSystemFailure;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kSystemFailure;
  }
}

}  // namespace berth::cli
