#pragma once

namespace berth::torch::step {

// What the libraries that the process has loaded beside libtorch's own can do, by the names of what
// they take from others.
struct Libraries {
  bool begin_profiles = false;  // of libtorch's profilers
  bool start_threads = false;   // and call libtorch
};

// Of those that are there. O(names of all libraries) where another one has been loaded since, else
// some 100 ns. Thread-safe.
[[nodiscard]] Libraries libraries();

}  // namespace berth::torch::step
