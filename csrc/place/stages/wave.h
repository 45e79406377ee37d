#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace berth::place {

// Runs run(thread) on so many threads at once, this one included (thread 0), and returns when all
// have ended.
//
// Where a thread cannot be started, for a limit of the process or of the machine, there are fewer:
// so each takes its next task from a list of all. Requires that run() throws nothing.
template <class Thread = std::thread, class Run>
void run_side_by_side(std::size_t threads, const Run& run) {
  std::vector<Thread> others;
  try {
    if (threads > 1) others.reserve(threads - 1);
    for (unsigned thread = 1; thread < threads; ++thread)
      others.emplace_back(std::cref(run), thread);
    // mutant: place-threads
  } catch (const std::system_error&) {  // those that were started do all
    // mutant: place-memory
  } catch (const std::bad_alloc&) {
  }
  run(0u);
  for (Thread& other : others) other.join();
}

// Runs work(thread, task) for the tasks [0, count) on at most so many threads, this one included,
// in order of their numbers; the first exception goes on to the caller.
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
  run_side_by_side(std::min<std::size_t>(threads, count), run);
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace berth::place
