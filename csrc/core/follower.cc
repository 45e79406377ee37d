#include "csrc/core/follower.h"

#include "csrc/core/check.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace berth {

namespace {

// Held by followers over a piece, and over a fork.
std::mutex pieces;

void register_fork() {
  static const int registered = ::pthread_atfork(
      +[] { pieces.lock(); }, +[] { pieces.unlock(); }, +[] { pieces.unlock(); });
  BERTH_CHECK(registered == 0, kSystem,
              "pthread_atfork has no memory left to register berth's handlers");
}

}  // namespace

struct Follower::Turn::Shared {
  enum State : std::uint32_t { kIdle, kAsked, kWorking, kQuit };
  std::atomic<std::uint32_t> state{kIdle};
  std::atomic<std::uint32_t> progress{0};
  std::atomic<std::uint32_t> bell{0};  // rung at each change, so that none is slept through
  std::atomic<bool> over{false};
  Work work;                 // the leader's but from kAsked on
  std::exception_ptr error;  // the same
  std::thread thread;

  void ring() noexcept {
    bell.fetch_add(1, std::memory_order_release);
    bell.notify_one();
  }
  void become(State next) noexcept {
    state.store(next, std::memory_order_release);
    state.notify_all();
  }
  void run() {
    for (;;) {
      state.wait(kIdle, std::memory_order_acquire);
      std::uint32_t asked = kAsked;
      if (!state.compare_exchange_strong(asked, kWorking, std::memory_order_acquire)) {
        if (asked == kQuit) return;
        continue;  // the leader has ended the stretch before it began
      }
      try {
        work(Turn(*this));
      } catch (...) {
        error = std::current_exception();
      }
      become(kIdle);
    }
  }
};

std::uint32_t Follower::Turn::progress() const noexcept {
  return shared_.progress.load(std::memory_order_acquire);
}

bool Follower::Turn::over() const noexcept { return shared_.over.load(std::memory_order_acquire); }

void Follower::Turn::wait_beyond(std::uint32_t seen) const noexcept {
  for (;;) {
    const std::uint32_t rung = shared_.bell.load(std::memory_order_acquire);
    if (over() || progress() != seen) return;
    shared_.bell.wait(rung, std::memory_order_acquire);
  }
}

Follower::Piece::Piece() { pieces.lock(); }
Follower::Piece::~Piece() { pieces.unlock(); }

Follower::Follower() = default;

Follower::~Follower() {
  if (!shared_) return;
  if (process_ != ::getpid()) {  // the thread is in the parent: there is nothing to join
    static_cast<void>(shared_.release());
    return;
  }
  static_cast<void>(end());
  shared_->become(Turn::Shared::kQuit);
  shared_->thread.join();
}

void Follower::start() {
  register_fork();
  if (shared_) static_cast<void>(shared_.release());  // the parent's
  auto shared = std::make_unique<Turn::Shared>();
  try {
    shared->thread = std::thread([one = shared.get()] { one->run(); });
  } catch (const std::system_error& error) {
    BERTH_CHECK(false, kSystem, "there is no thread to run a step beside its check: {}",
                error.what());
  }
  shared_ = std::move(shared);
  process_ = ::getpid();
}

void Follower::begin(std::uint32_t progress, Work work) {
  BERTH_CHECK(!following_, kUsage, "a stretch is begun while another one runs");
  if (!shared_ || process_ != ::getpid()) start();
  shared_->work = std::move(work);
  shared_->over.store(false, std::memory_order_relaxed);
  shared_->progress.store(progress, std::memory_order_relaxed);
  shared_->become(Turn::Shared::kAsked);
  following_ = true;
}

void Follower::advance(std::uint32_t progress) noexcept {
  shared_->progress.store(progress, std::memory_order_release);
  shared_->ring();
}

std::exception_ptr Follower::end() noexcept {
  if (!std::exchange(following_, false)) return nullptr;
  if (process_ != ::getpid()) return nullptr;
  std::uint32_t asked = Turn::Shared::kAsked;
  if (!shared_->state.compare_exchange_strong(asked, Turn::Shared::kIdle,
                                              std::memory_order_acquire)) {
    shared_->over.store(true, std::memory_order_release);
    shared_->ring();
    shared_->state.wait(Turn::Shared::kWorking, std::memory_order_acquire);
  }
  shared_->work = nullptr;
  return std::exchange(shared_->error, nullptr);
}

}  // namespace berth
