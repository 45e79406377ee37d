#include "csrc/torch/step/generators.h"

#include "csrc/torch/step/tap.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

namespace berth::torch::step {

namespace {

// Whose engine is all of its state; another may only claim to be of the CPU.
at::CPUGeneratorImpl* cpu_generator(const at::Generator& generator) {
  return dynamic_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
}

bool is_equal(const at::mt19937_data_pod& one, const at::mt19937_data_pod& other) {
  return one.seed_ == other.seed_ && one.left_ == other.left_ && one.seeded_ == other.seeded_ &&
         one.next_ == other.next_ && one.state_ == other.state_;
}

}  // namespace

GeneratorState::GeneratorState(at::Generator generator) {
  const c10::impl::ExcludeDispatchKeyGuard off(kTapKey);
  const std::lock_guard lock(generator.mutex());
  if (at::CPUGeneratorImpl* const cpu = cpu_generator(generator)) {
    state_ = Cpu{.engine = cpu->engine().data(),
                 .next_float = cpu->next_float_normal_sample(),
                 .next_double = cpu->next_double_normal_sample()};
    return;
  }
  const at::Tensor state = generator.get_state();
  state_ = std::string(static_cast<const char*>(state.const_data_ptr()), state.nbytes());
}

void GeneratorState::set(at::Generator generator) const {
  const c10::impl::ExcludeDispatchKeyGuard off(kTapKey);
  const std::lock_guard lock(generator.mutex());
  if (const Cpu* const state = std::get_if<Cpu>(&state_)) {
    at::CPUGeneratorImpl* const cpu = cpu_generator(generator);
    TORCH_INTERNAL_ASSERT(cpu != nullptr);
    at::mt19937 engine;
    engine.set_data(state->engine);
    cpu->set_engine(engine);
    cpu->set_next_float_normal_sample(state->next_float);
    cpu->set_next_double_normal_sample(state->next_double);
    return;
  }
  const std::string& bytes = std::get<std::string>(state_);
  at::Tensor state = at::detail::empty_cpu({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), bytes.data(), bytes.size());
  generator.set_state(state);
}

bool operator==(const GeneratorState& one, const GeneratorState& other) {
  const auto* const cpu = std::get_if<GeneratorState::Cpu>(&one.state_);
  const auto* const other_cpu = std::get_if<GeneratorState::Cpu>(&other.state_);
  if (cpu == nullptr || other_cpu == nullptr)
    return cpu == other_cpu &&
           std::get<std::string>(one.state_) == std::get<std::string>(other.state_);
  return is_equal(cpu->engine, other_cpu->engine) && cpu->next_float == other_cpu->next_float &&
         cpu->next_double == other_cpu->next_double;
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
  if (seen != seen_.end()) return seen->second == GeneratorState(generator);
  seen_.emplace_back(generator, GeneratorState(generator));
  return true;
}

bool GeneratorStates::has(const at::Generator& generator) const {
  return std::any_of(seen_.begin(), seen_.end(),
                     [&](const auto& one) { return one.first == generator; });
}

void GeneratorStates::see(const at::Generator& generator) {
  for (auto& [seen, state] : seen_)
    if (seen == generator) state = GeneratorState(generator);
}

void GeneratorStates::see() {
  for (auto& [seen, state] : seen_) state = GeneratorState(seen);
}

bool GeneratorStates::unchanged() const {
  return std::all_of(seen_.begin(), seen_.end(),
                     [](const auto& one) { return one.second == GeneratorState(one.first); });
}

GeneratorStates::States GeneratorStates::put_back() const {
  States before;
  for (const auto& [generator, state] : seen_) {
    GeneratorState now(generator);
    if (now == state) continue;
    state.set(generator);
    before.emplace_back(generator, std::move(now));
  }
  return before;
}

void GeneratorStates::set(const States& states) {
  for (const auto& [generator, state] : states) state.set(generator);
}

}  // namespace berth::torch::step
