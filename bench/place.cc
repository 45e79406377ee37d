// How well and how fast the planner places instances: a folder (or files) of lifetimes
// `id,lower,upper,size`, or of recorded runs, whose steady step is planned. One row an instance;
// `first` is what a run without time to improve takes. Every placement is checked.
//
//   build/release/bench/place FOLDER|FILE... [--known KNOWN.csv] [--time-limit S] [--fold K]
//   [--copies N] [--smoke]

#include "csrc/place/plan_step.h"
#include "csrc/plan/build.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step.h"

#include <berth/error.h>
#include <berth/place.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace berth;

namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Lifetimes on a line; or folded k times onto a circle, but for those that would meet themselves.
Problem problem_of(const std::vector<Lifetime>& rows, std::uint64_t fold) {
  Problem problem;
  std::uint64_t end = 0;
  for (const Lifetime& row : rows) end = std::max(end, row.upper);
  const std::uint64_t period = fold == 0 ? 0 : end / fold + 1;
  problem.lanes[0].period = period;
  for (const Lifetime& row : rows) {
    const std::uint64_t length = row.upper - row.lower;
    if (period != 0 && length > period) continue;
    problem.buffers.push_back({.size = row.size,
                               .birth = period == 0 ? row.lower : row.lower % period,
                               .length = length});
  }
  return problem;
}

// Copies of a line one after the other, each 0.9 of its length behind the one before.
Problem repeat(const Problem& line, std::uint64_t copies) {
  std::uint64_t end = 0;
  for (const Buffer& buffer : line.buffers) end = std::max(end, buffer.birth + buffer.length);
  Problem problem = line;
  problem.buffers.clear();
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    for (Buffer buffer : line.buffers) {
      buffer.birth += copy * (end * 9 / 10);
      problem.buffers.push_back(buffer);
    }
  }
  return problem;
}

// A sweep over time with the live byte ranges in address order: does every birth find its bytes
// free? One lane without branches; a circle is gone round twice.
bool is_legal(const Problem& problem, const Placement& placement) {
  const std::uint64_t period = problem.lanes[0].period;
  struct Event {
    std::uint64_t tick;
    bool birth;
    std::size_t buffer;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    for (std::uint64_t round = 0; round < (period == 0 ? 1u : 2u); ++round) {
      events.push_back({buffer.birth + round * period, true, i});
      events.push_back({buffer.birth + buffer.length + round * period, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.tick, a.birth) < std::tie(b.tick, b.birth);
  });
  std::map<Bytes, Bytes> live;  // offset -> end
  for (const Event& event : events) {
    const Bytes offset = placement.offsets[event.buffer];
    const Bytes end = offset + problem.buffers[event.buffer].size;
    if (!event.birth) {
      live.erase(offset);
      continue;
    }
    const auto above = live.lower_bound(offset);
    if (above != live.end() && above->first < end) return false;
    if (above != live.begin() && std::prev(above)->second > offset) return false;
    if (end > placement.high_water_mark) return false;
    live.emplace(offset, end);
  }
  return true;
}

std::map<std::string, Bytes> read_known(const std::string& path) {
  std::map<std::string, Bytes> known;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name, buffers, bound, best;
    std::getline(fields, name, ',');
    std::getline(fields, buffers, ',');
    std::getline(fields, bound, ',');
    std::getline(fields, best, ',');
    if (!best.empty() && std::isdigit(static_cast<unsigned char>(best[0])))
      known[name] = std::stoull(best);
  }
  return known;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Places instances and prints how close to the bound they come"};
  std::vector<std::string> paths;
  std::string known_path, only;
  std::uint64_t fold = 0, copies = 1;
  bool smoke = false;
  PlaceOptions options;
  app.add_option("paths", paths, "folders or files")->check(CLI::ExistingPath);
  app.add_option("--known", known_path, "best known peaks: instance,buffers,bound,peak,...");
  app.add_option("--only", only, "instances whose name holds this");
  app.add_option("--time-limit", options.time_limit_seconds, "seconds an instance");
  app.add_option("--budget", options.iteration_budget, "dives and nodes an instance");
  app.add_option("--engine", options.engine, "of the planner");
  app.add_option("--seed", options.seed, "of the noise");
  app.add_option("--threads", options.threads, "0: one a core");
  app.add_option("--fold", fold, "fold lifetimes this often onto a circle");
  app.add_option("--copies", copies, "of a line, each 0.9 of its length later");
  app.add_flag("--smoke", smoke, "a small instance of its own");
  CLI11_PARSE(app, argc, argv);

  std::vector<std::pair<std::string, Problem>> instances;
  std::set<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.insert(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.insert(entry.path());
  }
  for (const std::filesystem::path& path : files) {
    const std::string name = path.filename().string();
    if (name.find(".csv") == std::string::npos && path.extension() != ".trace") continue;
    if (name == "KNOWN.csv" || name.find(only) == std::string::npos) continue;
    try {
      if (trace_form(read_file_beginning(path.string(), kTraceHeadBytes).bytes) ==
          TraceForm::kLifetimes) {
        const Problem problem = problem_of(read_lifetimes(path.string()), fold);
        instances.emplace_back(name, copies > 1 ? repeat(problem, copies) : problem);
        continue;
      }
      const Trace trace = read_trace(path.string());
      std::string why_not;
      const auto step = extract_step(trace, {}, &why_not);
      if (step) {
        instances.emplace_back(name, make_problem(skeleton(*step, trace, trace.alignment)));
      } else {
        fmt::print("{}: no step: {}\n", name, why_not);
      }
    } catch (const Error& error) {
      fmt::print("{}: {}\n", name, error.what());
    }
  }
  if (smoke) {
    Problem problem;
    for (std::uint64_t i = 0; i < 200; ++i)
      problem.buffers.push_back({.size = 1 + i * 7919 % 97, .birth = i, .length = 1 + i % 17});
    instances.emplace_back("smoke", problem);
  }

  const auto known = read_known(known_path);
  fmt::print("{:32} {:>7} {:>16} {:>16} {:>9} {:>9} {:>8} {:>8} {:>8} {:>6}  {}\n", "instance", "n",
             "bound", "peak", "gap %", "known %", "first s", "cpu s", "wall s", "iters", "engine");
  bool all_legal = true;
  for (const auto& [name, problem] : instances) {
    PlaceOptions quick = options;
    quick.time_limit_seconds = 0;
    const double start = processor_seconds();
    const Placement first = place_buffers(problem, quick);
    const double middle = processor_seconds();
    const Placement best = place_buffers(problem, options);
    const double end = processor_seconds();
    const bool simple = problem.lanes.size() == 1 && problem.branches.size() == 1;
    const bool legal = !simple || (is_legal(problem, first) && is_legal(problem, best));
    all_legal &= legal;
    const auto it = known.find(name);
    const std::string known_gap =
        it == known.end() || fold != 0 || copies > 1
            ? ""
            : fmt::format("{:.4f}", 100 * (static_cast<double>(it->second) /
                                               static_cast<double>(best.lower_bound) -
                                           1));
    fmt::print("{:32} {:7} {:16} {:16} {:9.4f} {:>9} {:8.3f} {:8.3f} {:8.3f} {:6}  {}{}\n", name,
               problem.buffers.size(), best.lower_bound, best.high_water_mark, 100 * best.gap(),
               known_gap, middle - start, end - middle, best.seconds, best.iterations, best.engine,
               legal ? "" : " ILLEGAL");
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("memory: at most {} MiB\n", usage.ru_maxrss / 1024);
  return all_legal ? 0 : 1;
}
