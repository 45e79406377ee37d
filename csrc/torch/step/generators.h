#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace berth::torch::step {

// The generator that an operator with these arguments draws from: the one among them, else that of
// its device.
[[nodiscard]] at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments);

// Whether the value is a generator that the program has made.
[[nodiscard]] bool is_own_generator(const c10::IValue& value);
// Whether a call may take this generator where that one was recorded: both are the program's own,
// and of one device. Draws keep their order, whichever generators they are from.
[[nodiscard]] bool may_stand_for(const c10::IValue& value, const c10::IValue& recorded);

// The whole state of a generator: 5 KiB on the CPU. The tap does not see the call.
[[nodiscard]] std::string state_of(at::Generator generator);
void set_state(at::Generator generator, const std::string& state);

// The last seen states of the generators that a step draws from. O(state) a call: 5 KiB on the CPU.
class GeneratorStates {
 public:
  // Whether the generator's state is the last seen one. Notes a new generator, and is true then.
  [[nodiscard]] bool unchanged(const at::Generator& generator);
  // Notes its present state.
  void see(const at::Generator& generator);
  // The same for all noted generators.
  void see();
  // Whether all states are the last seen ones.
  [[nodiscard]] bool unchanged() const;
  // Restores the last seen state of each changed generator. Returns the states before.
  using States = std::vector<std::pair<at::Generator, std::string>>;
  [[nodiscard]] States put_back() const;
  static void set(const States& states);

 private:
  States seen_;
};

}  // namespace berth::torch::step
