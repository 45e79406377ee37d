#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
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

// The whole state of a generator. libtorch's generators of the CPU are copied without a request to
// an allocator: 2.5 KiB. The state of any other is what its get_state() gives. The tap does not see
// the call.
class GeneratorState {
 public:
  // The present state.
  explicit GeneratorState(at::Generator generator);
  // The generator has this state from now on. It must be the one that the state is of, or its like.
  void set(at::Generator generator) const;
  friend bool operator==(const GeneratorState& one, const GeneratorState& other);

 private:
  struct Cpu {
    at::mt19937_data_pod engine;
    std::optional<float> next_float;
    std::optional<double> next_double;
  };
  std::variant<Cpu, std::string> state_;
};

// The last seen states of the generators that a step draws from. O(state) a call.
class GeneratorStates {
 public:
  // Whether the generator's state is the last seen one. Notes a new generator, and is true then.
  [[nodiscard]] bool unchanged(const at::Generator& generator);
  // Whether the generator is noted.
  [[nodiscard]] bool has(const at::Generator& generator) const;
  // Notes its present state.
  void see(const at::Generator& generator);
  // The same for all noted generators.
  void see();
  // Whether all states are the last seen ones.
  [[nodiscard]] bool unchanged() const;
  // Restores the last seen state of each changed generator. Returns the states before.
  using States = std::vector<std::pair<at::Generator, GeneratorState>>;
  [[nodiscard]] States put_back() const;
  static void set(const States& states);

 private:
  States seen_;
};

}  // namespace berth::torch::step
