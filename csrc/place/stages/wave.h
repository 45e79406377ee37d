#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace berth::place {

// Runs work(thread, task) for the tasks [0, count) on so many threads, this one included, in order
// of their numbers; the first exception goes on to the caller.
template <class Work>
void run_wave(unsigned threads, std::size_t count, Work&& work) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> errors(threads);
  const auto run = [&](unsigned thread) {
    try {
      for (std::size_t task = next++; task < count; task = next++) work(thread, task);
    } catch (...) {
      errors[thread] = std::current_exception();
      next = count;
    }
  };
  std::vector<std::thread> others;
  for (unsigned thread = 1; thread < std::min<std::size_t>(threads, count); ++thread)
    others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace berth::place
