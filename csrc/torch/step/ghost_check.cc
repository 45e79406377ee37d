// Whether what the body calls, and what its barriers write and give, is the program's; whether
// other threads call what is the step's.

#include "csrc/torch/step/generators.h"
#include "csrc/torch/step/ghost.h"
#include "csrc/torch/step/ghost_storage.h"
#include "csrc/torch/step/number_checks.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/SmallVector.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace berth::torch::step {

bool Ghost::check_tensor(const Operand& expected, const at::Tensor& tensor, std::string* why) {
  const auto no = [&](std::string_view what) {
    *why = what;
    return false;
  };
  if (expected.opaque)
    return is_opaque(tensor) || no("another tensor than one that is no dense one");
  if (!tensor.defined()) return expected.storage == kNoStorage || no("a tensor is missing");
  if (expected.storage == kNoStorage) return no("a tensor more");
  if (const std::string_view refused = why_refused(tensor); !refused.empty())
    return no(fmt::format("a tensor that {}", refused));
  if (!matches(tensor, expected)) return no("a tensor of another shape or type");
  const c10::Storage& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
  const bool seen = seen_[expected.storage] != 0;
  if (seen && storages_[expected.storage]._unsafe_get_target() == impl) {
    if (program().several_streams) executor_->lend(expected.storage, storage);
    return true;
  }
  // From outside: it must be one there, too, and occur here first.
  const RecordedStorage& recorded = program().storages[expected.storage];
  if (seen || recorded.maker != RecordedStorage::kFromOutside ||
      recorded.device != impl->device() || (recorded.bytes != impl->nbytes() && !recorded.varies) ||
      numbers_.contains(impl))
    return no("another tensor of this shape");
  if (is_foreign(*impl) != recorded.foreign)
    return no(recorded.foreign ? "a tensor whose memory libtorch allocated, where that was not so,"
                               : "a tensor whose memory others may use, where that was not so,");
  if (outside_.overlaps(storage, recorded.foreign))
    return no("a tensor with the memory of another one");
  see(expected.storage, storage);
  bound_.push_back(expected.storage);
  executor_->bind(expected.storage, storage);
  return true;
}

bool Ghost::check(const Call& expected, const c10::OperatorHandle& op,
                  c10::ArrayRef<c10::IValue> arguments, c10::Device device, std::string* why) {
  if (&op.schema() != &expected.op.schema()) {
    *why = fmt::format("{} where {} was recorded", words_of(op), words_of(expected.op));
    return false;
  }
  if (at::GradMode::is_enabled() != expected.gradients_on) {
    *why = fmt::format("{} is called with gradients {}, where they were {}", words_of(op),
                       expected.gradients_on ? "off" : "on", expected.gradients_on ? "on" : "off");
    return false;
  }
  if (!expected.on_side() && !streams_.are_same(device, arguments)) {
    *why = fmt::format("{} is called on another stream", words_of(op));
    return false;
  }
  // mutant: barrier-modes
  if (!expected.modes->are_now()) {
    *why = fmt::format("{} runs under another {}", words_of(op),
                       expected.modes->difference(Modes::now()));
    return false;
  }
  // mutant: barrier-autocast
  if (expected.autocast != autocast_now()) {
    *why = fmt::format("{} is called under another autocast", words_of(op));
    return false;
  }
  std::uint32_t operand = 0;
  const auto check_argument = [&](std::uint32_t n, std::string* what) {
    const Argument& argument = expected.arguments[n];
    const c10::IValue& value = arguments[n];
    if (form_of(value) != argument.form) {
      *what = "an argument of another form";
      return false;
    }
    if (argument.form != Form::kValue) {
      std::uint32_t tensors = 0;
      bool fits = true;
      for_each_tensor(value, argument.form, [&](const at::Tensor& tensor) {
        if (tensors++ >= argument.tensors || !fits) return;
        const Operand& one = expected.operands[operand];
        fits = check_tensor(one, tensor, what);
        if (fits && one.moves) executor_->set_offset(next_, operand, tensor.storage_offset());
        ++operand;
      });
      if (fits && tensors != argument.tensors) *what = "a list of another length";
      return fits && tensors == argument.tensors;
    }
    if (argument.any || same_value(value, argument.value)) return true;
    const bool is_number =
        argument.scalar && value.tagKind() == argument.value.tagKind() &&
        (!value.isList() || value.toListRef().size() == argument.value.toListRef().size());
    // mutant: step-refused-number, step-number-kind
    if (is_number && (may_refuse_number(op, arguments, n, argument.value) ||
                      (expected.random && may_refuse_numbers(op, arguments)))) {
      *what = "a number that it may refuse";
      return false;
    }
    // mutant: step-own-generator
    if (is_number || may_stand_for(value, argument.value)) {
      // mutant: step-number
      executor_->set_value(next_, n, value);
      return true;
    }
    *what = "another value";
    return false;
  };
  for (std::uint32_t n = 0; n < arguments.size(); ++n) {
    std::string what;
    if (check_argument(n, &what)) continue;
    *why = fmt::format("{} takes {} in argument {}", words_of(op), what, n);
    return false;
  }
  return true;
}

bool Ghost::take_results(const Call& expected, c10::ArrayRef<c10::IValue> arguments,
                         c10::ArrayRef<c10::IValue> results, std::string_view* why) {
  *why = "gave something else than was recorded";
  c10::SmallVector<at::Tensor, 8> operands;
  for (std::size_t n = 0; n < arguments.size(); ++n)
    if (expected.arguments[n].form != Form::kValue)
      for_each_tensor(arguments[n], expected.arguments[n].form,
                      [&](const at::Tensor& tensor) { operands.push_back(tensor); });
  std::vector<std::pair<StorageNumber, c10::Storage>> made;
  const auto is_expected = [&](const ResultTensor& one, const at::Tensor& tensor) {
    if (one.argument != ResultTensor::kNew) {
      const at::Tensor& operand = operands[one.argument];
      return tensor.is_same(operand) && matches(tensor, expected.operands[one.argument]);
    }
    if (one.operand.opaque) return is_opaque(tensor) && tensor.key_set() == one.keys;
    if (!tensor.defined()) return one.operand.storage == kNoStorage;
    if (one.operand.storage == kNoStorage || !why_refused(tensor).empty()) return false;
    if (!matches(tensor, one.operand)) {
      *why = facts_of(expected.op).shapes_by_data
                 ? "gave a tensor of another shape than was recorded: the shape depends on data"
                 : "gave a tensor of another shape or type than was recorded";
      return false;
    }
    if (tensor.key_set() != one.keys) return false;
    const StorageNumber number = one.operand.storage;
    const c10::Storage& storage = tensor.storage();
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    if (seen_[number] != 0) return storages_[number]._unsafe_get_target() == impl;
    const auto known = std::find_if(made.begin(), made.end(),
                                    [&](const auto& other) { return other.first == number; });
    if (known != made.end()) return known->second.unsafeGetStorageImpl() == impl;
    const RecordedStorage& like = program().storages[number];
    if (numbers_.contains(impl) || (impl->nbytes() != like.bytes && !like.varies) ||
        impl->device() != like.device || is_foreign(*impl) != like.foreign)
      return false;
    made.emplace_back(number, storage);
    return true;
  };
  std::size_t next = 0;
  for (std::size_t n = 0; n < expected.results.size(); ++n) {
    const Result& result = expected.results[n];
    if (form_of(results[n]) != result.form) return false;
    if (result.form == Form::kValue && !expected.host_read && !same_value(results[n], result.value))
      return false;
    std::uint32_t tensors = 0;
    bool fits = true;
    for_each_tensor(results[n], result.form, [&](const at::Tensor& tensor) {
      fits = fits && tensors++ < result.tensors &&
             is_expected(expected.result_tensors[next++], tensor);
    });
    if (!fits || tensors != result.tensors) return false;
  }
  for (const auto& [number, storage] : made) {
    see(number, storage);
    if (expected.by_body) executor_->bind(number, storage);
  }
  if (!expected.barrier) return true;
  executor_->note_barrier(results);
  // Autograd adds in place to what nobody else has.
  // mutant: barrier-apart
  if (!expected.backward || program().several_streams) return true;
  for (const auto& [number, storage] : made) {
    c10::Storage* const here = executor_->holder(number);
    if (here == nullptr || program().storages[number].foreign ||
        !has_bytes(*here->unsafeGetStorageImpl()))
      continue;
    *here = take_apart(storage);
    apart_.emplace_back(number, here->getWeakStorageImpl());
  }
  return true;
}

std::vector<Ghost::Written> Ghost::written_by(const Call& call) const {
  std::vector<Written> written;
  std::vector<StorageNumber> seen;
  for (const std::uint32_t operand : call.writes) {
    const StorageNumber one = call.operands[operand].storage;
    if (one == kNoStorage || std::count(seen.begin(), seen.end(), one) > 0) continue;
    seen.push_back(one);
    if (auto storage = storages_[one].lock(); storage != nullptr) {
      const std::size_t bytes = storage->nbytes();
      written.push_back({operand, c10::Storage(std::move(storage)), bytes});
    }
  }
  return written;
}

void Ghost::forget_size(StorageNumber old) {
  const c10::StorageImpl* const storage = storages_[old]._unsafe_get_target();
  outside_.forget(storage);
  numbers_.erase(storage);
  storages_[old] = no_storage();
}

void Ghost::note_within(const c10::OperatorHandle& op, const c10::Stack& stack) {
  const OperatorFacts& facts = facts_of(op);
  const auto given = last_of(stack, op.schema().arguments().size());
  for (std::size_t n = 0; n < given.size(); ++n)
    for_each_tensor(given[n], form_of(given[n]), [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      const auto found = numbers_.find(tensor.storage().unsafeGetStorageImpl());
      if (found == numbers_.end()) return;
      const StorageNumber one = found->second;
      if (facts.writes[n]) barrier_->wrote.push_back(one);
      if (barrier_->strayed || !held(one) || lend(one, executor_->holder(one))) return;
      // The schedule makes it again later.
      barrier_->strayed = true;
      executor_->skip_barrier();
      catch_up_elsewhere();
    });
}

void Ghost::called_elsewhere(const c10::OperatorHandle& op, const c10::Stack& stack) {
  std::unique_lock lock(mutex_);
  if (over_) return;
  if (recorder_ != nullptr) {
    lock.unlock();
    recorder_->called_elsewhere(op, stack);
    return;
  }
  if (barrier_ != nullptr) {
    note_within(op, stack);
    return;
  }
  const auto is_of_step = [&](const at::Tensor& tensor, bool writes) {
    if (!tensor.defined() || !tensor.has_storage()) return false;
    const auto found = numbers_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == numbers_.end()) return false;
    // What the step has neither made nor written has the bytes that it should have.
    const bool from_outside =
        program().storages[found->second].maker == RecordedStorage::kFromOutside;
    // mutant: threads-written
    return writes || !from_outside || was_written(found->second);
  };
  const auto given = last_of(stack, op.schema().arguments().size());
  const bool draws = facts_of(op).random && !draws_apart(generator_of(given));
  const auto argument = draws ? std::nullopt : find_argument(op, stack, is_of_step);
  // mutant: threads-takes, threads-draws
  if (!draws && !argument) return;
  called_elsewhere_ = true;
  catch_up_elsewhere();
  go_on_as_written(
      fmt::format("{} is called on another thread, and {}", words_of(op),
                  draws ? std::string("draws from a generator of the step")
                        : fmt::format("takes a tensor of the step in argument {}", *argument)));
}

void Ghost::catch_up_elsewhere() {
  const auto with_threads_of_process = [this] {
    (void)at::get_num_threads();
    catch_up();
  };
  std::exception_ptr error;
  std::thread apart;
  // Operators of other libraries may want locks that this thread holds, such as Python's.
  // mutant: threads-trace
  if (scheduled_->may_be_followed && !Spills::on()) {
    try {
      apart = std::thread([&] {
        try {
          with_threads_of_process();
        } catch (...) {
          error = std::current_exception();
        }
      });
    } catch (const std::system_error&) {  // there is no thread to be had
    }
  }
  if (!apart.joinable()) {
    with_threads_of_process();
    return;
  }
  apart.join();
  if (error != nullptr) std::rethrow_exception(error);
}

bool Ghost::was_written(StorageNumber storage) const {
  return std::any_of(
      program().calls.begin(), program().calls.begin() + next_, [&](const Call& call) {
        return std::any_of(call.writes.begin(), call.writes.end(), [&](std::uint32_t operand) {
          return call.operands[operand].storage == storage;
        });
      });
}

bool Ghost::draws_apart(const at::Generator& generator) const {
  return is_own_generator(generator) && !program().sets_generators && !generators_.has(generator);
}

// --- What may run twice
// -------------------------------------------------------------------------

namespace {

// Points of a step that goes on as written are those of its record from here on.
constexpr std::uint64_t kAsWritten = std::uint64_t{1} << 63;

}  // namespace

std::uint64_t Ghost::point() {
  std::unique_lock lock(mutex_);
  if (recorder_ == nullptr) return barrier_ != nullptr ? 0 : next_;
  lock.unlock();
  return kAsWritten + recorder_->point();
}

bool Ghost::had_effects(std::uint64_t since) {
  std::unique_lock lock(mutex_);
  if (recorder_ != nullptr) {
    lock.unlock();
    return since < kAsWritten || recorder_->had_effects(since - kAsWritten);
  }
  if (barrier_ != nullptr) return false;
  const auto first = program().calls.begin(), begin = first + static_cast<std::ptrdiff_t>(since);
  const auto takes = [](const Call& call, StorageNumber storage) {
    return std::ranges::any_of(call.operands,
                               [&](const Operand& one) { return one.storage == storage; });
  };
  const auto gives = [](const Call& call, StorageNumber storage) {
    return std::ranges::any_of(call.result_tensors, [&](const ResultTensor& one) {
      return one.operand.storage == storage;
    });
  };
  // Whether it is not the result of a call since then.
  const auto is_older = [&](StorageNumber storage) {
    const auto met = std::find_if(first, first + next_, [&](const Call& call) {
      return takes(call, storage) || gives(call, storage);
    });
    return met < begin || takes(*met, storage);
  };
  return std::any_of(begin, first + next_, [&](const Call& call) {
    // mutant: barrier-reader-writes
    return call.barrier || call.random ||
           std::ranges::any_of(call.writes, [&](std::uint32_t written) {
             return is_older(call.operands[written].storage);
           });
  });
}

}  // namespace berth::torch::step
