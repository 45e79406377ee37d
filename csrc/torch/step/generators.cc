#include "csrc/torch/step/generators.h"

#include "csrc/torch/step/tap.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace berth::torch::step {

std::string state_of(at::Generator generator) {
  const c10::impl::ExcludeDispatchKeyGuard off(kTapKey);
  const std::lock_guard lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

void set_state(at::Generator generator, const std::string& bytes) {
  const c10::impl::ExcludeDispatchKeyGuard off(kTapKey);
  const std::lock_guard lock(generator.mutex());
  at::Tensor state = at::detail::empty_cpu({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), bytes.data(), bytes.size());
  generator.set_state(state);
}

at::Generator generator_of(c10::ArrayRef<c10::IValue> arguments) {
  c10::Device device = at::kCPU;
  bool found = false;
  const auto see = [&](c10::Device one) {
    if (!std::exchange(found, true)) device = one;
  };
  for (const c10::IValue& value : arguments) {
    if (value.isGenerator()) return value.toGenerator();
    if (value.isTensor() && value.toTensor().defined()) see(value.toTensor().device());
    if (value.isDevice()) see(value.toDevice());
  }
  return at::globalContext().defaultGenerator(device);
}

bool is_own_generator(const c10::IValue& value) {
  if (!value.isGenerator() || !value.toGenerator().defined()) return false;
  const at::Generator& generator = value.toGenerator();
  return generator != at::globalContext().defaultGenerator(generator.device());
}

bool may_stand_for(const c10::IValue& value, const c10::IValue& recorded) {
  if (value.isStream()) return recorded.isStream();
  return is_own_generator(value) && is_own_generator(recorded) &&
         value.toGenerator().device() == recorded.toGenerator().device();
}

bool GeneratorStates::unchanged(const at::Generator& generator) {
  const auto seen = std::find_if(seen_.begin(), seen_.end(),
                                 [&](const auto& one) { return one.first == generator; });
  if (seen != seen_.end()) return seen->second == state_of(generator);
  seen_.emplace_back(generator, state_of(generator));
  return true;
}

void GeneratorStates::see(const at::Generator& generator) {
  for (auto& [seen, state] : seen_)
    if (seen == generator) state = state_of(generator);
}

void GeneratorStates::see() {
  for (auto& [seen, state] : seen_) state = state_of(seen);
}

bool GeneratorStates::unchanged() const {
  return std::all_of(seen_.begin(), seen_.end(),
                     [](const auto& one) { return one.second == state_of(one.first); });
}

GeneratorStates::States GeneratorStates::put_back() const {
  States before;
  for (const auto& [generator, state] : seen_) {
    std::string now = state_of(generator);
    if (now == state) continue;
    set_state(generator, state);
    before.emplace_back(generator, std::move(now));
  }
  return before;
}

void GeneratorStates::set(const States& states) {
  for (const auto& [generator, state] : states) set_state(generator, state);
}

}  // namespace berth::torch::step
