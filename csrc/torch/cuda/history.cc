#include "csrc/torch/cuda/history.h"

#include <algorithm>
#include <utility>

namespace berth::torch {
namespace {

thread_local bool in_tracker = false;

}  // namespace

bool History::inside_tracker() noexcept { return in_tracker; }

void History::set(Settings settings) {
  std::unordered_set<int> skipped;
  for (const std::string& action : settings.skip_actions)
    skipped.insert(static_cast<int>(c10::CachingDeviceAllocator::parseTraceEntryAction(action)));
  const bool on = settings.enabled;
  enabled_.store(on, std::memory_order_relaxed);
  create_context_.store(on ? settings.create_context : nullptr, std::memory_order_relaxed);
  when_.store(on ? settings.when : When::NEVER, std::memory_order_relaxed);
  if (on) {
    max_entries_ = std::max<std::size_t>(settings.max_entries, 1);
    skipped_ = std::move(skipped);
    while (ring_.size() > max_entries_) ring_.pop_front();
  } else {
    contexts_.clear();
  }
  if (!on || settings.clear) ring_.clear();
  active_.store(on || trackers_ != nullptr, std::memory_order_relaxed);
}

void History::attach(Tracker tracker) {
  auto trackers = trackers_ == nullptr ? std::make_shared<std::vector<Tracker>>()
                                       : std::make_shared<std::vector<Tracker>>(*trackers_);
  trackers->push_back(std::move(tracker));
  trackers_ = std::move(trackers);
  active_.store(true, std::memory_order_relaxed);
}

void History::insert(Entry entry) {
  if (!enabled_ || skipped_.contains(static_cast<int>(entry.action_))) return;
  if (ring_.size() == max_entries_) ring_.pop_front();
  ring_.push_back(std::move(entry));
}

void History::add(Entry entry) noexcept {
  try {
    if (trackers_ != nullptr) {
      undelivered_.push_back(entry);
      undelivered_flag_.store(true, std::memory_order_relaxed);
    }
    insert(std::move(entry));
  } catch (...) {  // no memory for the entry
  }
}

void History::add_and_tell(Entry entry) noexcept {
  if (trackers_ != nullptr) {
    // In order: what they have not heard of yet comes first.
    Trackers trackers;
    const std::vector<Entry> earlier = take_undelivered(&trackers);
    in_tracker = true;
    const auto tell = [&](const Entry& one) {
      for (const Tracker& tracker : *trackers) {
        try {
          tracker(one);
        } catch (...) {  // a tracker's own failure
        }
      }
    };
    for (const Entry& one : earlier) tell(one);
    tell(entry);
    in_tracker = false;
  }
  try {
    insert(std::move(entry));
  } catch (...) {
  }
}

void History::keep_context(const void* block, Context context) noexcept {
  if (context == nullptr) return;
  try {
    contexts_[block] = std::move(context);
  } catch (...) {
  }
}

History::Context History::context_of(const void* block) const noexcept {
  const auto it = contexts_.find(block);
  return it == contexts_.end() ? nullptr : it->second;
}

History::Context History::forget_context(const void* block) noexcept {
  const auto it = contexts_.find(block);
  if (it == contexts_.end()) return nullptr;
  Context context = std::move(it->second);
  contexts_.erase(it);
  return context;
}

std::vector<History::Entry> History::entries() const { return {ring_.begin(), ring_.end()}; }

std::vector<History::Entry> History::take_undelivered(Trackers* trackers) noexcept {
  undelivered_flag_.store(false, std::memory_order_relaxed);
  *trackers = trackers_;
  return std::exchange(undelivered_, {});
}

}  // namespace berth::torch
