#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace berth::torch::step {

// Operators of several threads whose memory together exceeds the device: they run one after the
// other (admission control), where each of them fits alone.
//
// The rule. An operator that finds no room waits until an operator of another thread has ended. It
// is needy from then to its end: no operator of another thread begins meanwhile. If all operators
// that run wait so, one that may begin again gives way, the one that asks before others: its
// request fails, it lets go of all that it has, and it begins again behind those that are needy. If
// none may, the request that asks fails. So the last one that runs never waits, and no wait is for
// ever: what an operator waits for by other means (a lock, Python's among them) may be held by one
// that waits here. After `patience` without any end a wait ends as if there were no other operator.
//
// Thread-safe. Nothing else is called under the lock. A turn costs O(operators that run).
class OperatorTurns {
 public:
  using Patience = std::chrono::milliseconds;
  explicit OperatorTurns(Patience patience) : patience_(patience) {}

  // What a request that found no room has to do.
  enum class Answer {
    kAskAgain,  // an operator of another thread has ended
    kFail,      // no other operator has anything that could come free
    kGiveWay,   // others wait for this one: end the turn, and begin another
  };

  // One operator of the calling thread, from before it takes its memory until it has let go of it.
  class Turn {
   public:
    Turn() = default;
    ~Turn() { end(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    // The operator's memory is free now, and somebody may get it. Does nothing where none has
    // begun.
    void end() noexcept;
    // The request that was needy has been served: others may begin.
    void calm() noexcept;

   private:
    friend class OperatorTurns;
    OperatorTurns* turns_ = nullptr;
    bool begins_again_ = false;  // it has done nothing yet that must not be done twice
    bool needy_ = false;
    bool waits_ = false;
    bool gives_way_ = false;
  };

  // Waits while operators of other threads are needy. The calling thread has no other turn.
  void begin(Turn& turn, bool begins_again);
  // Whether the operator may begin again from now on.
  void set_begins_again(Turn& turn, bool may);

  // How many operators have ended. A thread reads it before it looks for room.
  [[nodiscard]] std::uint64_t ended() const;
  // The operator has found no room since `ended` was read. If its turn has not begun, since it has
  // no memory yet, the turn begins here.
  [[nodiscard]] Answer wait(Turn& turn, std::uint64_t ended);

  // In a forked child only the calling thread is there. Around a fork the parent locks.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void forget_others_in_child();

 private:
  // Under the lock.
  [[nodiscard]] bool others_are_needy(const Turn& turn) const;
  [[nodiscard]] bool all_others_wait(const Turn& turn) const;

  const Patience patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Turn*> running_;
  std::uint64_t ended_ = 0;
};

}  // namespace berth::torch::step
