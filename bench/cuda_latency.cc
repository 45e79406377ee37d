// What one allocation and its free cost through libtorch's CUDA interface: `cuda_latency --json x`.
//
// The same step again and again: requests of a transformer's sizes, half of them freed in the
// reverse order at the end, the others at once, so that both a planned allocator and a caching one
// find their blocks ready. The allocator is libtorch's own where BERTH_MODE is off, else berth;
// nothing runs on the device. Also what it takes to install the allocator and make one request,
// which loads the plan where there is one. One process measures one allocator, bench/cuda pairs
// them.
//
// `--vary` makes each step another order of the same requests, which no plan knows. `--each` times
// each pair by itself, for the slow ones among them; the clock's own cost is in them.
#include <berth/torch.h>
#include <berth/torch_cuda.h>

#include <CLI/CLI.hpp>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int requests = 1000;  // a step
  int steps = 200;
  int warmup = 100;
  int threads = 1;
  bool vary = false, each = false;
  std::string json;
};

std::vector<std::size_t> sizes_of_step(int requests, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> sizes;
  const std::size_t kinds[] = {512,     2048,        4096,         98304,       786432,
                               3145728, 3145728 * 4, 12582912 * 2, 1048576 * 16};
  for (int i = 0; i < requests; ++i) sizes.push_back(kinds[random() % std::size(kinds)]);
  return sizes;
}

// One request; its free where it is not kept.
void pair(c10::Allocator* allocator, const std::vector<std::size_t>& sizes, std::size_t i,
          std::vector<c10::DataPtr>& kept) {
  c10::DataPtr block = allocator->allocate(sizes[i]);
  if (i % 2 == 0 && kept.size() < 64) kept.push_back(std::move(block));
}

void step(const std::vector<std::size_t>& sizes, std::vector<c10::DataPtr>& kept) {
  c10::Allocator* const allocator = c10::cuda::CUDACachingAllocator::get();
  for (std::size_t i = 0; i < sizes.size(); ++i) pair(allocator, sizes, i, kept);
  while (!kept.empty()) kept.pop_back();
}

// The same, and the nanoseconds of each pair.
void step_of_pairs(const std::vector<std::size_t>& sizes, std::vector<c10::DataPtr>& kept,
                   std::vector<double>& pairs) {
  c10::Allocator* const allocator = c10::cuda::CUDACachingAllocator::get();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto start = Clock::now();
    pair(allocator, sizes, i, kept);
    pairs.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  while (!kept.empty()) kept.pop_back();
}

// Nanoseconds a pair, of each step; with --each of each pair.
std::vector<double> measure(const Options& options, int thread, bool mark) {
  const c10::cuda::CUDAStream stream =
      thread == 0 ? c10::cuda::getDefaultCUDAStream() : c10::cuda::getStreamFromPool();
  c10::cuda::setCurrentCUDAStream(stream);
  auto sizes = sizes_of_step(options.requests, static_cast<unsigned>(thread + 1));
  std::mt19937 random(static_cast<unsigned>(thread + 1));
  std::vector<c10::DataPtr> kept;
  kept.reserve(64);
  std::vector<double> times;
  for (int i = -options.warmup; i < options.steps; ++i) {
    if (options.vary) std::shuffle(sizes.begin(), sizes.end(), random);
    if (options.each && i >= 0) {
      step_of_pairs(sizes, kept, times);
      if (mark) berth::torch::mark_step();
      continue;
    }
    const auto start = Clock::now();
    step(sizes, kept);
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    if (mark) berth::torch::mark_step();
    if (i < 0 && i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (i >= 0) times.push_back(took.count() / options.requests);
  }
  return times;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Times allocate + free through libtorch's CUDA interface.");
  app.add_option("--requests", options.requests, "A step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "To measure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Steps before them")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", options.threads, "Each on a stream of its own")
      ->capture_default_str()
      ->check(CLI::Range(1, 16));
  app.add_flag("--vary", options.vary, "Each step has another order");
  app.add_flag("--each", options.each, "Time each pair by itself");
  app.add_option("--json", options.json, "Write the result to this file");
  CLI11_PARSE(app, argc, argv);
  (void)c10::cuda::device_count();  // the driver's own start is nobody's
  const auto start = Clock::now();
  berth::torch::install_cuda();
  (void)c10::cuda::current_device();
  // What CUDA's first tensor does.
  c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
  (void)c10::cuda::CUDACachingAllocator::get()->allocate(512);
  const std::chrono::duration<double, std::milli> started = Clock::now() - start;

  std::vector<std::vector<double>> times(static_cast<std::size_t>(options.threads));
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t)
    threads.emplace_back(
        [&, t] { times[static_cast<std::size_t>(t)] = measure(options, t, false); });
  times[0] = measure(options, 0, true);
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const auto& one : times) all.insert(all.end(), one.begin(), one.end());
  std::sort(all.begin(), all.end());
  const double mean =
      std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  const auto stats = berth::torch::cuda_stats();
  const nlohmann::json result = {
      {"allocator", c10::cuda::CUDACachingAllocator::name()},
      {"threads", options.threads},
      {"requests", options.requests},
      {"median_ns", all[all.size() / 2]},
      {"mean_ns", mean},  // several threads: with all their waiting
      {"best_ns", all.front()},
      {"p999_ns", all[all.size() * 999 / 1000]},
      {"start_ms", started.count()},
      {"hits", stats.hits},
      {"berth_requests", stats.requests},
  };
  fmt::print("{}\n", result.dump());
  if (options.json.empty()) return 0;
  std::ofstream file(options.json);
  file << result.dump(1) << '\n';
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be written", options.json));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_latency: {}\n", error.what());
    return 1;
  }
}
