// How long one plan takes and how much memory, for a problem of a given size: the first plan, one
// dive.
//
//   train: microbatches of 250 layers, each forward before the backward of the one four before it;
//          activations live from forward to backward, temporaries a few requests
//   mixed: sizes and lifetimes log-uniform, over four and three decades
//
//   build/release/bench/scaling --buffers N [--family train|mixed] [--seed S] [--repeats R]

#include <berth/place.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace berth;

namespace {

constexpr std::size_t kLayers = 250;
constexpr std::size_t kAhead = 4;  // microbatches between a forward and its backward

// One thread's work, whatever else the machine does.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Uniform in [0, 1), the same on every machine.
double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

Problem train(std::size_t count, std::mt19937_64& random) {
  std::vector<Bytes> sizes(kLayers);
  for (Bytes& size : sizes) size = 512 * (1 + random() % 4096);
  Problem problem;
  std::uint64_t tick = 0;
  std::vector<std::vector<std::size_t>> kept;  // activations of the microbatches under way
  const auto request = [&](Bytes size, std::uint64_t length) {
    problem.buffers.push_back({.size = size, .birth = tick++, .length = length});
  };
  while (problem.buffers.size() < count) {
    kept.emplace_back();
    for (const Bytes size : sizes) {
      kept.back().push_back(problem.buffers.size());
      request(size, 1);
      request(size / 2 + 512, 2 + random() % 3);
    }
    if (kept.size() < kAhead) continue;
    for (std::size_t layer = kLayers; layer-- > 0;) {
      request(sizes[layer], 2 + random() % 3);
      request(sizes[layer] / 4 + 512, 1 + random() % 2);
      Buffer& activation = problem.buffers[kept.front()[layer]];
      activation.length = tick - activation.birth;
    }
    kept.erase(kept.begin());
  }
  // The last ones live to the end.
  for (const auto& activations : kept) {
    for (const std::size_t i : activations)
      problem.buffers[i].length = tick - problem.buffers[i].birth;
  }
  problem.buffers.resize(count);
  return problem;
}

Problem mixed(std::size_t count, std::mt19937_64& random) {
  Problem problem;
  for (std::size_t i = 0; i < count; ++i) {
    problem.buffers.push_back(
        {.size = 64 * static_cast<Bytes>(std::pow(10, 4 * uniform(random))),
         .birth = i,
         .length = static_cast<std::uint64_t>(std::pow(10, 3 * uniform(random)))});
  }
  return problem;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Plans one problem of a given size and prints what it cost as JSON"};
  std::size_t count = 1000, repeats = 1;
  std::string family = "train";
  std::uint64_t seed = 1;
  app.add_option("--buffers", count, "how many")->check(CLI::PositiveNumber);
  app.add_option("--family", family, "of problems")->check(CLI::IsMember({"train", "mixed"}));
  app.add_option("--seed", seed, "of the problem");
  app.add_option("--repeats", repeats, "the least time is taken")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  std::mt19937_64 random(seed);
  const Problem problem = family == "train" ? train(count, random) : mixed(count, random);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  PlaceOptions options;
  options.iteration_budget = 1;
  Placement placement;
  double seconds = std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < repeats; ++r) {
    const double start = processor_seconds();
    placement = place_buffers(problem, options);
    seconds = std::min(seconds, processor_seconds() - start);
  }
  getrusage(RUSAGE_SELF, &after);
  fmt::print(
      "{{\"buffers\": {}, \"family\": \"{}\", \"seconds\": {:.6f}, \"gap\": {:.8f}, "
      "\"bytes_a_buffer\": {:.0f}}}\n",
      count, family, seconds, placement.gap(),
      static_cast<double>(after.ru_maxrss - before.ru_maxrss) * 1024 / static_cast<double>(count));
  return 0;
}
