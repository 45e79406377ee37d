#include "csrc/torch/step/executor.h"

#include "csrc/core/check.h"
#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace berth::torch::step {

// As below autograd, autocast and the tap, whatever the thread has set.
class Executor::Below {
 public:
  Below()
      : keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
              c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
                  c10::DispatchKeySet(kTapKey)) {}
  ~Below() { c10::GradMode::set_enabled(gradients_); }
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

 private:
  const bool gradients_ = c10::GradMode::is_enabled();
  const c10::impl::ForceDispatchKeyGuard keys_;
};

// While it stands, the generator of these arguments has that state; then again what it had.
class Executor::Drawing {
 public:
  Drawing(at::Generator generator, const std::string& state)
      : generator_(std::move(generator)), before_(state_of(generator_)) {
    set_state(generator_, state);
  }
  ~Drawing() { set_state(generator_, before_); }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  at::Generator generator_;
  std::string before_;
};

Executor::Executor(const Program& program, const Instructions& instructions)
    : program_(program),
      instructions_(instructions),
      buffers_(instructions.storage_of.size()),
      ran_(program.calls.size()),
      holders_(program.storages.size(), kNoBuffer),
      versions_(program.storages.size(), 0),
      values_(program.calls.size()) {}

void Executor::take_over(Executor& other) {
  const std::size_t storages = std::min(holders_.size(), other.holders_.size());
  for (StorageNumber one = 0; one < storages; ++one)
    if (other.holders_[one] != kNoBuffer) bind(one, std::move(other.buffers_[other.holders_[one]]));
  const std::size_t calls = std::min(values_.size(), other.values_.size());
  std::move(other.values_.begin(), other.values_.begin() + static_cast<std::ptrdiff_t>(calls),
            values_.begin());
  generator_states_ = std::move(other.generator_states_);
}

void Executor::bind(StorageNumber number, c10::Storage storage) {
  const BufferNumber buffer = instructions_.first_of[number];
  buffers_[buffer] = std::move(storage);
  holders_[number] = buffer;
}

void Executor::set_value(std::uint32_t call, std::uint32_t argument, c10::IValue value) {
  values_[call].emplace_back(argument, std::move(value));
}

void Executor::set_generator_state(std::uint32_t call, std::string state) {
  generator_states_.insert_or_assign(call, std::move(state));
}

at::Tensor Executor::tensor(const Operand& operand, BufferNumber buffer) const {
  if (operand.storage == kNoStorage) return {};
  const c10::Storage& storage = buffers_[buffer];
  BERTH_ASSERT(storage, "buffer {} of storage {} is not there", buffer, operand.storage);
  return make_tensor(storage, operand, plain_keys(storage.device()));
}

void Executor::run(const Instruction& instruction, c10::Stack* stack) {
  const Call& call = program_.calls[instruction.call];
  const bool again = ran_[instruction.call];
  ran_[instruction.call] = true;
  if (call.by_body) return;
  std::uint32_t operand = 0;
  const auto next_tensor = [&] {
    const Operand& one = call.operands[operand];
    at::Tensor found = tensor(one, instruction.operands[operand]);
    const bool aside = std::count(call.aside.begin(), call.aside.end(), operand) > 0;
    ++operand;
    return again && aside ? at::empty_like(found) : found;
  };
  const std::size_t below = stack->size();
  for (const Argument& argument : call.arguments) {
    switch (argument.form) {
      case Form::kValue:
        stack->push_back(argument.value);
        break;
      case Form::kTensor:
        stack->emplace_back(next_tensor());
        break;
      case Form::kTensors: {
        c10::List<at::Tensor> list;
        list.reserve(argument.tensors);
        for (std::uint32_t n = 0; n < argument.tensors; ++n) list.push_back(next_tensor());
        stack->emplace_back(std::move(list));
        break;
      }
      case Form::kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        list.reserve(argument.tensors);
        for (std::uint32_t n = 0; n < argument.tensors; ++n) {
          at::Tensor one = next_tensor();
          list.push_back(one.defined() ? std::optional(std::move(one)) : std::nullopt);
        }
        stack->emplace_back(std::move(list));
        break;
      }
    }
  }
  for (const auto& [argument, value] : values_[instruction.call])
    (*stack)[below + argument] = value;

  std::optional<Drawing> drawing;
  if (call.random) {
    const auto told = generator_states_.find(instruction.call);
    const auto generator = [&] {
      return generator_of(c10::ArrayRef<c10::IValue>(*stack).slice(below));
    };
    if (told != generator_states_.end())
      drawing.emplace(generator(), told->second);
    else if (instruction.again_later)
      generator_states_.emplace(instruction.call, state_of(generator()));
  }
  c10::GradMode::set_enabled(call.gradients_on);
  call.op.callBoxed(stack);
  drawing.reset();

  std::size_t result = 0;
  for (std::size_t n = 0; n < call.results.size(); ++n)
    for_each_tensor((*stack)[below + n], call.results[n].form, [&](const at::Tensor& made) {
      const BufferNumber buffer = instruction.results[result++];
      if (buffer != kNoBuffer) buffers_[buffer] = made.storage();
    });
  for (const auto& [buffer, version] : instruction.made) {
    const StorageNumber storage = instructions_.storage_of[buffer];
    if (version < versions_[storage]) continue;  // an older one, made again
    versions_[storage] = version;
    holders_[storage] = buffer;
  }
}

void Executor::release(const Instruction& instruction, const Needed& needed) {
  const BufferNumber buffer = instruction.buffer;
  const StorageNumber storage = instructions_.storage_of[buffer];
  copies_.wait_for(buffer);
  // What somebody may still ask for, should the step go another way from here on.
  if (holders_[storage] == buffer && !instruction.made_again && needed(storage))
    kept_.push_back(buffer);
  else
    drop(buffer);
}

void Executor::drop(BufferNumber buffer) {
  buffers_[buffer] = {};
  copies_.drop(buffer);
}

void Executor::copy_out(BufferNumber buffer) {
  // What came from outside somebody else has: it stays.
  const StorageNumber storage = instructions_.storage_of[buffer];
  if (!buffers_[buffer] || program_.storages[storage].maker == RecordedStorage::kFromOutside) {
    copies_.skip_out();
    return;
  }
  copies_.out(buffer, std::move(buffers_[buffer]));
  buffers_[buffer] = {};
}

void Executor::copy_in(BufferNumber buffer) {
  if (!buffers_[buffer] && copies_.has(buffer)) buffers_[buffer] = copies_.in(buffer);
}

void Executor::end_copies(const Needed& needed) {
  copies_.end();
  for (StorageNumber storage = 0; storage < holders_.size(); ++storage) {
    const BufferNumber buffer = holders_[storage];
    if (buffer == kNoBuffer) continue;
    if (needed(storage)) copy_in(buffer);
    copies_.wait_for(buffer);
  }
}

void Executor::step(const Instruction& instruction, const Needed& needed, c10::Stack* results) {
  switch (instruction.kind) {
    case Instruction::Kind::kRelease:
      release(instruction, needed);
      return;
    case Instruction::Kind::kCopyOut:
      copy_out(instruction.buffer);
      return;
    case Instruction::Kind::kCopyIn:
      copies_.end_outs(instruction.outs_ended);
      copy_in(instruction.buffer);
      return;
    case Instruction::Kind::kRun:
      break;
  }
  copies_.end_outs(instruction.outs_ended);
  for (const BufferNumber operand : instruction.operands) copies_.wait_for(operand);
  stack_.clear();
  run(instruction, &stack_);
  if (results != nullptr) *results = stack_;
  stack_.clear();
}

c10::Storage* Executor::holder(StorageNumber number) {
  const BufferNumber buffer = holders_[number];
  return buffer != kNoBuffer && buffers_[buffer] ? &buffers_[buffer] : nullptr;
}

void Executor::run_through(std::uint32_t call, const Needed& needed, c10::Stack* results) {
  const Below below;
  while (!ran_[call]) {
    const Instruction& instruction = instructions_.list.at(next_++);
    const bool last = instruction.kind == Instruction::Kind::kRun && instruction.call == call;
    step(instruction, needed, last ? results : nullptr);
  }
}

void Executor::finish(const Needed& needed) {
  const Below below;
  for (const BufferNumber buffer : std::exchange(kept_, {}))
    if (!needed(instructions_.storage_of[buffer])) drop(buffer);
  for (; next_ < instructions_.list.size(); ++next_)
    step(instructions_.list[next_], needed, nullptr);
  end_copies(needed);
}

void Executor::catch_up(std::uint32_t calls, const Needed& needed) {
  // The list without the calls that the body has not made is a schedule, too: nothing that it
  // called takes what it has not. Of what is run again all is, since it may be needed.
  const Below below;
  for (; next_ < instructions_.list.size(); ++next_) {
    const Instruction& instruction = instructions_.list[next_];
    if (instruction.kind == Instruction::Kind::kCopyOut)
      copies_.skip_out();
    else if (instruction.kind != Instruction::Kind::kRun || instruction.call < calls)
      step(instruction, needed, nullptr);
  }
  end_copies(needed);
  for (BufferNumber buffer = 0; buffer < buffers_.size(); ++buffer) {
    const StorageNumber storage = instructions_.storage_of[buffer];
    if (holders_[storage] != buffer || !needed(storage)) drop(buffer);
  }
}

}  // namespace berth::torch::step
