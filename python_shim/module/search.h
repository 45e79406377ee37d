#pragma once

#include <berth/place.h>

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace berth::python {

// How to search, as keyword arguments of Python.
struct SearchArguments {
  double time_limit = 10;  // seconds
  std::uint64_t iterations = 0;
  std::uint64_t seed = 1;
  unsigned threads = 1;
  std::string engine = "auto";
  std::optional<Bytes> capacity;
  nanobind::object progress = nanobind::none();  // called with a Progress, or None
};

// One search that Python waits for. Ctrl-C ends it, and the best so far is taken; an exception of
// the user's progress function, or of another signal's handler, ends it and is raised.
class Watch {
 public:
  explicit Watch(nanobind::object progress) : progress_(std::move(progress)) {}

  // Of a search that runs without Python's lock. They refer to this.
  template <class Options>
  void follow(Options& options) {
    options.cancel = &cancelled_;
    options.progress = [this](const auto& now) { report([&now] { return nanobind::cast(now); }); };
  }
  // Runs a search that may say nothing for long: on a thread of its own, while this one looks for
  // Ctrl-C. To be called with Python's lock; throws what the search throws.
  void run(const std::function<void()>& search);
  // To be called with Python's lock, after the search: raises what a callback raised.
  void raise_if_failed();
  [[nodiscard]] bool cancelled() const noexcept { return cancelled_.load(); }

 private:
  // Empty: nothing to tell, only Ctrl-C is looked for.
  void report(const std::function<nanobind::object()>& progress) noexcept;

  nanobind::object progress_;
  std::atomic<bool> cancelled_{false};
  std::exception_ptr failure_;
};

// One of the planner.
class Search : public Watch {
 public:
  explicit Search(const SearchArguments& arguments);

  // What place_buffers() takes; runs without Python's lock.
  [[nodiscard]] const PlaceOptions& options() const noexcept { return options_; }

 private:
  PlaceOptions options_;
};

}  // namespace berth::python
