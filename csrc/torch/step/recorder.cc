#include "csrc/torch/step/recorder.h"

#include "csrc/torch/step/captures.h"
#include "csrc/torch/step/kernel_cost.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace berth::torch::step {

std::string name_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + '.' + name.overload_name;
}

Recorder::Recorder(const Program& program, std::size_t calls,
                   std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages)
    : held_(std::move(storages)) {
  record_.sets_generators = program.sets_generators;
  for (std::size_t n = 0; n < calls; ++n)
    if (program.calls[n].random && !facts_of(program.calls[n].op).draws_by_shape)
      draws_by_contents_ = name_of(program.calls[n].op);
  record_.calls.assign(program.calls.begin(),
                       program.calls.begin() + static_cast<std::ptrdiff_t>(calls));
  record_.storages.assign(program.storages.begin(),
                          program.storages.begin() + static_cast<std::ptrdiff_t>(held_.size()));
  for (StorageNumber number = 0; number < held_.size(); ++number) {
    record_.storages[number].identity = held_[number]._unsafe_get_target();
    if (!held_[number].expired()) record_.storages[number].gone = RecordedStorage::kNever;
    numbers_.emplace(record_.storages[number].identity, number);
    alive_.push_back(number);
  }
}

void Recorder::refuse(const c10::OperatorHandle& op, std::string_view why) {
  if (record_.refusal.empty()) record_.refusal = fmt::format("{} {}", name_of(op), why);
}

StorageNumber Recorder::number_of(const at::Tensor& tensor, std::uint32_t maker) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto [found, fresh] =
      numbers_.try_emplace(storage, static_cast<StorageNumber>(record_.storages.size()));
  if (fresh) {
    held_.emplace_back(tensor.storage().getWeakStorageImpl());
    alive_.push_back(found->second);
    record_.storages.push_back({.bytes = storage->nbytes(),
                                .device = storage->device(),
                                .allocator = storage->allocator(),
                                .maker = maker,
                                .identity = storage});
  }
  return found->second;
}

void Recorder::drop_dead() {
  const auto dead = [&](StorageNumber number) {
    if (!held_[number].expired()) return false;
    numbers_.erase(record_.storages[number].identity);
    record_.storages[number].identity = nullptr;
    // A step that left its program may have let go of it before.
    record_.storages[number].gone =
        std::min(record_.storages[number].gone, static_cast<std::uint32_t>(record_.calls.size()));
    held_[number].reset();
    return true;
  };
  alive_.erase(std::remove_if(alive_.begin(), alive_.end(), dead), alive_.end());
}

void Recorder::describe_arguments(Call& call, c10::ArrayRef<c10::IValue> arguments) {
  const OperatorFacts& facts = facts_of(call.op);
  const bool trains =
      facts.training == OperatorFacts::kAlways || arguments[facts.training].toBool();
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    const c10::IValue& value = arguments[n];
    Argument& argument = call.arguments.emplace_back();
    argument.form = form_of(value);
    if (argument.form == Form::kValue) {
      argument.value = value;
      argument.scalar = facts.scalars[n];
      if (!is_plain_value(value))
        refuse(call.op, fmt::format("takes a {}, which no step program can keep", value.tagKind()));
    }
    for_each_tensor(value, argument.form, [&](const at::Tensor& tensor) {
      ++argument.tensors;
      if (const std::string_view why = why_refused(tensor); !why.empty()) {
        refuse(call.op, fmt::format("takes a tensor that {}", why));
        call.operands.emplace_back();
        return;
      }
      const auto operand = static_cast<std::uint32_t>(call.operands.size());
      if (facts.writes[n] && tensor.defined()) call.writes.push_back(operand);
      if (facts.aside[n] && trains && tensor.defined()) call.aside.push_back(operand);
      call.operands.push_back(
          tensor.defined() ? describe(tensor, number_of(tensor, RecordedStorage::kFromOutside))
                           : Operand());
    });
  }
}

void Recorder::describe_results(Call& call, c10::ArrayRef<c10::IValue> results,
                                const std::vector<at::TensorImpl*>& operands) {
  const auto maker = static_cast<std::uint32_t>(record_.calls.size());
  for (const c10::IValue& value : results) {
    Result& result = call.results.emplace_back();
    result.form = form_of(value);
    if (result.form == Form::kValue) {
      const auto& returned = call.op.schema().returns()[call.results.size() - 1];
      if (returned.real_type()->kind() == c10::TypeKind::SymIntType)
        result.value = value;
      else
        call.host_read = true;
    }
    for_each_tensor(value, result.form, [&](const at::Tensor& tensor) {
      ++result.tensors;
      ResultTensor& one = call.result_tensors.emplace_back();
      if (!tensor.defined()) return;
      if (const std::string_view why = why_refused(tensor); !why.empty()) {
        refuse(call.op, fmt::format("makes a tensor that {}", why));
        return;
      }
      const auto same = std::find(operands.begin(), operands.end(), tensor.unsafeGetTensorImpl());
      if (same != operands.end()) {
        one.argument = static_cast<std::uint32_t>(same - operands.begin());
        // What an operator returns as it came must not have changed its shape.
        if (!matches(tensor, call.operands[one.argument]))
          refuse(call.op, "changes the shape of a tensor in place");
        return;
      }
      one.operand = describe(tensor, number_of(tensor, maker));
      one.keys = tensor.key_set();
    });
  }
}

void Recorder::call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  const OperatorFacts& facts = facts_of(op);
  const std::lock_guard lock(mutex_);
  const std::size_t arguments = op.schema().arguments().size();
  if (makes_view(facts, c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arguments))) {
    run_kernel(op, keys, stack);
    return;
  }
  if (const std::string why =
          why_refused(op, c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arguments));
      !why.empty())
    refuse(op, why);
  if (is_captured(c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arguments)))
    refuse(op, "is captured into a graph, before the step is known: steps are recorded outside");
  if (!record_.refusal.empty()) {
    run_kernel(op, keys, stack);
    return;
  }
  drop_dead();
  Call call(op);
  call.gradients_on = at::GradMode::is_enabled();
  call.random = facts.random;
  call.host_read = facts.host_read;
  call.backward = ::torch::autograd::get_current_graph_task_id() != -1;
  describe_arguments(call, c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arguments));

  // To tell results that are arguments. Only compared, never followed.
  std::vector<at::TensorImpl*> operands;
  std::vector<c10::VariableVersion> counters;  // of those that are written
  std::vector<std::uint32_t> versions;
  for (const c10::IValue& value :
       c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - arguments))
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      operands.push_back(tensor.unsafeGetTensorImpl());
    });
  for (const std::uint32_t written : call.writes) {
    counters.push_back(operands[written]->version_counter());
    versions.push_back(counters.back().enabled() ? counters.back().current_version() : 0);
  }
  const std::size_t below = stack->size() - arguments;
  at::Generator generator;
  if (call.random) {
    generator = generator_of(c10::ArrayRef<c10::IValue>(*stack).slice(below));
    record_.sets_generators |= !generators_.unchanged(generator);
    if (!facts.draws_by_shape && draws_by_contents_.empty()) draws_by_contents_ = name_of(op);
  }
  if (hidden_)
    if (const std::string why =
            hidden_->before(call, c10::ArrayRef<c10::IValue>(*stack).slice(below));
        !why.empty())
      refuse(op, why);
  c10::Stack given;  // what the kernel takes from the stack
  if (hidden_) given.assign(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  {
    const KernelCost cost(c10::ArrayRef<c10::IValue>(*stack).slice(below));
    run_kernel(op, keys, stack);
    call.ns = cost.ns(c10::ArrayRef<c10::IValue>(*stack).slice(below));
    // Results are part of what is held at the end; a workspace is what there was besides.
    call.workspace = cost.peak() > cost.held() ? cost.peak() - cost.held() : 0;
  }
  if (call.random) generators_.see(generator);
  for (std::size_t n = 0; n < counters.size(); ++n)
    if (counters[n].enabled() && counters[n].current_version() != versions[n])
      call.versions.emplace_back(call.writes[n], counters[n].current_version() - versions[n]);
  describe_results(call, c10::ArrayRef<c10::IValue>(*stack).slice(below), operands);
  if (hidden_)
    if (const std::string why =
            hidden_->after(call, given, c10::ArrayRef<c10::IValue>(*stack).slice(below));
        !why.empty())
      refuse(op, why);
  for (const std::uint32_t written : call.writes) {
    const Operand& operand = call.operands[written];
    if (operand.storage == kNoStorage) continue;
    const auto storage = held_[operand.storage].lock();
    if (storage != nullptr && storage->nbytes() != record_.storages[operand.storage].bytes)
      refuse(op, "changes the size of a tensor in place");
  }
  record_.calls.push_back(std::move(call));
}

StepRecord Recorder::take() {
  const std::lock_guard lock(mutex_);
  record_.sets_generators |= !generators_.unchanged();
  if (record_.sets_generators && record_.refusal.empty() && !draws_by_contents_.empty())
    record_.refusal = fmt::format(
        "{} draws from a generator that the step sets, as often as its arguments' contents say",
        draws_by_contents_);
  drop_dead();
  for (StorageNumber number = 0; number < held_.size(); ++number)
    record_.storages[number].outlives = !held_[number].expired();
  alive_.clear();
  record_.held = std::move(held_);
  numbers_.clear();
  draws_by_contents_.clear();
  // A copy, since what was written down during the step stands between the step's own blocks in the
  // heap, which could not give them back.
  StepRecord copy = record_;
  record_ = {};
  return copy;
}

}  // namespace berth::torch::step
