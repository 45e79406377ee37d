#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace berth::torch::step {

// What a process or a thread has set that kernels below autograd go by, beside their arguments:
// default type, deterministic algorithms, precision of float32, libraries that are switched on or
// off, number of threads, how the processor rounds. Not among them, since it shows in the calls
// themselves: the choice of attention's kernel, grad mode; autocast has autocast.h.
class Modes {
 public:
  static constexpr std::size_t kCount = 27;

  // As they are for this thread. O(1): some 30 ns.
  [[nodiscard]] static Modes now();
  // Whether now() would be the same, without making it.
  [[nodiscard]] bool are_now() const;
  // Sets those that are not so. Inference mode is not set: it decides what results are to autograd,
  // not their bytes.
  void set() const;
  // One that differs, as torch names it; empty where none does.
  [[nodiscard]] std::string_view difference(const Modes& other) const;
  bool operator==(const Modes&) const = default;

 private:
  std::array<std::int64_t, kCount> values_{};
};

// While it stands, others may be set; then they are again as they were.
class ModesGuard {
 public:
  ModesGuard() : before_(Modes::now()), set_(before_) {}
  ~ModesGuard() { use(before_); }
  ModesGuard(const ModesGuard&) = delete;
  ModesGuard& operator=(const ModesGuard&) = delete;
  void use(const Modes& modes) {
    if (modes == set_) return;
    modes.set();
    set_ = modes;
  }

 private:
  const Modes before_;
  Modes set_;
};

}  // namespace berth::torch::step
