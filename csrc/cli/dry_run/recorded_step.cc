#include "csrc/cli/dry_run/recorded_step.h"

#include "csrc/cli/core/python_program.h"
#include "csrc/cli/core/scratch_folder.h"
#include "csrc/core/check.h"

#include <berth/graph.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

namespace berth::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A word as a shell takes it; programs in an argument are too long to be of use.
std::string quoted(const std::string& word) {
  constexpr std::size_t kLongest = 80;
  if (word.size() > kLongest || word.find('\n') != std::string::npos) return "'...'";
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-_./=:,@%+{}").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string why_not_recorded(const DryRunJob& job) {
  if (!is_python(job.program[0])) return "the program is not Python, and berth finds steps there";
  if (python_package().empty()) return "this berth was built without its Python package";
  return {};
}

std::vector<RecordedStep> record_steps(const DryRunJob& job) {
  const ScratchFolder scratch("berth-step");
  DryRunJob one = job;
  one.trace = (scratch.path() / "x.trace").string();
  one.step_graphs = scratch.path().string();
  one.output_to_error = true;
  const DryRun ended = run_dry(one);
  std::vector<RecordedStep> steps;
  if (ended.code != 0 || ended.signal != 0) return steps;
  std::set<std::uint64_t> seen;
  for (const RankTraces::File& trace : ended.traces) {
    if (!seen.insert(trace.pid).second) continue;
    const fs::path graph = scratch.path() / fmt::format("{}.graph", trace.pid);
    const fs::path why = scratch.path() / fmt::format("{}.why", trace.pid);
    RecordedStep step{.rank = trace.rank, .device = trace.device, .graph = {}, .why_not = {}};
    if (fs::exists(graph))
      step.graph = graph::read_graph(graph.string());
    else if (step.why_not = text_of(why); step.why_not.empty())
      step.why_not = "no optimizer of torch's made three steps";
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string command_that_fits(const std::vector<std::string>& program,
                              const std::string& schedule) {
  std::string command = schedule.empty() ? "" : fmt::format("BERTH_SCHEDULE={} ", quoted(schedule));
  std::size_t at = 0;
  if (!interpreter_of(program[0]).empty() && interpreter_of(program[0]) == program[0]) {
    command += quoted(program[0]);
    // The interpreter's own options stay with it.
    for (at = 1; at < program.size() && program[at].starts_with('-') && program[at] != "-" &&
                 !program[at].starts_with("-m") && !program[at].starts_with("-c");
         ++at)
      command += " " + quoted(program[at]);
  } else {
    command += "python";
  }
  command += " -m berth run --fit";
  for (; at < program.size(); ++at) command += " " + quoted(program[at]);
  return command;
}

}  // namespace berth::cli
