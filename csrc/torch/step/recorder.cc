#include "csrc/torch/step/recorder.h"

#include "csrc/torch/step/captures.h"
#include "csrc/torch/step/elapsed.h"
#include "csrc/torch/step/kernel_cost.h"
#include "csrc/torch/step/kernel_warnings.h"
#include "csrc/torch/step/libraries.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/profilers.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace berth::torch::step {

namespace {

// Of foreign bytes that a step copies when it is called.
constexpr Bytes kMostOfOneCopy = 64 << 10, kMostOfCopies = 1 << 20;

// Of what a barrier left to calls that have not come: another storage may have that number now.
void forget_kept(Call& call, std::size_t storages) {
  for (KernelRequest& one : call.requests)
    if (one.kept != kNoStorage && one.kept >= storages) one.kept = kNoStorage;
}

}  // namespace

Recorder::Recorder(const Program& program, std::size_t calls,
                   std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages, LeftBehind left)
    : held_(std::move(storages)), left_(std::move(left)) {
  record_.sets_generators = program.sets_generators;
  record_.several_streams = program.several_streams;
  settled_ = calls;
  record_.calls.assign(program.calls.begin(),
                       program.calls.begin() + static_cast<std::ptrdiff_t>(calls));
  for (Call& call : record_.calls) forget_kept(call, held_.size());
  record_.storages.assign(program.storages.begin(),
                          program.storages.begin() + static_cast<std::ptrdiff_t>(held_.size()));
  pending_.resize(held_.size());
  for (StorageNumber number = 0; number < held_.size(); ++number) {
    RecordedStorage& storage = record_.storages[number];
    foreign_.push_back(storage.foreign);
    const auto now = held_[number].lock();
    sizes_.push_back(now != nullptr ? now->nbytes() : storage.bytes);
    // The calls so far have the sizes of another step, the ones behind them those of this one.
    // mutant: data-shapes-most
    if (storage.varies) storage.bytes = std::max(storage.bytes, sizes_.back());
    if (now != nullptr && storage.of_body())
      (void)outside_.overlaps(c10::Storage(now), storage.foreign);
    storage.identity = held_[number]._unsafe_get_target();
    if (!held_[number].expired()) storage.gone = RecordedStorage::kNever;
    numbers_.emplace(storage.identity, number);
    alive_.push_back(number);
  }
  for (const Call& call : record_.calls)
    for (const std::uint32_t one : call.copied) copied_ += span_of(call.operands[one]);
  // All that was called has run; what the body asked to have stays its own.
  for (const Call& call : record_.calls)
    if (facts_of(call.op).shows_bytes && call.barrier)
      for (const Operand& one : call.operands)
        if (one.storage != kNoStorage) foreign_[one.storage] = 1;
}

Recorder::Recorder(std::uint64_t step, const StepRecord* before, bool looks_at_bytes)
    : left_(before, step) {
  if (looks_at_bytes) hidden_.emplace();
  record_.step = step;
}

void Recorder::go_on_behind(const std::vector<c10::Stream>& own) {
  for (const c10::Stream& stream : own) streams_.set_own(stream);
  behind_.begin(own);
}

void Recorder::refuse(const c10::OperatorHandle& op, std::string_view why) {
  if (record_.refusal.empty()) record_.refusal = fmt::format("{} {}", words_of(op), why);
}

void Recorder::called_elsewhere(const c10::OperatorHandle& op, const c10::Stack& stack) {
  const std::lock_guard lock(mutex_);
  const auto writes = find_argument(op, stack, [&](const at::Tensor& tensor, bool written) {
    return written && tensor.defined() && tensor.has_storage() &&
           numbers_.contains(tensor.storage().unsafeGetStorageImpl());
  });
  if (writes && facts_of(op).shows_bytes) {
    if (record_.refusal.empty())
      record_.refusal =
          "the address of a tensor of the step is read on another thread, as numpy() and "
          "data_ptr() do";
    return;
  }
  // mutant: threads-writes
  if (writes)
    refuse(op, fmt::format("is called on another thread, and writes a tensor of the step in "
                           "argument {}",
                           *writes));
}

StorageNumber Recorder::number_of(const at::Tensor& tensor, std::uint32_t maker) {
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const bool from_outside = maker == RecordedStorage::kFromOutside;
  const auto [found, fresh] =
      numbers_.try_emplace(storage, static_cast<StorageNumber>(record_.storages.size()));
  if (fresh) {
    held_.emplace_back(tensor.storage().getWeakStorageImpl());
    alive_.push_back(found->second);
    record_.storages.push_back({.bytes = storage->nbytes(),
                                .device = storage->device(),
                                .allocator = storage->allocator(),
                                .maker = maker,
                                .foreign = from_outside && is_foreign(*storage),
                                .identity = storage});
    const bool foreign = record_.storages.back().foreign;
    // mutant: data-shapes-within
    if (from_outside) record_.storages.back().made_within = within_.contains(storage);
    if (from_outside && !within_.empty()) note_kept(storage, found->second);
    foreign_.push_back(foreign);
    sizes_.push_back(storage->nbytes());
    pending_.push_back(0);
    if (from_outside && outside_.overlaps(tensor.storage(), foreign) && record_.refusal.empty())
      record_.refusal =
          "two of the step's tensors have the same memory, of which libtorch allocated only one";
  }
  return found->second;
}

void Recorder::note_made_within(c10::ArrayRef<c10::IValue> results) {
  const std::lock_guard lock(mutex_);
  for (const c10::IValue& value : results)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      const c10::StorageImpl* const made = tensor.storage().unsafeGetStorageImpl();
      if (within_.size() >= KernelCost::kMostRequests || numbers_.contains(made)) return;
      within_.try_emplace(made, Within{.storage = tensor.storage().getWeakStorageImpl()});
    });
}

void Recorder::note_left_within(const KernelCost* cost) {
  const auto call = static_cast<std::uint32_t>(record_.calls.size());
  for (auto entry = within_.begin(); entry != within_.end();) {
    Within& one = entry->second;
    const auto there = one.storage.lock();
    if (there != nullptr && one.call == Within::kNone) {  // of no barrier before
      one.call = call;
      if (cost != nullptr)
        one.request = cost->request_of(there->_mutable_data_ptr_no_checks().get());
    }
    if (there == nullptr)
      entry = within_.erase(entry);
    else
      ++entry;
  }
}

void Recorder::note_kept(const c10::StorageImpl* storage, StorageNumber number) {
  const auto found = within_.find(storage);
  if (found == within_.end() || found->second.call >= record_.calls.size()) return;
  std::vector<KernelRequest>& requests = record_.calls[found->second.call].requests;
  const std::uint32_t request = found->second.request;
  if (request < requests.size() && requests[request].result == KernelRequest::kNone)
    requests[request].kept = number;
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
  left_.note(static_cast<std::uint32_t>(record_.calls.size()));
}

void Recorder::find_resized(Call& call) const {
  const bool always = facts_of(call.op).resizes;
  std::vector<StorageNumber> seen;
  for (const std::uint32_t operand : call.writes) {
    const StorageNumber one = call.operands[operand].storage;
    if (one == kNoStorage || std::count(seen.begin(), seen.end(), one) > 0) continue;
    seen.push_back(one);
    const auto storage = held_[one].lock();
    // mutant: barrier-resized-unseen
    if (always || (storage != nullptr && storage->nbytes() != sizes_[one]))
      call.resized.push_back(operand);
  }
}

void Recorder::forget_sizes(const Call& call) {
  for (const std::uint32_t operand : call.resized) {
    const StorageNumber old = call.operands[operand].storage;
    const c10::StorageImpl* const storage = held_[old]._unsafe_get_target();
    outside_.forget(storage);
    numbers_.erase(storage);
    held_[old].reset();
    std::erase(alive_, old);
    record_.storages[old].gone = static_cast<std::uint32_t>(record_.calls.size()) + 1;
  }
}

bool Recorder::changes_shapes(
    const Call& call, c10::ArrayRef<c10::IValue> results,
    const std::vector<at::TensorImpl*>& operands,
    const std::vector<std::pair<std::uint32_t, at::Tensor>>& written) const {
  bool changes = std::any_of(written.begin(), written.end(), [&](const auto& one) {
    return call.operands[one.first].storage != kNoStorage &&
           !matches(one.second, call.operands[one.first]);
  });
  for (const c10::IValue& value : results)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      const auto same = std::find(operands.begin(), operands.end(), tensor.unsafeGetTensorImpl());
      if (same == operands.end() || !tensor.defined() || !why_refused(tensor).empty()) return;
      const Operand& operand = call.operands[static_cast<std::size_t>(same - operands.begin())];
      changes |= operand.storage != kNoStorage && !matches(tensor, operand);
    });
  return changes;
}

void Recorder::describe_arguments(Call& call, c10::ArrayRef<c10::IValue> arguments) {
  const OperatorFacts& facts = facts_of(call.op);
  const bool trains =
      facts.training == OperatorFacts::kAlways || arguments[facts.training].toBool();
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    const c10::IValue& value = arguments[n];
    Argument& argument = call.arguments.emplace_back();
    argument.form = form_of(value);
    if (argument.form == Form::kValue && call.barrier) {
      argument.any = true;
    } else if (argument.form == Form::kValue) {
      argument.value = value;
      argument.scalar = facts.scalars[n];
    }
    for_each_tensor(value, argument.form, [&](const at::Tensor& tensor) {
      ++argument.tensors;
      if (is_opaque(tensor)) {
        call.operands.emplace_back().opaque = call.keeps = true;
        return;
      }
      if (const std::string_view why = why_refused(tensor); !why.empty()) {
        refuse(call.op, fmt::format("takes a tensor that {}", why));
        call.operands.emplace_back();
        return;
      }
      const auto operand = static_cast<std::uint32_t>(call.operands.size());
      if (facts.writes[n] && tensor.defined()) call.writes.push_back(operand);
      if (facts.aside[n] && trains && tensor.defined()) call.aside.push_back(operand);
      Operand& one = call.operands.emplace_back();
      if (!tensor.defined()) return;
      one = describe(tensor, number_of(tensor, RecordedStorage::kFromOutside));
      // mutant: step-moves
      one.moves = record_.storages[one.storage].maker == RecordedStorage::kFromOutside;
      // mutant: step-written-room
      if (rooms_.take_written(one.storage)) record_.storages[one.storage].written_by_body = true;
    });
  }
}

void Recorder::decide(Call& call) {
  // Room is made without a look at any bytes.
  if (call.barrier || facts_of(call.op).allocates) return;
  const auto is_at = [&](const std::vector<std::uint8_t>& of, std::uint32_t operand) {
    const StorageNumber storage = call.operands[operand].storage;
    return storage != kNoStorage && of[storage] != 0;
  };
  bool foreign = false, on_host = false, of_step = !call.writes.empty() || call.random;
  for (std::uint32_t n = 0; n < call.operands.size(); ++n) {
    foreign |= is_at(foreign_, n);
    const StorageNumber storage = call.operands[n].storage;
    if (storage == kNoStorage) continue;
    on_host |= record_.storages[storage].device.is_cpu();
    of_step |= !record_.storages[storage].of_body();
    // mutant: barrier-pending
    of_step |= is_at(pending_, n);
  }
  // mutant: barrier-checked
  call.checked = !call.host_read && may_fail(call, on_host);
  if (!foreign || call.host_read) return;
  call.by_body = !of_step;
  if (of_step && !copy_foreign(call)) call.barrier = call.host_read = true;
}

bool Recorder::copy_foreign(Call& call) {
  std::vector<std::uint32_t> copied;
  Bytes bytes = copied_;
  std::uint32_t operand = 0;
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const bool shares = call.op.schema().arguments()[n].alias_info() != nullptr;
    for (const std::uint32_t end = operand + call.arguments[n].tensors; operand < end; ++operand) {
      const Operand& one = call.operands[operand];
      if (one.storage == kNoStorage || foreign_[one.storage] == 0) continue;
      const RecordedStorage& storage = record_.storages[one.storage];
      const bool written = std::count(call.writes.begin(), call.writes.end(), operand) > 0;
      // mutant: barrier-copied-written
      if (shares || written || pending_[one.storage] != 0 || !storage.of_body() ||
          !storage.device.is_cpu())
        return false;
      const Bytes span = span_of(one);
      bytes += span;
      if (span > kMostOfOneCopy || bytes > kMostOfCopies) return false;
      copied.push_back(operand);
    }
  }
  call.copied = std::move(copied);
  copied_ = bytes;
  return true;
}

void Recorder::describe_wrote(Call& call, const std::vector<StorageNumber>& wrote) const {
  for (const StorageNumber storage : wrote) {
    const auto is_written = [&](std::uint32_t operand) {
      return call.operands[operand].storage == storage;
    };
    if (std::any_of(call.writes.begin(), call.writes.end(), is_written)) continue;
    Operand all;
    all.storage = storage;
    all.sizes = {static_cast<std::int64_t>(record_.storages[storage].bytes)};
    all.strides = {1};
    all.type = caffe2::TypeMeta::Make<std::uint8_t>();
    call.writes.push_back(static_cast<std::uint32_t>(call.operands.size()));
    call.operands.push_back(std::move(all));
  }
}

void Recorder::describe_results(Call& call, c10::ArrayRef<c10::IValue> results,
                                const std::vector<at::TensorImpl*>& operands) {
  const auto maker = call.by_body ? RecordedStorage::kFromOutside
                                  : static_cast<std::uint32_t>(record_.calls.size());
  for (const c10::IValue& value : results) {
    Result& result = call.results.emplace_back();
    result.form = form_of(value);
    if (result.form == Form::kValue) {
      const auto& returned = call.op.schema().returns()[call.results.size() - 1];
      if (call.barrier || returned.real_type()->kind() != c10::TypeKind::SymIntType)
        call.host_read = true;
      else
        result.value = value;
    }
    for_each_tensor(value, result.form, [&](const at::Tensor& tensor) {
      ++result.tensors;
      ResultTensor& one = call.result_tensors.emplace_back();
      if (!tensor.defined()) return;
      if (is_opaque(tensor)) {
        one.operand.opaque = true;
        one.keys = tensor.key_set();
        return;
      }
      if (const std::string_view why = why_refused(tensor); !why.empty()) {
        refuse(call.op, fmt::format("makes a tensor that {}", why));
        return;
      }
      const auto same = std::find(operands.begin(), operands.end(), tensor.unsafeGetTensorImpl());
      const auto argument = static_cast<std::uint32_t>(same - operands.begin());
      // What has another shape or storage than it came with is a result of its own.
      if (same != operands.end() && matches(tensor, call.operands[argument]) &&
          numbers_.contains(tensor.storage().unsafeGetStorageImpl())) {
        one.argument = argument;
        return;
      }
      const std::size_t known = record_.storages.size();
      one.operand = describe(tensor, number_of(tensor, maker));
      // A view without a word in the schema: where it lies an argument says.
      if (record_.storages.size() == known)
        for (Operand& operand : call.operands)
          operand.moves &= operand.storage != one.operand.storage;
      if (call.barrier && record_.storages.size() > known) {
        record_.storages.back().made_by_barrier = true;
        foreign_.back() = record_.storages.back().foreign =
            is_foreign(*tensor.storage().unsafeGetStorageImpl());
        // Who has the storage has it in its new size, too.
        for (const std::uint32_t old : call.resized) {
          // mutant: barrier-resized-foreign
          foreign_.back() |= foreign_[call.operands[old].storage];
        }
      }
      one.keys = tensor.key_set();
      one.version = version_of(tensor);
    });
  }
}

void Recorder::add(Call call) {
  for (Operand& one : call.operands)
    if (one.moves) one.offset = 0;
  const auto is_on_host = [&](const Operand& one) {
    return record_.storages[one.storage].device.is_cpu();
  };
  bool from_device = false, to_host = false;
  for (const Operand& one : call.operands)
    from_device |= one.storage != kNoStorage && !is_on_host(one);
  for (const std::uint32_t one : call.writes)
    to_host |= call.operands[one].storage != kNoStorage && is_on_host(call.operands[one]);
  for (const ResultTensor& one : call.result_tensors)
    to_host |= one.operand.storage != kNoStorage && is_on_host(one.operand);
  call.to_host = from_device && to_host;
  for (const std::uint32_t written : call.writes) {
    const Operand& operand = call.operands[written];
    if (operand.storage == kNoStorage) continue;
    pending_[operand.storage] = 1;
  }
  if (call.barrier) {
    std::fill(pending_.begin(), pending_.end(), std::uint8_t{0});
    if (facts_of(call.op).shows_bytes)
      for (const Operand& one : call.operands)
        if (one.storage != kNoStorage) foreign_[one.storage] = 1;
  }
  record_.calls.push_back(std::move(call));
}

namespace {

// The tensors that a call writes, by operand.
std::vector<std::pair<std::uint32_t, at::Tensor>> written_by(const Call& call,
                                                             c10::ArrayRef<c10::IValue> arguments) {
  std::vector<std::pair<std::uint32_t, at::Tensor>> written;
  std::uint32_t operand = 0;
  for (const c10::IValue& value : arguments)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (std::count(call.writes.begin(), call.writes.end(), operand) > 0)
        written.emplace_back(operand, tensor);
      ++operand;
    });
  return written;
}

bool any_opaque(c10::ArrayRef<c10::IValue> values) {
  return std::any_of(values.begin(), values.end(), [](const c10::IValue& value) {
    bool any = false;
    for_each_tensor(value, form_of(value),
                    [&](const at::Tensor& tensor) { any |= is_opaque(tensor); });
    return any;
  });
}

// What a tensor that is not dense keeps may be written through it, or through what was taken.
void count_all_written(Call& call) {
  for (std::uint32_t n = 0; n < call.operands.size(); ++n)
    if (call.operands[n].storage != kNoStorage &&
        std::count(call.writes.begin(), call.writes.end(), n) == 0)
      call.writes.push_back(n);
}

}  // namespace

void Recorder::add_run(const Call& like, c10::ArrayRef<c10::IValue> arguments,
                       c10::ArrayRef<c10::IValue> results,
                       const std::vector<StorageNumber>& wrote) {
  Call call(like.op);
  call.gradients_on = like.gradients_on;
  call.modes = like.modes;
  call.autocast = like.autocast;
  call.backward = like.backward;
  call.random = like.random;
  call.barrier = like.barrier;
  call.varies = like.varies;
  call.keeps = like.keeps;
  call.by_body = like.by_body;
  call.host_read = like.host_read;
  call.ns = like.ns;
  call.workspace = like.workspace;
  call.requests = like.requests;
  forget_kept(call, record_.storages.size());
  call.versions = like.versions;
  call.stream = like.stream;
  // Before it ran they were as there: it may have changed them.
  call.arguments = like.arguments;
  std::uint32_t taken = 0;
  for (const Argument& argument : call.arguments) taken += argument.tensors;
  call.operands.assign(like.operands.begin(), like.operands.begin() + taken);
  for (const std::uint32_t one : like.writes)
    if (one < taken) call.writes.push_back(one);
  describe_wrote(call, wrote);
  find_resized(call);
  forget_sizes(call);
  std::vector<at::TensorImpl*> operands;
  for (const c10::IValue& value : arguments)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      operands.push_back(tensor.unsafeGetTensorImpl());
    });
  describe_results(call, results, operands);
  add(std::move(call));
  settled_ = record_.calls.size();
}

void Recorder::note_within(const c10::OperatorHandle& op, const c10::Stack& stack) {
  const OperatorFacts& facts = facts_of(op);
  const auto given = last_of(stack, op.schema().arguments().size());
  for (std::size_t n = 0; n < given.size(); ++n)
    if (facts.writes[n])
      for_each_tensor(given[n], form_of(given[n]), [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.has_storage()) return;
        const auto found = numbers_.find(tensor.storage().unsafeGetStorageImpl());
        if (found != numbers_.end()) wrote_->push_back(found->second);
      });
}

void Recorder::call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  std::unique_lock lock(mutex_);
  const OperatorFacts& facts = facts_of(op);
  const std::size_t arguments = op.schema().arguments().size();
  const std::size_t below = stack->size() - arguments;
  const bool within = wrote_ != nullptr;
  if (facts.random || std::count(facts.writes.begin(), facts.writes.end(), true) > 0) ++effects_;
  if (within) note_within(op, *stack);
  const Passes how = passes(last_of(*stack, arguments));
  if (within || how != Passes::kNot || facts.wraps) {
    lock.unlock();
    how == Passes::kForOthers ? run_in_python(op, keys, stack) : run_kernel_told(op, keys, stack);
    if (within && how == Passes::kNot) note_made_within(last_of(*stack, stack->size() - below));
    return;
  }
  const auto given = [&] { return last_of(*stack, arguments); };
  const auto run = [&] {
    const bool refused = !record_.refusal.empty();
    lock.unlock();
    // Nothing is recorded any more, but what operators inside use has to be there.
    // mutant: spills-refused
    refused ? run_kernel_told(op, keys, stack) : run_kernel(op, keys, stack);
  };
  if (makes_view(facts, given())) return run();
  if (facts.as_written) {
    if (record_.refusal.empty()) record_.refusal = stack->back().toStringRef();
    return run();
  }
  const auto number_of_known = [&](const c10::StorageImpl* storage) {
    const auto found = numbers_.find(storage);
    return found == numbers_.end() ? kNoStorage : found->second;
  };
  if (facts.compares || facts.sets_aside || aside_.has(op, given(), record_.calls, number_of_known))
    return run();
  if (facts.reads_generators) {
    record_.sets_generators = true;
    return run();
  }
  if (facts.seeds_generators) {
    record_.sets_generators |= std::ranges::any_of(record_.calls, &Call::random);
    return run();
  }
  if (facts.orders_streams) {
    record_.several_streams = true;
    return run();
  }
  if (const std::string why = why_refused(op); !why.empty()) refuse(op, why);
  if (is_profiled()) refuse(op, "is called under a profiler that began in the step");
  if (is_captured(given()))
    refuse(op, "is captured into a graph, before the step is known: steps are recorded outside");
  behind_.order(given());
  if (!record_.refusal.empty()) return run();
  drop_dead();
  Call call(op);
  call.stream = streams_.note(given());
  call.gradients_on = at::GradMode::is_enabled();
  if (const Modes modes = Modes::now(); modes_ == nullptr || *modes_ != modes)
    modes_ = std::make_shared<const Modes>(modes);
  call.modes = modes_;
  call.autocast = autocast_now();
  call.random = facts.random;
  // mutant: barrier-objects
  call.barrier = keys.has(kCompositeKey) || is_barrier(op, given()) || is_overridden(op) ||
                 !can_be_kept(given()) || any_opaque(given());
  call.host_read = facts.host_read || call.barrier;
  call.backward = ::torch::autograd::get_current_graph_task_id() != -1;
  describe_arguments(call, given());
  if (!record_.refusal.empty()) return run();
  decide(call);

  // To tell results that are arguments. Only compared, never followed.
  std::vector<at::TensorImpl*> operands;
  std::vector<c10::VariableVersion> counters;  // of those that are written
  std::vector<std::uint32_t> versions;
  for (const c10::IValue& value : given())
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      operands.push_back(tensor.unsafeGetTensorImpl());
    });
  for (const std::uint32_t written : call.writes) {
    counters.push_back(operands[written]->version_counter());
    versions.push_back(counters.back().enabled() ? counters.back().current_version() : 0);
  }
  const auto written = call.barrier || !op.schema().returns().empty()
                           ? std::vector<std::pair<std::uint32_t, at::Tensor>>()
                           : written_by(call, given());
  // mutant: generators-at-barriers
  if (call.barrier) record_.sets_generators |= !generators_.unchanged();
  at::Generator generator;
  if (call.random) {
    generator = generator_of(given());
    record_.sets_generators |= !generators_.unchanged(generator);
  }
  if (hidden_)
    if (const std::string why = hidden_->before(call, given()); !why.empty()) refuse(op, why);
  c10::Stack taken;  // what the kernel takes from the stack
  if (hidden_) taken.assign(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  std::vector<StorageNumber> wrote;
  bool warned = false;
  {
    // What measures a kernel its threads must not have, and stands where a profiler would begin.
    std::optional<KernelCost> cost;
    if (!facts.collective && !(facts.opaque && libraries().begin_profiles)) cost.emplace(given());
    const Elapsed elapsed;
    if (call.barrier) {
      wrote_ = &wrote;
      const auto over = c10::make_scope_exit([&] {
        lock.lock();
        wrote_ = nullptr;
      });
      lock.unlock();
      run_kernel_told(op, keys, stack);
    } else {
      const KernelWarnings warnings;
      run_kernel(op, keys, stack);
      // mutant: barrier-warns
      warned = warnings.any() && !facts.allocates;
    }
    const auto results = last_of(*stack, stack->size() - below);
    call.ns = cost ? cost->ns(results) : elapsed.ns();
    // Results are part of what is held at the end; a workspace is what there was besides.
    if (cost && cost->peak() > cost->held()) call.workspace = cost->peak() - cost->held();
    if (cost) call.requests = cost->requests(results);
    if (call.barrier) note_left_within(call.requests.empty() ? nullptr : &*cost);
  }
  if (call.barrier)
    generators_.see();
  else if (call.random)
    generators_.see(generator);
  for (std::size_t n = 0; n < counters.size(); ++n)
    if (counters[n].enabled() && counters[n].current_version() != versions[n])
      call.versions.emplace_back(call.writes[n], counters[n].current_version() - versions[n]);
  // mutant: barrier-wrote
  describe_wrote(call, wrote);
  find_resized(call);
  const auto results = last_of(*stack, stack->size() - below);
  call.keeps |= any_opaque(results);
  if (call.keeps) count_all_written(call);
  // The body's own tensors have another shape behind it.
  // mutant: barrier-reshaped
  if (call.keeps || warned || !call.resized.empty() ||
      changes_shapes(call, results, operands, written)) {
    call.barrier = call.host_read = true;
    call.checked = call.by_body = false;
    call.copied.clear();
  }
  // mutant: barrier-resized
  forget_sizes(call);
  describe_results(call, results, operands);
  if (facts.allocates && !call.barrier && call.result_tensors.front().operand.storage != kNoStorage)
    rooms_.note_made(call.result_tensors.front().operand.storage,
                     results.front().toTensor().storage());
  // A result may share the bytes of an argument without its schema saying so.
  for (const ResultTensor& made : call.result_tensors)
    for (const std::uint32_t one : call.copied)
      call.barrier |=
          made.argument == ResultTensor::kNew && made.operand.storage == call.operands[one].storage;
  if (call.barrier) {
    call.host_read = true;
    call.copied.clear();
  }
  if (hidden_)
    if (const std::string why = hidden_->after(call, taken, results); !why.empty()) refuse(op, why);
  add(std::move(call));
}

StepRecord Recorder::take() {
  const std::lock_guard lock(mutex_);
  record_.sets_generators |= !generators_.unchanged();
  drop_dead();
  for (StorageNumber number = 0; number < held_.size(); ++number)
    record_.storages[number].outlives = !held_[number].expired();
  alive_.clear();
  record_.left = left_.take();
  record_.held = std::move(held_);
  streams_.settle(record_.calls, settled_);
  // How far such a draw moves a generator that the step sets, only its kernel tells.
  // mutant: barrier-draws
  if (record_.sets_generators)
    for (std::uint32_t n = 0; n < record_.calls.size(); ++n)
      if (record_.calls[n].random && !facts_of(record_.calls[n].op).draws_by_shape)
        make_barrier(record_, n);
  for (const Call& call : record_.calls)
    record_.several_streams |= facts_of(call.op).records_stream;
  if (record_.several_streams || has_side_streams(record_)) run_at_calls(record_);
  numbers_.clear();
  within_.clear();
  // A copy, since what was written down during the step stands between the step's own blocks in the
  // heap, which could not give them back.
  StepRecord copy = record_;
  record_ = {};
  return copy;
}

}  // namespace berth::torch::step
