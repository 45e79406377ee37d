// Memory that goes back, or leaves for a while with its contents, and the process that forks.

#include "csrc/core/check.h"
#include "csrc/runtime/allocator_state.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <mutex>
#include <string>

namespace berth {

// --- Memory that goes and comes -----------------------------------------------------------------

Bytes Allocator::trim() noexcept {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  // mutant: s13-trim
  if (state.captured() || state.parked.parked()) return 0;
  const State::NotesHeld notes_held{state};
  return state.trim();
}

Bytes Allocator::State::trim() noexcept {
  pool.process_events();
  learning.trimmed();
  // A handle goes back only as a whole: near a limit no block would find what is free in parts.
  // mutant: trim-handles
  const Bytes given = arena.give_back(is_ample() ? Arena::kReturningHandle : 0);
  return given + pool.trim();
}

Bytes Allocator::release(bool keep_contents) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  BERTH_CHECK(!state.forked, kUsage, "memory is to be released in a forked child");
  // mutant: s13-release
  BERTH_CHECK(!state.captured(), kUsage,
              "memory is to be released while a graph is being captured: end the capture first");
  BERTH_CHECK(!keep_contents || state.device.properties().maps_pages, kUsage,
              "{} maps no pages: what lives there cannot leave its addresses. Release memory "
              "without contents",
              state.device.properties().name);
  if (state.parked.parked()) return 0;
  const State::NotesHeld notes_held{state};
  const Bytes given = state.trim();
  if (!keep_contents) return given;
  const Bytes held = state.store.held();
  // Whole pages go and come.
  state.pool.count_at_home(true);
  const Status status = state.parked.park();
  state.arena.set_parked(state.parked.parked());
  if (!state.parked.parked()) state.pool.count_at_home(false);
  if (status.ok()) return given + held - state.store.held();
  const std::string why = fmt::format("the contents of {} cannot go to host memory: {}",
                                      format_bytes(held), state.device.describe(status));
  if (status.code() == Status::Code::kOutOfMemory) throw OutOfMemory(why);
  throw Error(ErrorKind::kSystem, why);
}

void Allocator::State::unpark() {
  // mutant: s13-resume
  BERTH_CHECK(!captured() || !parked.parked(), kUsage,
              "memory that was released with its contents cannot come back while a graph is being "
              "captured: resume before the capture");
  const Bytes size = parked.bytes();
  const PageStore::Exceeding exceeding(store);
  const Status status = parked.unpark();
  if (status.ok()) {
    arena.set_parked(false);
    pool.count_at_home(false);
    return;
  }
  const std::string why =
      fmt::format("{} that were released with their contents cannot come back: {}; they are kept",
                  format_bytes(size), store.describe(status));
  if (status.code() == Status::Code::kOutOfMemory) throw OutOfMemory(why);
  throw Error(ErrorKind::kSystem, why);
}

Bytes Allocator::resume() {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.forked) return 0;
  const State::NotesHeld notes_held{state};
  const Bytes held = state.store.held();
  state.unpark();
  if (state.captured()) return 0;
  const PageStore::Exceeding exceeding(state.store);
  (void)state.arena.fill(true);
  return state.store.held() - held;
}

bool Allocator::parked() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->parked.parked();
}

// --- Fork ---------------------------------------------------------------------------------------

void Allocator::before_fork() noexcept { state_->mutex.lock(); }

void Allocator::after_fork_in_parent() noexcept { state_->mutex.unlock(); }

void Allocator::after_fork_in_child() noexcept {
  State& state = *state_;
  state.forked = true;
  state.learning.stop();
  state.arena.deactivate();
  state.mutex.unlock();
}

}  // namespace berth
