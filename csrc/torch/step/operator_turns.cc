#include "csrc/torch/step/operator_turns.h"

#include <algorithm>
#include <new>

namespace berth::torch::step {

bool OperatorTurns::others_are_needy(const Turn& turn) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const Turn* one) { return one != &turn && one->needy_; });
}

bool OperatorTurns::all_others_wait(const Turn& turn) const {
  return std::all_of(running_.begin(), running_.end(),
                     [&](const Turn* one) { return one == &turn || one->waits_; });
}

void OperatorTurns::begin(Turn& turn, bool begins_again) {
  std::unique_lock lock(mutex_);
  // mutant: turns-admission
  (void)changed_.wait_for(lock, patience_, [&] { return !others_are_needy(turn); });
  turn.turns_ = this;
  turn.begins_again_ = begins_again;
  running_.push_back(&turn);
}

void OperatorTurns::set_begins_again(Turn& turn, bool may) {
  const std::lock_guard lock(mutex_);
  turn.begins_again_ = may;
}

void OperatorTurns::Turn::end() noexcept {
  if (turns_ == nullptr) return;
  {
    const std::lock_guard lock(turns_->mutex_);
    auto& running = turns_->running_;
    running.erase(std::remove(running.begin(), running.end(), this), running.end());
    ++turns_->ended_;
    needy_ = false;
  }
  // mutant: turns-end
  turns_->changed_.notify_all();
  turns_ = nullptr;
}

void OperatorTurns::Turn::calm() noexcept {
  if (!needy_) return;  // the calling thread alone writes it
  {
    const std::lock_guard lock(turns_->mutex_);
    needy_ = false;
  }
  turns_->changed_.notify_all();
}

std::uint64_t OperatorTurns::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

OperatorTurns::Answer OperatorTurns::wait(Turn& turn, std::uint64_t ended) {
  std::unique_lock lock(mutex_);
  if (ended_ != ended) return Answer::kAskAgain;
  if (std::all_of(running_.begin(), running_.end(), [&](Turn* one) { return one == &turn; }))
    return Answer::kFail;
  if (turn.turns_ == nullptr) {
    turn.turns_ = this;
    running_.push_back(&turn);
  }
  turn.needy_ = true;
  if (all_others_wait(turn)) {
    if (turn.begins_again_) return Answer::kGiveWay;
    const auto other = std::find_if(running_.begin(), running_.end(), [&](const Turn* one) {
      return one != &turn && one->begins_again_;
    });
    if (other == running_.end()) return Answer::kFail;
    // mutant: turns-victim
    (*other)->gives_way_ = true;
    (*other)->waits_ = false;
    changed_.notify_all();
  }
  turn.waits_ = true;
  const bool in_time =
      changed_.wait_for(lock, patience_, [&] { return ended_ != ended || turn.gives_way_; });
  turn.waits_ = false;
  if (turn.gives_way_) {
    turn.gives_way_ = false;
    return Answer::kGiveWay;
  }
  return in_time ? Answer::kAskAgain : Answer::kFail;
}

void OperatorTurns::forget_others_in_child() {
  running_.clear();
  ::new (static_cast<void*>(&changed_)) std::condition_variable;  // others waited for the old one
}

}  // namespace berth::torch::step
