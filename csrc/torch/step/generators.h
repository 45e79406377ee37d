#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace berth::torch::step {

// The generator that an operator with these arguments draws from: one that it is given, else its
// device's own.
[[nodiscard]] at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments);

// All of its state, to be set again: 5 KiB on the CPU. Not seen as an operator.
[[nodiscard]] std::string state_of(at::Generator generator);
void set_state(at::Generator generator, const std::string& state);

// The states of the generators that a step draws from, as they were last seen. O(state) a call: 5
// KiB on the CPU.
class GeneratorStates {
 public:
  // Whether the generator is as it was last seen; true where it was not seen before, which notes
  // it.
  [[nodiscard]] bool unchanged(const at::Generator& generator);
  // Notes how it is now.
  void see(const at::Generator& generator);
  // The same of all that were seen.
  void see();
  // Whether all are as they were last seen.
  [[nodiscard]] bool unchanged() const;
  // Puts those that have changed back to how they were last seen, and returns what they were.
  using States = std::vector<std::pair<at::Generator, std::string>>;
  [[nodiscard]] States put_back() const;
  static void set(const States& states);

 private:
  States seen_;
};

}  // namespace berth::torch::step
