#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

namespace berth {

// A second thread that works behind a first one, as far as that has come.
//
// The leader begins a stretch, says from time to time how far it has come, and ends the stretch,
// which waits for the piece of work that is under way. What the leader did before it said so the
// follower sees, and what the follower did the leader sees after the end. Between stretches the
// thread sleeps.
//
// All but Turn is for one thread at a time. A process is forked between two pieces; in the child
// there is no follower, the stretch is over, and the next one has a thread of its own. advance() is
// some nanoseconds while the follower works, and a call of the system where it sleeps.
class Follower {
 public:
  // A stretch as the follower sees it.
  class Turn {
   public:
    // How far the leader has come.
    [[nodiscard]] std::uint32_t progress() const noexcept;
    // Whether the stretch is to end: to be asked between pieces.
    [[nodiscard]] bool over() const noexcept;
    // Waits until the leader has come further than `seen`, or the stretch is to end.
    void wait_beyond(std::uint32_t seen) const noexcept;

   private:
    friend class Follower;
    struct Shared;
    explicit Turn(Shared& shared) : shared_(shared) {}
    Shared& shared_;
  };
  using Work = std::function<void(const Turn&)>;
  // A piece of work is done while one stands: the process is not forked meanwhile.
  class Piece {
   public:
    Piece();
    ~Piece();
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
  };

  Follower();
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Begins a stretch: the follower calls `work` once, or not at all where the stretch ends before.
  // Requires: following() is false. Throws Error(kSystem) where there is no thread to be had.
  void begin(std::uint32_t progress, Work work);
  void advance(std::uint32_t progress) noexcept;
  // Ends the stretch: `work` has returned, or thrown what is returned, or is never called. Nothing
  // where there is none.
  std::exception_ptr end() noexcept;
  [[nodiscard]] bool following() const noexcept { return following_; }

 private:
  void start();
  std::unique_ptr<Turn::Shared> shared_;
  pid_t process_ = 0;  // that has the thread
  bool following_ = false;
};

}  // namespace berth
