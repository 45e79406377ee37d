// What re-planning costs and moves: of each instance (lifetimes `id,lower,upper,size`) some sizes
// change at random to half to one and a half times, and it is planned anew and re-planned. Medians
// over the seeds, then the worst in brackets; every placement is checked.
//
//   build/release/bench/replan FOLDER|FILE... [--only NAME] [--percent P] [--seeds N] [--smoke]

#include "csrc/trace/file.h"

#include <berth/error.h>
#include <berth/place.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace berth;

namespace {

Problem problem_of(const std::vector<Lifetime>& rows) {
  Problem problem;
  for (const Lifetime& row : rows)
    problem.buffers.push_back(
        {.size = row.size, .birth = row.lower, .length = row.upper - row.lower});
  return problem;
}

// Does every birth find its bytes free?
bool is_legal(const Problem& problem, const std::vector<Bytes>& offsets) {
  std::vector<std::tuple<std::uint64_t, bool, std::size_t>> events;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    events.emplace_back(buffer.birth, true, i);
    events.emplace_back(buffer.birth + buffer.length, false, i);
  }
  std::sort(events.begin(), events.end());
  std::map<Bytes, Bytes> live;  // offset -> end
  for (const auto& [tick, birth, i] : events) {
    if (!birth) {
      live.erase(offsets[i]);
      continue;
    }
    const auto above = live.lower_bound(offsets[i]);
    if (above != live.end() && above->first < offsets[i] + problem.buffers[i].size) return false;
    if (above != live.begin() && std::prev(above)->second > offsets[i]) return false;
    live.emplace(offsets[i], offsets[i] + problem.buffers[i].size);
  }
  return true;
}

std::string spread(std::vector<double> values, const char* format) {
  std::sort(values.begin(), values.end());
  return fmt::format(fmt::runtime(std::string(format) + " (" + format + ")"),
                     values[values.size() / 2], values.back());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Measures re-planning after a few sizes changed"};
  std::vector<std::string> paths;
  std::string only;
  double percent = 1;
  std::uint64_t seeds = 21;
  bool smoke = false;
  app.add_option("paths", paths, "folders or files")->check(CLI::ExistingPath);
  app.add_option("--only", only, "instances whose name holds this");
  app.add_option("--percent", percent, "of the sizes that change")->check(CLI::Range(0.0, 100.0));
  app.add_option("--seeds", seeds, "changes a file")->check(CLI::PositiveNumber);
  app.add_flag("--smoke", smoke, "a small instance of its own");
  CLI11_PARSE(app, argc, argv);

  std::set<std::filesystem::path> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.insert(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.insert(entry.path());
  }
  std::vector<std::pair<std::string, Problem>> instances;
  for (const std::filesystem::path& path : files) {
    const std::string name = path.filename().string();
    if (path.extension() != ".csv" || name == "KNOWN.csv" || name.find(only) == std::string::npos)
      continue;
    try {
      instances.emplace_back(name, problem_of(read_lifetimes(path.string())));
    } catch (const Error& error) {
      fmt::print("{}: {}\n", name, error.what());
    }
  }
  if (smoke) {
    Problem problem;
    for (std::uint64_t i = 0; i < 200; ++i)
      problem.buffers.push_back({.size = 1 + i * 7919 % 97, .birth = i, .length = 1 + i % 17});
    instances.emplace_back("smoke", problem);
    seeds = 3;
  }

  fmt::print("{:32} {:>7} {:>8} {:>9} {:>9} {:>15} {:>15} {:>17}  {}\n", "instance", "n", "changed",
             "anew ms", "ms", "time / anew", "moved %", "peak / anew", "by");
  PlaceOptions first;
  first.iteration_budget = 1;  // the least that planning anew can take
  bool all_legal = true;
  for (const auto& [name, problem] : instances) {
    const Placement before = place_buffers(problem, first);
    std::vector<double> anew_ms, ms, time, moved, peak;
    std::map<std::string, std::size_t> engines;
    std::size_t changed = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      std::mt19937_64 random(seed);
      Problem after = problem;
      const auto count =
          static_cast<std::size_t>(static_cast<double>(problem.buffers.size()) * percent / 100) + 1;
      for (std::size_t k = 0; k < count; ++k) {
        Bytes& size = after.buffers[random() % after.buffers.size()].size;
        size = std::max<Bytes>(1, size / 2 + size / 1000 * (random() % 1001));
      }
      const Placement anew = place_buffers(after, first);
      const Replanned replanned = replan(after, {problem, before.offsets}, first);
      all_legal &= is_legal(after, replanned.placement.offsets);
      changed = std::max(changed, count);
      anew_ms.push_back(anew.seconds * 1e3);
      ms.push_back(replanned.placement.seconds * 1e3);
      time.push_back(replanned.placement.seconds / anew.seconds);
      moved.push_back(100.0 * static_cast<double>(replanned.moved) /
                      static_cast<double>(after.buffers.size()));
      peak.push_back(static_cast<double>(replanned.placement.high_water_mark) /
                     static_cast<double>(anew.high_water_mark));
      ++engines[replanned.placement.engine];
    }
    std::string by;
    for (const auto& [engine, times] : engines) by += fmt::format("{} {}x ", engine, times);
    std::sort(anew_ms.begin(), anew_ms.end());
    std::sort(ms.begin(), ms.end());
    fmt::print("{:32} {:7} {:8} {:9.2f} {:9.2f} {:>15} {:>15} {:>17}  {}{}\n", name,
               problem.buffers.size(), changed, anew_ms[anew_ms.size() / 2], ms[ms.size() / 2],
               spread(time, "{:.3f}"), spread(moved, "{:.2f}"), spread(peak, "{:.4f}"), by,
               all_legal ? "" : "ILLEGAL");
  }
  return all_legal ? 0 : 1;
}
