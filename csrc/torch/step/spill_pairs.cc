// Spills: storages that are away, and pairs of storages over the same bytes.
#include "csrc/torch/step/denied_bytes.h"
#include "csrc/torch/step/spills.h"

#include <memory>
#include <mutex>
#include <utility>

namespace berth::torch::step {

namespace {

const Denial& away_text() {
  static const Denial why(
      "while they are on the host, since there was no room for them on the device. Read them by an "
      "operator, or call berth::torch::read_bytes() before");
  return why;
}

}  // namespace

// What the other one of a pair has in place of a block: the reference keeps the bytes.
class Spills::Pair {
 public:
  explicit Pair(c10::Storage real) : real_(std::move(real)) {}
  [[nodiscard]] const c10::StorageImpl* real() const { return real_.unsafeGetStorageImpl(); }

 private:
  const c10::Storage real_;
};

bool Spills::away(c10::StorageImpl& storage) noexcept {
  if (!on()) return false;
  const c10::DataPtr& bytes = storage._mutable_data_ptr_no_checks();
  return bytes.get_deleter() == &drop ||
         (bytes.get_deleter() == &end_pair && bytes.get() == nullptr);
}

void Spills::deny_away(c10::StorageImpl& storage) const {
  deny_bytes(storage, away_text());
  if (looked_at_.load(std::memory_order_relaxed)) allow_bytes(storage);
}

void Spills::hand_over(Entry& from, Entry& to) {
  to.used_at = std::move(from.used_at);
  to.used_before = std::move(from.used_before);
  to.touched = from.touched;
  to.made = std::exchange(from.made, kMadeBefore);
  to.stream = from.stream;
  to.stays |= from.stays;
}

void Spills::pair(const c10::Storage& real, c10::StorageImpl& other) {
  other.set_data_ptr_noswap(
      c10::DataPtr(real.mutable_data(), new Pair(real), &end_pair, real.device()));
  const std::lock_guard lock(mutex_);
  drop_dead();
  const auto known = [&](c10::StorageImpl& storage) -> Entry& {
    const auto found = by_storage_.find(&storage);
    return found != by_storage_.end() ? *found->second : add(storage);
  };
  Entry& second = known(other);
  Entry& first = known(*real.unsafeGetStorageImpl());
  first.other = &second;
  second.real = &first;
  hand_over(second, first);
}

void Spills::end_pair(void* pair) noexcept {
  const std::unique_ptr<Pair> gone(static_cast<Pair*>(pair));  // its reference goes last
  Spills& spills = get();
  const std::lock_guard lock(spills.mutex_);
  const auto found = spills.by_storage_.find(gone->real());
  if (found != spills.by_storage_.end()) spills.part(*found->second);
}

void Spills::part(Entry& real) {
  if (real.other == nullptr) return;
  Entry& other = *std::exchange(real.other, nullptr);
  other.real = nullptr;
  other.away = false;
  if (!other.storage.expired()) hand_over(real, other);
}

Spills::Strong Spills::other_of(const Entry& entry) {
  return entry.other == nullptr ? Strong() : entry.other->storage.lock();
}

bool Spills::may_leave_with(const Strong& other) {
  // mutant: spills-pair-array
  return other != nullptr && other->resizable();
}

void Spills::set_address(c10::StorageImpl& other, void* address) {
  c10::DataPtr had = other.set_data_ptr(c10::DataPtr(nullptr, other.device()));
  other.set_data_ptr_noswap(
      c10::DataPtr(address, had.release_context(), &end_pair, other.device()));
}

bool Spills::move(c10::StorageImpl& from, c10::StorageImpl& to) {
  c10::DataPtr pair(nullptr, to.device());
  const std::lock_guard lock(mutex_);
  const auto found = by_storage_.find(&from);
  if (found == by_storage_.end() || !found->second->away) return false;
  Entry& entry = *found->second;
  if (to._mutable_data_ptr_no_checks().get() != nullptr) return false;
  const auto known = by_storage_.find(&to);
  Entry& there = known != by_storage_.end() ? *known->second : add(to);
  if (entry.other == &there) part(entry);
  if (there.away) return false;
  hand_over(entry, there);
  there.lacked_room = std::exchange(entry.lacked_room, false);
  there.copy = std::exchange(entry.copy, {});
  there.left_on = entry.left_on;
  there.away = true;
  entry.away = false;
  put(from, c10::DataPtr(nullptr, from.device()));
  pair = to.set_data_ptr(c10::DataPtr(nullptr, &there, &drop, to.device()));
  deny_away(to);
  return true;
}

}  // namespace berth::torch::step
