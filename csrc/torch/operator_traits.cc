#include "csrc/torch/operator_traits.h"

#include "csrc/torch/per_recorder.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <unordered_map>

namespace berth::torch {

namespace {

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept {
    return std::hash<std::string_view>()(name);
  }
};

trace::Access access(const c10::Argument& argument) {
  const c10::AliasInfo* alias = argument.alias_info();
  if (alias == nullptr || !alias->isWrite()) return trace::Access::kRead;
  // `out=` arguments come by keyword, those changed in place do not.
  return argument.kwarg_only() ? trace::Access::kWrite : trace::Access::kReadWrite;
}

OperatorTraits make_traits(const at::RecordFunction& function, Recorder& recorder) {
  OperatorTraits traits;
  traits.name = recorder.intern(function.name());
  const std::string_view name = function.name();
  const bool node = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  traits.backward = node || name.starts_with("autograd::engine::evaluate_function");
  traits.accumulates_gradient = node && name.ends_with("AccumulateGrad");
  if (const auto schema = function.operator_schema()) {
    for (const c10::Argument& argument : schema->arguments()) {
      traits.arguments.push_back(access(argument));
      traits.changes_state |= traits.arguments.back() != trace::Access::kRead;
    }
    if (const auto op = c10::Dispatcher::singleton().findSchema(schema->operator_name()))
      traits.random = op->hasTag(at::Tag::nondeterministic_seeded);
  }
  return traits;
}

}  // namespace

const OperatorTraits& traits_of(const at::RecordFunction& function, Recorder& recorder) {
  // Names of overloads differ after the dot; a node's name has none.
  using Known = std::unordered_map<std::string, OperatorTraits, NameHash, std::equal_to<>>;
  thread_local PerRecorder<Known> known_of;
  Known& known = known_of.get(recorder);
  thread_local std::string key;
  key.assign(function.name());
  key.push_back('.');
  key.append(function.overload_name());
  const auto found = known.find(key);
  if (found != known.end()) [[likely]]
    return found->second;
  return known.emplace(key, make_traits(function, recorder)).first->second;
}

}  // namespace berth::torch
