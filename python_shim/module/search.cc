#include "python_shim/module/search.h"

#include <chrono>
#include <future>
#include <utility>

namespace berth::python {

namespace nb = nanobind;

Search::Search(const SearchArguments& arguments) : Watch(arguments.progress) {
  options_.engine = arguments.engine;
  options_.time_limit_seconds = arguments.time_limit;
  options_.iteration_budget = arguments.iterations;
  options_.seed = arguments.seed;
  options_.threads = arguments.threads;
  options_.capacity = arguments.capacity;
  follow(options_);
}

void Watch::report(const std::function<nb::object()>& progress) noexcept {
  const nb::gil_scoped_acquire lock;
  if (failure_ != nullptr) return;
  try {
    if (PyErr_CheckSignals() != 0) {
      nb::python_error raised;
      if (!raised.matches(PyExc_KeyboardInterrupt)) throw raised;
      cancelled_.store(true);
    }
    if (progress && !progress_.is_none()) progress_(progress());
  } catch (nb::python_error& raised) {
    cancelled_.store(true);
    // Ctrl-C in the progress function is Ctrl-C.
    if (!raised.matches(PyExc_KeyboardInterrupt)) failure_ = std::current_exception();
  } catch (...) {
    failure_ = std::current_exception();
    cancelled_.store(true);
  }
}

void Watch::run(const std::function<void()>& search) {
  const nb::gil_scoped_release unlock;
  std::future<void> done = std::async(std::launch::async, search);
  while (done.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) report({});
  done.get();
}

void Watch::raise_if_failed() {
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace berth::python
