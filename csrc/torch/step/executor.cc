#include "csrc/torch/step/executor.h"

#include "csrc/core/check.h"
#include "csrc/torch/step/algorithms.h"
#include "csrc/torch/step/hidden_writes.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/spill_parts.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace berth::torch::step {

// As below autograd, autocast and the tap, and as each call found it, whatever the thread has set.
class Executor::Below {
 public:
  explicit Below(Executor& executor)
      : executor_(executor),
        keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
              c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
                  c10::DispatchKeySet(kTapKey)) {
    executor_.below_ = this;
  }
  ~Below() {
    executor_.below_ = nullptr;
    c10::GradMode::set_enabled(gradients_);
  }
  Below(const Below&) = delete;
  Below& operator=(const Below&) = delete;

  void use_modes_of(const Call& call) {
    c10::GradMode::set_enabled(call.gradients_on);
    // mutant: barrier-modes-set
    if (std::exchange(last_, call.modes.get()) != call.modes.get()) modes_.use(*call.modes);
  }

 private:
  Executor& executor_;
  ModesGuard modes_;
  const Modes* last_ = nullptr;
  const bool gradients_ = c10::GradMode::is_enabled();
  const c10::impl::ForceDispatchKeyGuard keys_;
};

// While it stands, the generator of these arguments has that state; then again what it had.
class Executor::Drawing {
 public:
  Drawing(at::Generator generator, const GeneratorState& state)
      : generator_(std::move(generator)), before_(generator_) {
    state.set(generator_);
  }
  ~Drawing() { before_.set(generator_); }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

 private:
  at::Generator generator_;
  GeneratorState before_;
};

namespace {

bool copies_any(const Program& program) {
  return std::any_of(program.calls.begin(), program.calls.end(),
                     [](const Call& call) { return !call.copied.empty(); });
}

}  // namespace

Executor::Executor(const Program& program, const Instructions& instructions,
                   std::pmr::memory_resource* memory, KernelTimes* times)
    : program_(program),
      instructions_(instructions),
      times_(times),
      buffers_(program, instructions, memory),
      ran_(program.calls.size(), memory),
      values_(program.calls.size(), memory),
      offsets_(program.calls.size(), memory),
      taken_(copies_any(program) ? program.calls.size() : 0, memory) {
  if (times_ != nullptr) times_->begin_step();
  for (const StorageNumber one : instructions.begin_on_host)
    if (const c10::Storage there = resident(one)) copies_.begin_without(there);
}

void Executor::take_over(Executor& other, std::uint32_t calls) {
  const std::size_t storages = std::min(buffers_.storages(), other.buffers_.storages());
  for (StorageNumber one = 0; one < storages; ++one)
    if (const BufferNumber from = other.buffers_.holder(one);
        from != kNoBuffer && program_.storages[one].maker == RecordedStorage::kFromOutside)
      bind(one, std::move(other.buffers_[from]));
  const auto move = [](auto& from, auto& to) {
    std::move(from.begin(), from.begin() + std::ssize(from.size() < to.size() ? from : to),
              to.begin());
  };
  move(other.values_, values_), move(other.offsets_, offsets_), move(other.taken_, taken_);
  // mutant: step-equal-number
  for (std::uint32_t call = 0; call < calls; ++call)
    for (auto& given : values_of(other.program_.calls[call], program_.calls[call]))
      values_[call].insert(values_[call].begin(), std::move(given));
  // Those that calls left which run again they leave again.
  if (program_.sets_generators) generator_states_ = std::move(other.generator_states_);
}

void Executor::begin_behind(std::uint32_t calls, const There& there, const Needed& needed) {
  left_traces_ = true;
  for (; next_ < instructions_.list.size(); ++next_) {
    const Instruction& one = instructions_.list[next_];
    if (one.kind == Instruction::Kind::kRelease) {
      release(one, needed);
      continue;
    }
    BERTH_ASSERT(one.kind == Instruction::Kind::kRun, "a step as recorded copies nothing");
    if (one.call >= calls) return;
    ran_[one.call] = 1;
    for (const Instruction::Made& made : one.made) {
      if (gives(made.storage)) continue;
      const auto found = there.find(made.storage);
      buffers_[made.buffer] = found == there.end() ? c10::Storage() : found->second;
    }
    buffers_.note_made(one);
  }
}

bool Executor::may_try_again() {
  if (next_ >= instructions_.list.size() || tried_again_ == next_) return false;
  tried_again_ = next_;
  const Instruction& failed = instructions_.list[next_];
  if (failed.kind != Instruction::Kind::kRun) return false;
  const Call& call = program_.calls[failed.call];
  return call.writes.empty() && !call.random && failed.storage == kNoStorage;
}

void Executor::bind(StorageNumber number, c10::Storage storage) {
  buffers_.bind(number, std::move(storage));
}

void Executor::set_value(std::uint32_t call, std::uint32_t argument, c10::IValue value) {
  values_[call].emplace_back(argument, std::move(value));
}

void Executor::set_offset(std::uint32_t call, std::uint32_t operand, std::int64_t offset) {
  if (offset != 0 || !offsets_[call].empty()) offsets_[call].emplace_back(operand, offset);
}

void Executor::set_copy(std::uint32_t call, std::uint32_t operand, at::Tensor copy) {
  taken_[call].emplace_back(operand, std::move(copy));
}

void Executor::set_generator_state(std::uint32_t call, GeneratorState state) {
  generator_states_.insert_or_assign(call, std::move(state));
}

void Executor::expect_bytes(std::uint32_t call, std::uint32_t operand, std::uint64_t hash) {
  expected_bytes_[call].push_back({operand, hash});
}

void Executor::check_bytes(const Instruction& instruction) const {
  const auto expected = expected_bytes_.find(instruction.call);
  if (expected == expected_bytes_.end() || instruction.count != Instruction::kAll) return;
  for (const ExpectedBytes& one : expected->second) {
    const BufferNumber buffer = instruction.operands[one.operand];
    TORCH_CHECK(buffer == kNoBuffer || !buffers_[buffer] ||
                    hash_of_bytes(*buffers_[buffer].unsafeGetStorageImpl()) == one.hash,
                words_of(program_.calls[instruction.call].op),
                " takes a tensor whose bytes were written behind libtorch's operators between the "
                "call and its run in a step that berth runs by a schedule (argument tensor ",
                one.operand, "). Say so by berth::torch::share_bytes(), in Python by numpy()");
  }
}

at::Tensor Executor::tensor(std::uint32_t call, std::uint32_t number, BufferNumber buffer) const {
  const Operand& operand = program_.calls[call].operands[number];
  if (operand.storage == kNoStorage) return {};
  if (!taken_.empty()) [[unlikely]]
    for (const auto& [of, copy] : taken_[call]) {
      // mutant: barrier-copied
      if (of == number) return copy;
    }
  const c10::Storage& storage = buffers_[buffer];
  BERTH_ASSERT(storage, "buffer {} of storage {} is not there", buffer, operand.storage);
  at::Tensor made = make_tensor(storage, operand, plain_keys(storage.device()));
  if (operand.moves && !offsets_[call].empty()) [[unlikely]] {
    const auto& given = offsets_[call];
    const auto last = std::find_if(given.rbegin(), given.rend(),
                                   [&](const auto& one) { return one.first == number; });
    if (last != given.rend()) made.unsafeGetTensorImpl()->set_storage_offset(last->second);
  }
  return made;
}

namespace {

// The elements of a list of numbers that a part of a call takes.
c10::IValue slice(const c10::IValue& list, std::uint32_t first, std::uint32_t count) {
  const c10::List<c10::IValue> all = list.toList();
  c10::impl::GenericList some(all.elementType());
  some.reserve(count);
  for (std::uint32_t n = first; n < first + count; ++n) some.push_back(all.get(n));
  return some;
}

}  // namespace

void Executor::push_arguments(const Instruction& instruction, bool again, c10::Stack* stack) {
  const Call& call = program_.calls[instruction.call];
  const bool whole = instruction.count == Instruction::kAll;
  std::uint32_t number = 0, operand = 0;  // of the call's operands, of the instruction's
  const auto next_tensor = [&] {
    const BufferNumber buffer = instruction.operands[operand++];
    at::Tensor found = tensor(instruction.call, number, buffer);
    const bool aside =
        !call.aside.empty() && std::count(call.aside.begin(), call.aside.end(), number) > 0;
    ++number;
    if (!aside) return found;
    // mutant: step-aside
    if (again) return at::empty_like(found);
    if (!beside_) return found;
    const auto [shadow, fresh] = shadows_.try_emplace(buffer);
    if (fresh) shadow->second = {found, at::clone(found)};
    return shadow->second.instead;
  };
  std::uint32_t elements = 0;  // of the lists
  for (const Argument& argument : call.arguments)
    if (argument.form == Form::kTensors) elements = std::max(elements, argument.tensors);
  const auto& values = values_[instruction.call];
  for (std::uint32_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& argument = call.arguments[n];
    switch (argument.form) {
      case Form::kValue: {
        const auto given = std::find_if(values.rbegin(), values.rend(),
                                        [&](const auto& one) { return one.first == n; });
        const c10::IValue& value = given != values.rend() ? given->second : argument.value;
        const bool cut =
            !whole && argument.scalar && value.isList() && value.toListRef().size() == elements;
        stack->push_back(cut ? slice(value, instruction.first, instruction.count) : value);
        break;
      }
      case Form::kNested:
        BERTH_ASSERT(false, "call {} is a barrier, which the body runs", instruction.call);
        break;
      case Form::kTensor:
        stack->emplace_back(next_tensor());
        break;
      case Form::kTensors: {
        const bool cut = !whole && argument.tensors > 0;
        const std::uint32_t end = number + argument.tensors;
        const std::uint32_t count = cut ? instruction.count : argument.tensors;
        if (cut) number += instruction.first;
        c10::List<at::Tensor> list;
        list.reserve(count);
        for (std::uint32_t k = 0; k < count; ++k) list.push_back(next_tensor());
        number = end;
        stack->emplace_back(std::move(list));
        break;
      }
      case Form::kOptionalTensors: {
        c10::List<std::optional<at::Tensor>> list;
        list.reserve(argument.tensors);
        for (std::uint32_t k = 0; k < argument.tensors; ++k) {
          at::Tensor one = next_tensor();
          list.push_back(one.defined() ? std::optional(std::move(one)) : std::nullopt);
        }
        stack->emplace_back(std::move(list));
        break;
      }
    }
  }
}

void Executor::run(const Instruction& instruction, const Needed& needed, c10::Stack* stack) {
  const Call& call = program_.calls[instruction.call];
  const bool again = ran_[instruction.call] != 0;
  BERTH_ASSERT(!call.barrier, "call {} is a barrier, which the body runs", instruction.call);
  if (call.by_body) {
    ran_[instruction.call] = 1;
    return;
  }
  if (!again && !expected_bytes_.empty()) check_bytes(instruction);
  const std::size_t below = stack->size();
  push_arguments(instruction, again, stack);
  bool over = false;  // whether the result takes an operand's bytes
  if (instruction.storage != kNoStorage) {
    copies_.wait_for(instruction.buffer);
    over = !keep(instruction, needed);
  }
  if (over && !call.twin->in_place)
    stack->emplace_back(make_tensor(buffers_[instruction.buffer],
                                    call.result_tensors.front().operand,
                                    plain_keys(buffers_[instruction.buffer].device())));

  std::optional<Drawing> drawing;
  if (call.random) {
    const auto told = generator_states_.find(instruction.call);
    const auto generator = [&] { return generator_of(last_of(*stack, stack->size() - below)); };
    // mutant: step-draw-again
    if (told != generator_states_.end())
      drawing.emplace(generator(), told->second);
    else if (instruction.again_later)
      generator_states_.emplace(instruction.call, GeneratorState(generator()));
  }
  below_->use_modes_of(call);
  for (const std::uint32_t written : call.writes)
    if (const StorageNumber storage = call.operands[written].storage; storage != kNoStorage)
      left_traces_ |= !beside_ && program_.storages[storage].of_body();
  const auto run_alternative = [&] {
    const Spills::Use use(call.op, *stack);
    return call.alternatives[instruction.alternative].algorithm->run(call, stack);
  };
  const bool other =
      !over && instruction.alternative != Instruction::kAsRecorded && run_alternative();
  if (!other) {
    // Of parts of a call, and beside a body that takes a core as well, times are not the call's.
    const bool measured = times_ != nullptr && !beside_ && instruction.count == Instruction::kAll;
    std::optional<KernelTimes::Kernel> kernel;
    if (measured) kernel.emplace(*times_, instruction.call, last_of(*stack, stack->size() - below));
    const c10::OperatorHandle& op = over ? call.twin->op : call.op;
    run_with_bytes(op, stack, [&](c10::Stack* part) {
      // mutant: spills-scheduled
      if (Spills::on() && facts_of(op).declared) [[unlikely]]
        run_kernel_of_others([&] { run_under_autocast(call.autocast, op, part); });
      else
        run_under_autocast(call.autocast, op, part);
    });
    if (kernel) kernel->end();
  }
  drawing.reset();
  if (!over && instruction.count == Instruction::kAll)
    check_results(call, last_of(*stack, stack->size() - below));
  if (call.to_host)
    for (const BufferNumber one : instruction.operands)
      if (one != kNoBuffer && buffers_[one] && !buffers_[one].device().is_cpu())
        copied_from_ = buffers_[one].device();
  note_run(instruction, last_of(*stack, stack->size() - below));
}

const Call* Executor::next_call() const {
  if (next_ >= instructions_.list.size()) return nullptr;
  const Instruction& next = instructions_.list[next_];
  return next.kind == Instruction::Kind::kRun ? &program_.calls[next.call] : nullptr;
}

void Executor::check_results(const Call& call, c10::ArrayRef<c10::IValue> results) const {
  std::size_t next = 0;
  const auto is_recorded = [&](const at::Tensor& made) {
    const ResultTensor& one = call.result_tensors[next++];
    if (one.argument != ResultTensor::kNew) return true;  // the operand, which was checked
    if (!made.defined()) return one.operand.storage == kNoStorage;
    if (one.operand.storage == kNoStorage || !matches(made, one.operand)) return false;
    const RecordedStorage& like = program_.storages[one.operand.storage];
    return made.storage().nbytes() == like.bytes && made.device() == like.device;
  };
  bool as_recorded = results.size() == call.results.size();
  for (std::size_t n = 0; n < call.results.size() && as_recorded; ++n) {
    std::uint32_t tensors = 0;
    as_recorded = form_of(results[n]) == call.results[n].form;
    for_each_tensor(results[n], call.results[n].form, [&](const at::Tensor& made) {
      as_recorded = as_recorded && tensors++ < call.results[n].tensors && is_recorded(made);
    });
  }
  if (as_recorded) return;
  note_shapes_by_data(call.op);
  TORCH_CHECK(
      false, words_of(call.op),
      " made a tensor of another shape, type or size than recorded. The step runs by a schedule, "
      "and the body used the recorded one. From the next step on the operator runs when it is "
      "called");
}

void Executor::note_run(const Instruction& instruction, c10::ArrayRef<c10::IValue> results) {
  const Call& call = program_.calls[instruction.call];
  ran_[instruction.call] = 1;
  std::size_t result = 0;
  for (std::size_t n = 0; n < call.results.size(); ++n)
    for_each_tensor(results[n], call.results[n].form, [&](const at::Tensor& made) {
      const BufferNumber buffer = instruction.results[result++];
      if (buffer != kNoBuffer) buffers_[buffer] = made.storage();
    });
  buffers_.note_made(instruction);
}

bool Executor::keep(const Instruction& instruction, const Needed& needed) {
  if (!buffers_.would_keep(instruction, needed)) return false;
  copy_in(instruction.buffer);
  buffers_.keep(instruction.buffer);
  return true;
}

void Executor::release(const Instruction& instruction, const Needed& needed) {
  copies_.wait_for(instruction.buffer);
  keep(instruction, needed);
  drop(instruction.buffer);
}

void Executor::drop(BufferNumber buffer) {
  if (const StorageNumber storage = buffers_.drop(buffer); storage != kNoStorage)
    left_traces_ |= program_.storages[storage].of_body();
  copies_.drop(buffer);
}

void Executor::copy_out(const Instruction& instruction) {
  const BufferNumber buffer = instruction.buffer;
  if (instruction.storage != kNoStorage &&
      program_.kinds[instruction.storage] == StorageKind::kResident) {
    if (const c10::Storage there = resident(instruction.storage))
      copies_.send(buffer, there);
    else
      copies_.skip_out();
    return;
  }
  // What somebody else has stays: what came from outside, and bytes that the body has got, which it
  // may write.
  // mutant: barrier-shared-stays
  const bool shared = buffers_[buffer].use_count() > 1;
  if (!buffers_[buffer] || shared || program_.storages[instruction.storage].of_body() ||
      program_.stays(instruction.storage)) {
    copies_.skip_out();
    return;
  }
  try {
    if (copies_.out(buffer, buffers_[buffer]))
      buffers_[buffer] = {};
    else
      copies_.skip_out();
  } catch (const std::exception&) {  // no memory on the host, or a device that fails: it stays
    copies_.skip_out();
  }
}

c10::Storage Executor::resident(StorageNumber number) const {
  const c10::Storage& bound = buffers_.first_of(number);
  return bound ? bound : Spills::get().find(program_.storages[number].identity);
}

void Executor::copy_in(const Instruction& instruction) {
  if (instruction.storage == kNoStorage ||
      program_.kinds[instruction.storage] != StorageKind::kResident)
    copy_in(instruction.buffer);
  else if (const c10::Storage away = resident(instruction.storage))
    copies_.fetch(instruction.buffer, away);
}

void Executor::copy_in(BufferNumber buffer) {
  if (!buffers_[buffer] && copies_.has(buffer)) buffers_[buffer] = copies_.in(buffer);
}

void Executor::end_copies(const Needed& needed) {
  copies_.end();
  for (StorageNumber storage = 0; storage < buffers_.storages(); ++storage) {
    const BufferNumber buffer = buffers_.holder(storage);
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
    case Instruction::Kind::kOffload:
      copy_out(instruction);
      return;
    case Instruction::Kind::kReload:
      copies_.end_outs(instruction.outs_ended);
      copy_in(instruction);
      return;
    case Instruction::Kind::kRun:
      break;
  }
  copies_.end_outs(instruction.outs_ended);
  for (const BufferNumber operand : instruction.operands) copies_.wait_for(operand);
  stack_.clear();
  run(instruction, needed, &stack_);
  if (results != nullptr) *results = stack_;
  stack_.clear();
}

namespace {

// What is put off, or written elsewhere first, is no larger.
constexpr Bytes kSmallState = 16 * 1024;

}  // namespace

bool Executor::is_small_state(StorageNumber storage) const {
  return storage != kNoStorage && program_.storages[storage].of_body() &&
         program_.storages[storage].bytes <= kSmallState;
}

Executor::Beside Executor::beside(const Instruction& instruction, std::uint32_t calls,
                                  const Needed& needed) const {
  const auto from_outside = [&](StorageNumber storage) {
    return storage != kNoStorage && program_.storages[storage].of_body();
  };
  switch (instruction.kind) {
    case Instruction::Kind::kOffload:
    case Instruction::Kind::kReload:
      return Beside::kRun;
    case Instruction::Kind::kRelease:
      if (from_outside(instruction.storage))
        return is_small_state(instruction.storage) ? Beside::kPostpone : Beside::kEnd;
      return buffers_.would_keep(instruction, needed) ? Beside::kWait : Beside::kRun;
    case Instruction::Kind::kRun:
      break;
  }
  const Call& call = program_.calls[instruction.call];
  if (call.random || call.host_read || call.checked || *call.modes != Modes::now())
    return Beside::kEnd;
  // mutant: step-body-ahead
  if (instruction.call >= calls) return Beside::kWait;
  if (call.by_body) return Beside::kRun;
  const auto is_aside = [&](std::size_t operand) {
    return std::find(call.aside.begin(), call.aside.end(), operand) != call.aside.end();
  };
  bool writes_outside = false;
  for (const std::uint32_t written : call.writes) {
    const StorageNumber storage = call.operands[written].storage;
    if (is_aside(written)) {
      if (storage != kNoStorage && !is_small_state(storage)) return Beside::kEnd;
      continue;
    }
    writes_outside |= from_outside(storage);
  }
  // What a shadow stands for, or what is postponed, only the one who has it may take.
  bool all_small = true;
  for (std::size_t n = 0; n < instruction.operands.size(); ++n) {
    const auto shadow = shadows_.find(instruction.operands[n]);
    if (shadow != shadows_.end() && !(shadow->second.instead.defined() && is_aside(n)))
      return Beside::kEnd;
    all_small &= instruction.count == Instruction::kAll && is_small_state(call.operands[n].storage);
  }
  if (writes_outside)
    return all_small && instruction.made.size() == call.writes.size() ? Beside::kPostpone
                                                                      : Beside::kEnd;
  return instruction.storage != kNoStorage && buffers_.would_keep(instruction, needed)
             ? Beside::kWait
             : Beside::kRun;
}

void Executor::run_beside(const Follower::Turn& turn, const Needed& needed) {
  Below below(*this);
  beside_ = true;
  const auto over = c10::make_scope_exit([this] { beside_ = false; });
  while (!turn.over() && next_ < instructions_.list.size()) {
    const std::uint32_t calls = turn.progress();
    const Instruction& instruction = instructions_.list[next_];
    const Beside how = beside(instruction, calls, needed);
    if (how == Beside::kEnd) return;
    if (how == Beside::kWait) {
      turn.wait_beyond(calls);
      continue;
    }
    const Follower::Piece piece;
    if (how == Beside::kPostpone) {
      postponed_.push_back(&instruction);
      if (instruction.kind == Instruction::Kind::kRun)
        for (const BufferNumber operand : instruction.operands)
          if (operand != kNoBuffer) shadows_.try_emplace(operand);
    } else {
      step(instruction, needed, nullptr);
    }
    ++next_;
    ++ran_beside_;
  }
}

void Executor::settle(const Needed& needed) {
  Below below(*this);
  make_up(needed);
}

void Executor::make_up(const Needed& needed) {
  for (const auto& [buffer, shadow] : shadows_) {
    if (!shadow.instead.defined()) continue;
    left_traces_ = true;
    // mutant: step-shadow
    shadow.real.copy_(shadow.instead);
  }
  shadows_.clear();
  // mutant: step-put-off
  for (; !postponed_.empty(); postponed_.pop_front()) step(*postponed_.front(), needed, nullptr);
}

c10::Storage* Executor::holder(StorageNumber number) { return buffers_.find(number); }

c10::Storage Executor::give(StorageNumber number) {
  const BufferNumber buffer = instructions_.given[number];
  BERTH_ASSERT(buffers_[buffer], "storage {} is not there", number);
  if (instructions_.read_again[buffer] != 0) return buffers_[buffer];
  return std::exchange(buffers_[buffer], {});
}

void Executor::lend(StorageNumber number, const c10::Storage& storage) {
  if (!gives(number) || buffers_[instructions_.given[number]]) return;
  buffers_[instructions_.given[number]] = storage;
  lent_.push_back(instructions_.given[number]);
}

void Executor::end_lending() {
  for (const BufferNumber one : lent_) buffers_[one] = {};
  lent_.clear();
}

void Executor::wait_for_host() {
  // In a step of several streams they were begun when the body called them.
  if (!copied_from_ || program_.several_streams) return;
  const c10::impl::VirtualGuardImpl on(copied_from_->type());
  on.synchronizeStream(on.getStream(*copied_from_));
  copied_from_.reset();
}

void Executor::run_through(std::uint32_t call, const Needed& needed, c10::Stack* results) {
  Below below(*this);
  make_up(needed);
  buffers_.drop_kept(needed);
  while (ran_[call] == 0) {
    const Instruction& instruction = instructions_.list.at(next_);
    const bool last = instruction.kind == Instruction::Kind::kRun && instruction.call == call;
    step(instruction, needed, last ? results : nullptr);
    ++next_;
  }
  wait_for_host();
}

void Executor::run_before(std::uint32_t call, const Needed& needed) {
  Below below(*this);
  make_up(needed);
  buffers_.drop_kept(needed);
  const auto is_it = [&](const Instruction& one) {
    return one.kind == Instruction::Kind::kRun && one.call == call;
  };
  for (; !is_it(instructions_.list.at(next_)); ++next_)
    step(instructions_.list[next_], needed, nullptr);
  for (const BufferNumber operand : instructions_.list[next_].operands) copies_.wait_for(operand);
  wait_for_host();
}

c10::Storage* Executor::operand(std::uint32_t number) {
  const BufferNumber buffer = instructions_.list.at(next_).operands.at(number);
  return buffer != kNoBuffer && buffers_[buffer] ? &buffers_[buffer] : nullptr;
}

void Executor::note_barrier(c10::ArrayRef<c10::IValue> results) {
  left_traces_ = true;
  note_run(instructions_.list.at(next_++), results);
}

void Executor::skip_barrier() {
  left_traces_ = true;
  ++next_;
}

void Executor::finish(const Needed& needed) {
  Below below(*this);
  make_up(needed);
  buffers_.drop_kept(needed);
  for (; next_ < instructions_.list.size(); ++next_)
    step(instructions_.list[next_], needed, nullptr);
  end_copies(needed);
  wait_for_host();
}

void Executor::catch_up(std::uint32_t calls, const Needed& needed) {
  // The list without the calls that the body has not made is a schedule, too: nothing that it
  // called takes what it has not. Of what is run again all is, since it may be needed.
  Below below(*this);
  make_up(needed);
  for (; next_ < instructions_.list.size(); ++next_) {
    const Instruction& instruction = instructions_.list[next_];
    if (instruction.kind == Instruction::Kind::kOffload)
      copies_.skip_out();
    else if (instruction.kind == Instruction::Kind::kReload)
      copy_in(instruction.buffer);
    else if (instruction.kind != Instruction::Kind::kRun || instruction.call < calls)
      step(instruction, needed, nullptr);
  }
  end_copies(needed);
  std::vector<bool> wanted(buffers_.size());
  for (StorageNumber storage = 0; storage < buffers_.storages(); ++storage)
    if (const BufferNumber buffer = buffers_.holder(storage); buffer != kNoBuffer)
      wanted[buffer] = wanted[buffer] || needed(storage);
  for (BufferNumber buffer = 0; buffer < buffers_.size(); ++buffer)
    if (!wanted[buffer]) drop(buffer);
  wait_for_host();
}

}  // namespace berth::torch::step
