#include "csrc/torch/step/ghost.h"

#include "csrc/torch/step/denied_bytes.h"
#include "csrc/torch/step/elapsed.h"
#include "csrc/torch/step/ghost_storage.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/profilers.h"
#include "csrc/torch/step/scheduling.h"
#include "csrc/torch/step/tensors.h"
#include "csrc/torch/step/thread_state.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace berth::torch::step {

namespace {

// Whether both leave the same of their first calls to the body.
bool same_rooms(const Program& a, const Program& b, std::size_t calls) {
  const auto end = a.calls.begin() + static_cast<std::ptrdiff_t>(calls);
  return std::equal(a.calls.begin(), end, b.calls.begin(), [](const Call& left, const Call& right) {
    return left.by_body == right.by_body;
  });
}

// Calls without a host read that are worth a second thread, and how often it is told of them.
constexpr std::uint32_t kWorthFollowing = 32, kCallsAtATime = 8;

}  // namespace

Ghost::Ghost(const Scheduled& first, std::vector<const Scheduled*> others, Follower* follower,
             std::pmr::memory_resource* memory, bool looks_at_bytes, LeftBehind left)
    : scheduled_(&first),
      others_(std::move(others)),
      memory_(memory),
      executor_(
          std::make_unique<Executor>(first.program, first.instructions, memory, first.times())),
      numbers_(memory),
      storages_(first.program.storages.size(), no_storage()),
      seen_(first.program.storages.size(), memory),
      looks_at_bytes_(looks_at_bytes),
      left_(std::move(left)),
      follower_(follower) {
  numbers_.reserve(first.program.storages.size());
}

Ghost::~Ghost() { stop_following(); }

void Ghost::follow() {
  if (follower_ == nullptr || next_ < follow_from_ || !scheduled_->may_be_followed) return;
  if (follower_->following()) {
    if (next_ % kCallsAtATime == 0) follower_->advance(next_);
    return;
  }
  const std::vector<Call>& calls = program().calls;
  const std::size_t end = std::min<std::size_t>(next_ + kWorthFollowing, calls.size());
  for (std::uint32_t n = next_; n < end; ++n)
    if (calls[n].host_read || calls[n].checked) {
      follow_from_ = n + 1;
      return;
    }
  if (end < next_ + kWorthFollowing) {
    follow_from_ = kNever;
    return;
  }
  follower_->begin(next_, [this, state = ThreadState(program())](const Follower::Turn& turn) {
    const ThreadState::Guard guard(state);
    executor_->run_beside(turn, [this](StorageNumber one) { return held(one); });
  });
}

void Ghost::stop_following() noexcept {
  if (follower_ == nullptr) return;
  if (std::exception_ptr error = follower_->end(); error != nullptr) failed_ = std::move(error);
}

bool Ghost::change_program(const Scheduled*& other) {
  stop_following();
  const Program& next = other->program;
  if (common_calls(next.calls, program().calls) < next_) return false;
  if (drew_ && next.sets_generators != program().sets_generators) return false;
  if (!same_rooms(next, program(), next_)) return false;
  const std::size_t storages = std::min(next.storages.size(), program().storages.size());
  for (StorageNumber one = 0; one < storages; ++one)
    if (seen_[one] != 0 && !same_storage(next.storages[one], program().storages[one])) return false;
  std::unique_ptr<Executor> executor;
  if (!ran_ && executor_->may_be_taken_back()) {
    executor = std::make_unique<Executor>(next, other->instructions, memory_, other->times());
    take_back(std::move(executor));
  } else {
    const auto is_held = [this](StorageNumber one) { return held(one); };
    run([&] { executor_->catch_up(next_, is_held); });
    Executor::There there;
    for (StorageNumber one = 0; one < storages_.size(); ++one)
      if (const c10::Storage* const real = held(one) ? executor_->holder(one) : nullptr;
          real != nullptr)
        there.emplace(one, *real);
    as_recorded_.push_back(instructions_as_recorded(next));
    // What the body has without bytes it has so to its end.
    if (std::vector<BufferNumber>& given = as_recorded_.back().given; !given.empty())
      for (StorageNumber one = 0; one < storages_.size(); ++one)
        if (held(one)) given[one] = kNoBuffer;
    executor = std::make_unique<Executor>(next, as_recorded_.back(), memory_);
    for (StorageNumber one = 0; one < storages_.size(); ++one) {
      if (seen_[one] == 0 || !next.storages[one].of_body()) continue;
      if (auto storage = storages_[one].lock(); storage != nullptr)
        executor->bind(one, c10::Storage(storage)), there.emplace(one, c10::Storage(storage));
    }
    executor->begin_behind(next_, there, is_held);
    ran_beside_ += executor_->ran_beside();
    executor_ = std::move(executor);
  }
  std::swap(scheduled_, other);
  storages_.resize(std::max(storages_.size(), program().storages.size()), no_storage());
  seen_.resize(storages_.size());
  return true;
}

void Ghost::forget_bound() {
  for (const StorageNumber one : bound_) {
    numbers_.erase(storages_[one]._unsafe_get_target());
    storages_[one] = no_storage();
    seen_[one] = 0;
  }
  bound_.clear();
  executor_->end_lending();
}

void Ghost::see(StorageNumber number, const c10::Storage& storage) {
  numbers_.emplace(storage.unsafeGetStorageImpl(), number);
  storages_[number] = storage.getWeakStorageImpl();
  seen_[number] = true;
}

void Ghost::make_results(const Call& expected, c10::Stack* stack, c10::Stack read) {
  const std::size_t arguments = expected.arguments.size();
  const auto last = last_of(*stack, arguments);
  const auto for_each_operand = [&](const auto& visit) {
    for (std::size_t n = 0; n < arguments; ++n)
      if (expected.arguments[n].form != Form::kValue)
        for_each_tensor(last[n], expected.arguments[n].form, visit);
  };
  // What is returned as it came is taken from the arguments.
  c10::SmallVector<at::Tensor, 4> operands;
  bool as_they_came = false;
  for (const ResultTensor& one : expected.result_tensors)
    as_they_came |= one.argument != ResultTensor::kNew;
  if (as_they_came || !expected.versions.empty())
    for_each_operand([&](const at::Tensor& tensor) { operands.push_back(tensor); });
  // Several operands may have one counter: it goes on from where it was by what was recorded.
  c10::SmallVector<std::uint32_t, 4> versions;
  for (const auto& [operand, steps] : expected.versions)
    versions.push_back(
        operands[operand].unsafeGetTensorImpl()->version_counter().current_version() + steps);
  for (std::size_t n = 0; n < versions.size(); ++n) {
    at::TensorImpl* const one = operands[expected.versions[n].first].unsafeGetTensorImpl();
    // mutant: step-versions
    while (one->version_counter().current_version() < versions[n]) one->bump_version();
  }
  // A result may share the bytes of an argument without its schema saying so.
  c10::SmallVector<std::pair<StorageNumber, c10::Storage>, 4> shared;
  for (const ResultTensor& one : expected.result_tensors)
    if (one.argument == ResultTensor::kNew && one.operand.storage != kNoStorage &&
        seen_[one.operand.storage] != 0)
      for_each_operand([&](const at::Tensor& tensor) {
        if (tensor.defined() &&
            numbers_.at(tensor.storage().unsafeGetStorageImpl()) == one.operand.storage)
          shared.emplace_back(one.operand.storage, tensor.storage());
      });
  stack->resize(stack->size() - arguments);

  const auto storage_of = [&](StorageNumber number) {
    for (const auto& [of, storage] : shared)
      if (of == number) return storage;
    c10::Storage made = executor_->gives(number) ? executor_->give(number)
                                                 : make_ghost_storage(program().storages[number]);
    see(number, made);
    shared.emplace_back(number, made);
    return made;
  };
  std::size_t next = 0;
  const auto make = [&]() -> at::Tensor {
    const ResultTensor& one = expected.result_tensors[next++];
    if (one.argument != ResultTensor::kNew) return operands[one.argument];
    if (one.operand.storage == kNoStorage) return {};
    at::Tensor made = make_tensor(storage_of(one.operand.storage), one.operand, one.keys);
    // mutant: step-version-made
    if (one.version != 0 && !made.is_inference())
      made.unsafeGetTensorImpl()->set_version_counter(one.version);
    return made;
  };
  for (std::size_t n = 0; n < expected.results.size(); ++n) {
    const Result& result = expected.results[n];
    if (result.form == Form::kValue) {
      stack->push_back(expected.host_read ? std::move(read.at(n)) : result.value);
      continue;
    }
    if (result.form == Form::kTensor) {
      stack->emplace_back(make());
      continue;
    }
    c10::List<at::Tensor> list;
    list.reserve(result.tensors);
    for (std::uint32_t k = 0; k < result.tensors; ++k) list.push_back(make());
    stack->emplace_back(std::move(list));
  }
}

void Ghost::call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  std::unique_lock lock(mutex_);
  if (recorder_ != nullptr) {  // another thread may have made it
    lock.unlock();
    recorder_->call(op, keys, stack);
    return;
  }
  if (left_.any()) [[unlikely]]
    left_.note(next_);
  const auto given = last_of(*stack, op.schema().arguments().size());
  if (!compared_.empty()) [[unlikely]]
    end_compare(given);
  if (barrier_ != nullptr) note_within(op, *stack);
  const Survey seen = survey(given);
  const Passes how = passes(seen);
  const OperatorFacts& facts = facts_of(op);
  if (barrier_ != nullptr || how != Passes::kNot || facts.wraps) {
    lock.unlock();
    how == Passes::kForOthers ? run_in_python(op, keys, stack) : run_kernel_told(op, keys, stack);
    return;
  }
  const bool profiled = is_profiled();
  if (facts.as_written || profiled) {
    // It began behind what is caught up with.
    std::optional<Unprofiled> before;
    if (profiled) before.emplace();
    diverge(profiled ? "a profiler began in the step" : stack->back().toStringRef());
    before.reset();
    lock.unlock();
    recorder_->call(op, keys, stack);
    return;
  }
  if (facts.compares) {
    let_compare(stack->back().toTensor());
    stack->pop_back();
    return;
  }
  const auto number_of_known = [&](const c10::StorageImpl* storage) {
    const auto found = numbers_.find(storage);
    return found == numbers_.end() ? kNoStorage : found->second;
  };
  if (facts.sets_aside ||
      aside_.has(op, given, c10::ArrayRef<Call>(program().calls.data(), next_), number_of_known)) {
    lock.unlock();
    run_kernel(op, keys, stack);
    return;
  }
  if (facts.orders_streams) {
    // Where all runs when it is called nothing is to be done.
    // mutant: streams-event
    if (!program().several_streams) {
      diverge("an event or a stream is asked, recorded or waited for");
      lock.unlock();
      recorder_->call(op, keys, stack);
      return;
    }
    run_kernel(op, keys, stack);
    return;
  }
  if (facts.seeds_generators) {
    // What was drawn before, and is not drawn yet, comes from what the generator had.
    if (drew_ && !program().sets_generators) {
      set_between_draws_ = true;
      diverge("a generator is seeded behind a draw");
    }
    run_kernel(op, keys, stack);
    return;
  }
  if (facts.reads_generators) {
    // Where the step sets them, they are as the body left them.
    if (!program().sets_generators) {
      set_between_draws_ = true;
      diverge("the state of a generator is read");
    }
    run_kernel(op, keys, stack);
    return;
  }
  std::string why;
  const auto compare = [&] {
    if (next_ == program().calls.size()) {
      why = fmt::format("{} after the last operator", words_of(op));
      return false;
    }
    const Call& call = program().calls[next_];
    if (!call.barrier && seen.under_modes) {
      why = fmt::format("{} runs under a Python dispatch mode", words_of(op));
      return false;
    }
    if (!check(call, op, given, seen.device, &why)) return false;
    // What the body sets a generator to within the step is not what the schedule will draw from.
    if (!call.random || program().sets_generators || generators_.unchanged(generator_of(given)))
      return true;
    why = fmt::format("{} draws from a generator that was set", words_of(op));
    set_between_draws_ = true;
    return false;
  };
  bound_.clear();
  bool fits = compare();
  if (!fits) forget_bound();
  if (!fits && makes_view(facts, given)) {
    give_storage(op, keys, stack);
    return;
  }
  for (std::size_t n = 0; n < others_.size() && !fits; ++n) {
    const std::vector<Call>& calls = others_[n]->program.calls;
    if (next_ >= calls.size() || !resembles(calls[next_], op, given) || !change_program(others_[n]))
      continue;
    std::string as_said = std::move(why);
    fits = compare();
    if (!fits) forget_bound();
    why = std::move(as_said);
  }
  if (!fits) {
    diverge(std::move(why));
    lock.unlock();
    recorder_->call(op, keys, stack);
    return;
  }
  const Call& expected = program().calls[next_];
  if (looks_at_bytes_) expect_bytes(expected);
  if (!expected.copied.empty()) copy_foreign(expected, given);
  if (expected.by_body || expected.barrier) {
    run_with_body(lock, op, keys, stack);
    return;
  }
  if (expected.host_read || expected.checked) {
    c10::Stack results;
    if (expected.random) draw(expected, op, keys, *stack);
    stop_following();
    run(
        [&] {
          executor_->run_through(
              next_, [this](StorageNumber one) { return held(one); }, &results);
        },
        program().several_streams);
    executor_->end_lending();
    if (facts_of(op).shows_bytes) show_bytes(expected);
    make_results(expected, stack, std::move(results));
  } else {
    if (expected.random) draw(expected, op, keys, *stack);
    make_results(expected, stack, {});
  }
  ++next_;
  follow();
}

void Ghost::copy_foreign(const Call& expected, c10::ArrayRef<c10::IValue> arguments) {
  std::uint32_t operand = 0;
  for (std::size_t n = 0; n < arguments.size(); ++n)
    if (const Form form = expected.arguments[n].form; form != Form::kValue)
      for_each_tensor(arguments[n], form, [&](const at::Tensor& tensor) {
        if (std::count(expected.copied.begin(), expected.copied.end(), operand) > 0)
          executor_->set_copy(next_, operand, copy_of(tensor, expected.operands[operand]));
        ++operand;
      });
}

void Ghost::expect_bytes(const Call& expected) {
  for (std::uint32_t n = 0; n < expected.operands.size(); ++n) {
    const StorageNumber one = expected.operands[n].storage;
    if (one == kNoStorage || program().storages[one].maker != RecordedStorage::kFromOutside ||
        !program().storages[one].device.is_cpu() || was_written(one) ||
        std::count(expected.copied.begin(), expected.copied.end(), n) > 0)
      continue;
    if (const auto storage = storages_[one].lock(); storage != nullptr)
      executor_->expect_bytes(next_, n, hash_of_bytes(*storage));
  }
}

bool Ghost::lend(StorageNumber number, const c10::Storage* real) {
  const auto ghost = storages_[number].lock();
  // What has another size by now has bytes of its own.
  // mutant: barrier-resized-within
  if (real != nullptr && ghost->nbytes() == real->nbytes()) share_bytes(*real, *ghost);
  return has_bytes(*ghost);
}

void Ghost::run_with_body(std::unique_lock<std::mutex>& lock, const c10::OperatorHandle& op,
                          c10::DispatchKeySet keys, c10::Stack* stack) {
  const Call& expected = program().calls[next_];
  const std::size_t below = stack->size() - expected.arguments.size();
  const c10::Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(below), stack->end());
  const std::vector<Written> written = written_by(expected);
  std::vector<std::uint32_t> resized;
  Barrier barrier;
  drew_ |= expected.random;
  executor_->end_lending();
  if (expected.by_body) {
    // Room is made without a look at bytes, which flags of tensors would ask for.
    // mutant: step-flagged-room
    if (facts_of(op).allocates)
      keys = keys.remove(c10::DispatchKey::Conjugate).remove(c10::DispatchKey::Negative);
    run_kernel(op, keys, stack);
  } else {
    std::vector<StorageNumber> lent;
    stop_following();
    run([&] { executor_->run_before(next_, [this](StorageNumber one) { return held(one); }); },
        program().several_streams);
    for (std::uint32_t n = 0; n < expected.operands.size(); ++n) {
      const StorageNumber one = expected.operands[n].storage;
      if (one == kNoStorage || !held(one)) continue;
      if (!has_bytes(*storages_[one].lock())) lent.push_back(one);
      lend(one, executor_->operand(n));
    }
    barrier_ = &barrier;
    lock.unlock();
    const auto over = c10::make_scope_exit([&] {
      lock.lock();
      barrier_ = nullptr;
      for (const Written& one : written)
        if (facts_of(op).resizes || one.storage.nbytes() != one.bytes)
          resized.push_back(one.operand);
      // The bytes of another size are the body's.
      for (const std::uint32_t one : resized) {
        std::erase(lent, expected.operands[one].storage);
        forget_size(expected.operands[one].storage);
      }
      // Of an operator that nobody knows somebody may keep what it took.
      // mutant: barrier-keeps
      if (facts_of(op).opaque || expected.keeps || barrier.strayed) return;
      for (const StorageNumber one : lent)
        if (const auto ghost = storages_[one].lock(); ghost != nullptr) take_bytes_back(*ghost);
    });
    // What an operator of libtorch's calls inside is its own, where it is a barrier for its stream
    // or for what it does with its tensors.
    if ((expected.on_side() || expected.varies || expected.keeps || !expected.resized.empty()) &&
        !keys.has(kCompositeKey) && !is_barrier(op, last_of(*stack, expected.arguments.size())))
      run_kernel(op, keys, stack);
    else
      run_kernel_told(op, keys, stack);
  }
  const auto results = last_of(*stack, stack->size() - below);
  if (expected.barrier) generators_.see();
  const auto is_written = [&](StorageNumber one) {
    return std::any_of(expected.writes.begin(), expected.writes.end(), [&](std::uint32_t operand) {
      return expected.operands[operand].storage == one;
    });
  };
  std::string_view why = "wrote something else than was recorded";
  if (!barrier.strayed && std::all_of(barrier.wrote.begin(), barrier.wrote.end(), is_written) &&
      resized == expected.resized && take_results(expected, arguments, results, &why)) {
    ++next_;
    // It may look at what the next operator takes before that is called.
    if (expected.barrier && is_profiled())
      diverge("a profiler began in the step");
    else
      follow();
    return;
  }
  if (expected.barrier && !barrier.strayed) executor_->skip_barrier();
  if (!barrier.strayed) catch_up();
  for (const Written& one : written)
    if (std::count(resized.begin(), resized.end(), one.operand) > 0)
      see(expected.operands[one.operand].storage, one.storage);
  const Call like = expected;
  go_on_as_written(fmt::format("{} {}", words_of(op), why));
  recorder_->add_run(like, arguments, results, barrier.wrote);
}

void Ghost::draw(const Call& expected, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 const c10::Stack& stack) {
  drew_ = true;
  // In a step of several streams the kernel itself runs when it is called.
  if (!program().sets_generators || program().several_streams) return;
  const auto given = last_of(stack, expected.arguments.size());
  executor_->set_generator_state(next_, GeneratorState(generator_of(given)));
  // The kernel itself moves it on, over memory that nobody has.
  c10::Stack scratch;
  std::size_t operand = 0;
  for (const c10::IValue& value : given) {
    const Operand* const given_as = value.isTensor() ? &expected.operands[operand++] : nullptr;
    if (given_as == nullptr || given_as->storage == kNoStorage) {
      scratch.push_back(value);
      continue;
    }
    const Operand& like = *given_as;
    const RecordedStorage& storage = program().storages[like.storage];
    scratch.emplace_back(make_tensor(
        c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::int64_t>(storage.bytes),
                     c10::GetAllocator(storage.device.type()), false),
        like, plain_keys(storage.device)));
  }
  run_kernel(op, keys, &scratch);
}

template <typename Run>
void Ghost::run(const Run& how, bool at_call) {
  // Where the body has set a generator, what it called before drew from what was there.
  // mutant: step-generator
  const auto set_by_body = at_call ? GeneratorStates::States() : generators_.put_back();
  // mutant: streams-not-behind
  const CurrentStreams::Guard streams(streams_, !at_call);
  const Elapsed elapsed;
  for (bool done = false; !done;) {
    try {
      if (failed_ != nullptr) std::rethrow_exception(failed_);
      how();
      done = true;
    } catch (const c10::OutOfMemoryError&) {
      failed_ = nullptr;
      if (!recover()) throw;
      recovered_ = true;
    } catch (...) {
      // Where it was called before, the next step runs it when it is called.
      if (const Call* const call = executor_->next_call();
          call != nullptr && call != program().calls.data() + next_)
        note_fails(call->op);
      // What has run has drawn: another program goes on behind it.
      // mutant: step-failed-again
      ran_ = true;
      generators_.see();
      GeneratorStates::set(set_by_body);
      if (std::exchange(failed_, nullptr) != nullptr)
        executor_->settle([this](StorageNumber one) { return held(one); });
      throw;
    }
  }
  ran_ = true;
  schedule_ns_ += elapsed.ns();
  if (at_call && !program().calls[next_].random) return;
  generators_.see();
  GeneratorStates::set(set_by_body);
}

void Ghost::take_back(std::unique_ptr<Executor> next) {
  next->take_over(*executor_, next_);
  ran_beside_ += executor_->ran_beside();
  executor_ = std::move(next);
  failed_ = nullptr;
}

bool Ghost::recover() {
  if (ran_ || !as_recorded_.empty() || !executor_->may_be_taken_back())
    return executor_->may_try_again();
  as_recorded_.push_back(instructions_as_recorded(program()));
  take_back(std::make_unique<Executor>(program(), as_recorded_.back(), memory_));
  // What was drawn is drawn again.
  (void)generators_.put_back();
  return true;
}

void Ghost::show_bytes(const Call& call) {
  for (const Operand& one : call.operands)
    if (one.storage != kNoStorage)
      if (c10::Storage* const real = executor_->holder(one.storage); real != nullptr)
        share_bytes(*real, *storages_[one.storage].lock());
}

void Ghost::give_storage(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                         c10::Stack* stack) {
  // libtorch compares the two storages by where their bytes are.
  c10::SmallVector<c10::Storage, 2> compared;
  const auto let_compare = [&](c10::Storage storage) {
    c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
    // An empty one stays as it is.
    // mutant: barrier-empty
    if (has_bytes(impl) || !denies_bytes(impl)) return;
    allow_bytes(impl);
    compared.push_back(std::move(storage));
  };
  for (const c10::IValue& value : last_of(*stack, op.schema().arguments().size()))
    if (value.isTensor() && value.toTensor().has_storage())
      let_compare(value.toTensor().storage());
    else if (value.isStorage())
      let_compare(value.toStorage());
  const auto over = c10::make_scope_exit([&] {
    for (const c10::Storage& one : compared) deny_bytes_again(*one.unsafeGetStorageImpl());
  });
  run_kernel(op, keys, stack);
}

void Ghost::let_compare(const at::Tensor& tensor) {
  if (!why_refused(tensor).empty()) return;
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (has_bytes(storage) || !denies_bytes(storage)) return;
  allow_bytes(storage);
  compared_.emplace_back(tensor.storage().getWeakStorageImpl());
}

void Ghost::end_compare(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments)
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
      const auto one = std::find_if(compared_.begin(), compared_.end(), [&](const auto& other) {
        return other._unsafe_get_target() == storage;
      });
      if (one == compared_.end()) return;
      compared_.erase(one);
      if (!has_bytes(*storage)) take_bytes_back(*storage);
    });
}

void Ghost::give_bytes() {
  for (StorageNumber one = 0; one < storages_.size(); ++one)
    if (c10::Storage* const real = held(one) ? executor_->holder(one) : nullptr; real != nullptr)
      move_bytes(*real, *storages_[one].lock());
  for (const auto& [one, apart] : apart_) {
    auto real = apart.lock();
    const auto ghost = storages_[one].lock();
    if (real == nullptr || ghost == nullptr) continue;
    c10::Storage from(std::move(real));
    move_bytes(from, *ghost);
  }
  apart_.clear();
}

void Ghost::catch_up() {
  stop_following();
  run([this] { executor_->catch_up(next_, [this](StorageNumber one) { return held(one); }); });
  give_bytes();
}

void Ghost::diverge(std::string why) {
  catch_up();
  go_on_as_written(why);
}

void Ghost::go_on_as_written(std::string_view why) {
  divergence_ = fmt::format("operator {}: {}", next_, why);
  // Storages are numbered as they occur, so those seen are the first ones.
  const auto seen = std::find(seen_.begin(), seen_.end(), false) - seen_.begin();
  storages_.erase(storages_.begin() + seen, storages_.end());
  recorder_ = std::make_unique<Recorder>(program(), next_, std::move(storages_), std::move(left_));
  recorder_->go_on_behind(streams_.all());
  if (set_between_draws_) recorder_->note_generators_set();
}

void Ghost::finish() {
  const std::lock_guard lock(mutex_);
  if (recorder_ != nullptr) return;
  const auto over = c10::make_scope_exit([this] { over_ = true; });
  stop_following();
  for (std::size_t n = 0; n < others_.size() && next_ < program().calls.size(); ++n)
    if (others_[n]->program.calls.size() == next_) (void)change_program(others_[n]);
  if (next_ < program().calls.size()) {
    diverge("the step ended");
    return;
  }
  try {
    run([this] { executor_->finish([this](StorageNumber one) { return held(one); }); });
  } catch (...) {
    give_bytes();  // what there is
    throw;
  }
  give_bytes();
}

void Ghost::fail() {
  const std::lock_guard lock(mutex_);
  if (recorder_ == nullptr) catch_up();
}

}  // namespace berth::torch::step
