#include "csrc/device/page_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace berth {
namespace {

Bytes number(const void* pointer) noexcept { return reinterpret_cast<Bytes>(pointer); }
constexpr const char* kLimit = "memory limit";
constexpr const char* kTarget = "memory target";
// Of what is held, the most that a handle has: what it keeps from others while a small block lives
// on it is as little.
constexpr Bytes kHandlePart = 4096;

}  // namespace

PageStore::PageStore(Device& device, Watcher* watcher)
    : ForwardingDevice(device), watcher_(watcher) {}

void PageStore::set_limit(Bytes limit) noexcept { limit_ = limit; }

Bytes PageStore::limit() const noexcept {
  const Bytes others = device_.limit();
  return limit_ == 0 || others == 0 ? std::max(limit_, others) : std::min(limit_, others);
}

std::uint64_t PageStore::refusals() const noexcept { return refusals_; }

// --- Memory -------------------------------------------------------------------------------------

Status PageStore::take(Bytes size) noexcept {
  if (limit_ != 0 && size > limit_ - std::min(limit_, held_)) {
    ++refusals_;
    return {Status::Code::kOutOfMemory, kLimit};
  }
  held_ += size;
  peak_ = std::max(peak_, held_);
  return {};
}

Bytes PageStore::room() const noexcept {
  Bytes most = limit_ == 0 ? kMaxBytes : limit_;
  if (refused_at_ != 0) most = std::min(most, refused_at_);
  const Bytes own = most == kMaxBytes ? most : most - std::min(most, held_);
  // mutant: room-of-others
  return std::min(own, device_.room());
}

bool PageStore::is_near_limit(Bytes live, Bytes part) const noexcept {
  const Bytes left = room();
  return left != kMaxBytes && held_ + left < live + live / part;
}

Bytes PageStore::handle_bytes() const noexcept {
  if (!handle_) return device_.handle_bytes();
  const Bytes page = properties().page_bytes, part = *handle_ == 0 ? held_ / kHandlePart : *handle_;
  return std::min(device_.handle_bytes(), std::max(page, align_down(part, page)));
}

void PageStore::give(Bytes size) noexcept { held_ -= size; }

void PageStore::tell_reserved(void* base, Bytes size, Holding holding) noexcept {
  if (watcher_ != nullptr) watcher_->reserved(base, size, holding);
}

void PageStore::tell_releasing(void* base, Bytes size, Holding holding) noexcept {
  if (watcher_ != nullptr) watcher_->releasing(base, size, holding);
}

Status PageStore::reserve(Bytes size, Bytes alignment, void** base) noexcept {
  if (properties().maps_pages) {
    const Status status = device_.reserve(size, alignment, base);
    note_failure(status);
    if (!status.ok()) return status;
    try {
      reserved_.emplace(number(*base), number(*base) + size);
    } catch (const std::bad_alloc&) {  // then pieces() does not know where it ends
    }
    if (watcher_ != nullptr) watcher_->addresses_reserved(*base, size);
    return status;
  }
  if (is_beyond_target(size)) return {Status::Code::kOutOfMemory, kTarget};
  if (const Status status = take(size); !status.ok()) return status;
  const Status status = device_.reserve(size, alignment, base);
  note_failure(status);
  if (!status.ok()) {
    give(size);
  } else {
    tell_reserved(*base, size, Holding::kReservation);
  }
  return status;
}

Status PageStore::release(void* base, Bytes size) noexcept {
  if (!properties().maps_pages) {
    tell_releasing(base, size, Holding::kReservation);
    const Status status = device_.release(base, size);
    if (status.ok()) {
      give(size);
    } else {
      tell_reserved(base, size, Holding::kReservation);
    }
    return status;
  }
  const Bytes first = number(base);
  const Status status =
      unmap(first, first + size, [&]() noexcept { return device_.release(base, size); });
  if (!status.ok()) return status;
  reserved_.erase(first);
  if (watcher_ != nullptr) watcher_->addresses_released(base, size);
  return status;
}

Status PageStore::commit(void* base, Bytes size, Residency residency, Bytes most) noexcept {
  if (!properties().maps_pages) return device_.commit(base, size, residency, most);
  const Bytes first = number(base), last = first + size;
  Bytes missing = 0;
  for (Stretch hole = next(first, last, false); hole.first != hole.last;
       hole = next(hole.last, last, false))
    missing += hole.last - hole.first;
  // Where nothing is missing the pages may still have to be made resident.
  if (missing == 0) return device_.commit(base, size, residency, most);
  if (is_beyond_target(missing)) return {Status::Code::kOutOfMemory, kTarget};
  if (const Status status = take(missing); !status.ok()) return status;
  note_change(missing);
  Status status = device_.commit(base, size, residency, most);
  note_failure(status);
  if (status.code() == Status::Code::kOutOfMemory) refused_at_ = held_;
  if (status.ok()) {
    if (held_ >= refused_at_) refused_at_ = 0;  // others gave some back
    for (Stretch hole = next(first, last, false); hole.first != hole.last;
         hole = next(hole.last, last, false)) {
      tell_reserved(pointer_at(hole.first), hole.last - hole.first, Holding::kPages);
    }
    try {
      add(first, last);
      return status;
    } catch (const std::bad_alloc&) {
      status = {Status::Code::kFailed, "host memory"};
      for (Stretch hole = next(first, last, false); hole.first != hole.last;
           hole = next(hole.last, last, false)) {
        tell_releasing(pointer_at(hole.first), hole.last - hole.first, Holding::kPages);
        (void)device_.decommit(pointer_at(hole.first), hole.last - hole.first);
      }
    }
  }
  give(missing);
  return status;
}

Status PageStore::decommit(void* base, Bytes size) noexcept {
  if (!properties().maps_pages) return device_.decommit(base, size);
  const Bytes first = number(base), last = first + size;
  try {
    cut_around(first, last);  // nothing has happened yet
  } catch (const std::bad_alloc&) {
    return {Status::Code::kFailed, "host memory"};
  }
  return unmap(first, last, [&]() noexcept { return device_.decommit(base, size); });
}

template <class Call>
Status PageStore::unmap(Bytes first, Bytes last, Call&& call) noexcept {
  begin_leaving(first, last);
  for_each_leaving(first, last,
                   [&](void* base, Bytes size) { tell_releasing(base, size, Holding::kPages); });
  const Status status = call();
  if (!status.ok())
    for_each_leaving(first, last,
                     [&](void* base, Bytes size) { tell_reserved(base, size, Holding::kPages); });
  end_leaving(first, last);
  if (!status.ok()) return status;
  for (Stretch held = next(first, last, true); held.first != held.last;
       held = next(held.last, last, true)) {
    note_change(held.last - held.first);
    give(forget(held.first, held.last));
    remove(held.first, held.last);
  }
  return status;
}

template <class Visit>
void PageStore::for_each_shared(Bytes first, Bytes last, Visit&& visit) const noexcept {
  if (shared_.empty()) return;
  const Bytes page = properties().page_bytes;
  for (Stretch held = next(first, last, true); held.first != held.last;
       held = next(held.last, last, true)) {
    for (Bytes at = held.first; at < held.last; at += page)
      if (const auto known = shared_.find(at); known != shared_.end()) visit(at, known->second);
  }
}

void PageStore::begin_leaving(Bytes first, Bytes last) noexcept {
  const Bytes page = properties().page_bytes;
  for_each_shared(first, last, [&](Bytes at, const std::shared_ptr<Shared>& shared) {
    ++shared->going;
    if (shared->users.size() <= shared->going || shared->used_at != at) return;
    const auto other = std::find_if(shared->users.begin(), shared->users.end(),
                                    [&](Bytes user) { return user < first || user > at; });
    if (other == shared->users.end()) return;
    shared->used_at = *other;
    if (watcher_ != nullptr) watcher_->moved(pointer_at(*other), pointer_at(at), page);
  });
}

void PageStore::end_leaving(Bytes first, Bytes last) noexcept {
  for_each_shared(first, last,
                  [](Bytes, const std::shared_ptr<Shared>& shared) { shared->going = 0; });
}

template <class Visit>
void PageStore::for_each_leaving(Bytes first, Bytes last, Visit&& visit) const noexcept {
  const Bytes page = properties().page_bytes;
  const auto leaves = [&](Bytes at) {
    const auto known = shared_.find(at);
    return known == shared_.end() ||
           (known->second->users.size() == known->second->going && known->second->used_at == at);
  };
  for (Stretch held = next(first, last, true); held.first != held.last;
       held = next(held.last, last, true)) {
    Bytes from = held.first;
    if (!shared_.empty()) {
      for (Bytes at = held.first; at < held.last; at += page) {
        if (leaves(at)) continue;
        if (from < at) visit(pointer_at(from), at - from);
        from = at + page;
      }
    }
    if (from < held.last) visit(pointer_at(from), held.last - from);
  }
}

Status PageStore::alias(void* to, const void* const* from, std::size_t pages) noexcept {
  const Bytes page = properties().page_bytes, first = number(to), size = pages * page;
  const auto forget_users = [&] {
    for (Bytes at = first; at < first + size; at += page) {
      const auto known = shared_.find(at);
      if (known == shared_.end()) continue;
      std::erase(known->second->users, at);
      shared_.erase(known);
    }
  };
  // What stays where something fails says that a page is behind one address, which is true.
  try {
    for (std::size_t i = 0; i < pages; ++i) {
      const auto known = shared_.find(number(from[i]));
      const auto shared =
          known == shared_.end()
              ? std::make_shared<Shared>(Shared{{number(from[i])}, 0, number(from[i])})
              : known->second;
      shared->users.reserve(shared->users.size() + 1);
      shared_.emplace(number(from[i]), shared);
      shared_.emplace(first + i * page, shared);
    }
  } catch (const std::bad_alloc&) {
    forget_users();
    return {Status::Code::kFailed, "host memory"};
  }
  note_change(size);
  Status status = device_.alias(to, from, pages);
  if (status.ok()) {
    try {
      add(first, first + size);
      for (std::size_t i = 0; i < pages; ++i)
        shared_.at(first + i * page)->users.push_back(first + i * page);
      return status;
    } catch (const std::bad_alloc&) {
      status = {Status::Code::kFailed, "host memory"};
      (void)device_.decommit(to, size);
    }
  }
  forget_users();
  return status;
}

// What is held stays the same.
Status PageStore::move(void* to, void* from, Bytes size) noexcept {
  const Bytes first = number(from), last = first + size;
  Stretches there;
  try {
    cut_around(first, last);
    there.emplace(number(to), number(to) + size);
  } catch (const std::bad_alloc&) {
    return {Status::Code::kFailed, "host memory"};
  }
  const Status status = device_.move(to, from, size);
  if (!status.ok()) return status;
  remove(first, last);
  join(there.extract(there.begin()));
  if (watcher_ != nullptr) watcher_->moved(to, from, size);
  return status;
}

void PageStore::use_at(void* to, void* from, Bytes size) noexcept {
  const Bytes page = properties().page_bytes;
  for (Bytes at = 0; at < size; at += page)
    if (const auto known = shared_.find(number(from) + at); known != shared_.end())
      known->second->used_at = number(to) + at;
  if (watcher_ != nullptr) watcher_->moved(to, from, size);
}

Bytes PageStore::forget(Bytes first, Bytes last) noexcept {
  Bytes gone = last - first;
  if (shared_.empty()) return gone;
  const Bytes page = properties().page_bytes;
  for (Bytes at = first; at < last; at += page) {
    const auto users = shared_.find(at);
    if (users == shared_.end()) continue;
    std::vector<Bytes>& addresses = users->second->users;
    std::erase(addresses, at);
    if (!addresses.empty()) gone -= page;
    shared_.erase(users);
  }
  return gone;
}

std::vector<PageStore::Piece> PageStore::pieces() const {
  const Bytes page = properties().page_bytes;
  std::vector<Piece> pieces;
  std::unordered_map<const Shared*, std::size_t> piece_of;
  // Committed stretches of reservations that touch are one.
  std::vector<Stretch> stretches;
  for (const auto& [first, last] : committed_) {
    for (Bytes at = first; at < last;) {
      const auto after = reserved_.upper_bound(at);
      const bool known = after != reserved_.begin() && std::prev(after)->second > at;
      const Bytes end = known ? std::min(last, std::prev(after)->second) : last;
      stretches.push_back({at, end});
      at = end;
    }
  }
  for (const auto& [first, last] : stretches) {
    if (shared_.empty()) {
      pieces.push_back({first, last});
      continue;
    }
    bool open = false;  // the last piece ends here and may go on
    for (Bytes at = first, end = first; at < last; at = end) {
      const auto users = shared_.find(at);
      if (users == shared_.end() || users->second->users.size() < 2) {
        end = at + page;
        if (!std::exchange(open, true)) pieces.push_back({at, at});
        pieces.back().last = end;
        continue;
      }
      open = false;
      // All pages of a handle have the same addresses.
      end = device_.handle_at(pointer_at(at)).last;
      const auto [known, added] = piece_of.try_emplace(users->second.get(), pieces.size());
      if (added) {
        pieces.push_back({at, end});
        continue;
      }
      Piece& piece = pieces[known->second];
      piece.others.push_back(at);
      // It is named by where it is in use.
      if (users->second->used_at != at) continue;
      std::swap(piece.first, piece.others.back());
      piece.last = piece.first + (end - at);
    }
  }
  return pieces;
}

PageStore::Stretch PageStore::next(Bytes first, Bytes last, bool committed) const noexcept {
  auto it = committed_.upper_bound(first);
  const bool inside = it != committed_.begin() && std::prev(it)->second > first;
  if (committed) {
    if (inside) return {first, std::min(last, std::prev(it)->second)};
    if (it == committed_.end() || it->first >= last) return {last, last};
    return {it->first, std::min(last, it->second)};
  }
  if (inside) {
    first = std::prev(it)->second;
    // Stretches that were cut may touch.
    while (it != committed_.end() && it->first == first) first = (it++)->second;
  }
  if (first >= last) return {last, last};
  return {first, it == committed_.end() ? last : std::min(last, it->first)};
}

void PageStore::add(Bytes first, Bytes last) {
  Stretches one = {{first, last}};
  join(one.extract(one.begin()));
}

void PageStore::join(Stretches::node_type stretch) noexcept {
  Bytes& first = stretch.key();
  Bytes& last = stretch.mapped();
  auto it = committed_.upper_bound(last);
  while (it != committed_.begin() && std::prev(it)->second >= first) {
    --it;
    first = std::min(first, it->first);
    last = std::max(last, it->second);
    it = committed_.erase(it);
  }
  committed_.insert(std::move(stretch));
}

void PageStore::cut_around(Bytes first, Bytes last) {
  const auto after = committed_.upper_bound(first);
  if (after == committed_.begin()) return;
  const auto stretch = std::prev(after);
  if (stretch->first >= first || stretch->second <= last) return;
  committed_.emplace(last, stretch->second);
  stretch->second = last;
}

// Of stretches that reach beyond the range at one side only.
void PageStore::remove(Bytes first, Bytes last) {
  auto it = committed_.upper_bound(first);
  if (it != committed_.begin() && std::prev(it)->second > first) --it;
  while (it != committed_.end() && it->first < last) {
    const Bytes from = it->first, until = it->second;
    if (until > last) {
      auto node = committed_.extract(it);
      node.key() = last;
      committed_.insert(std::move(node));
      return;
    }
    if (from < first) {
      it->second = first;
      ++it;
    } else {
      it = committed_.erase(it);
    }
  }
}

std::string PageStore::describe(const Status& status) const {
  if (status.call() == kTarget)
    return fmt::format("what should be held at most, {}, of which {} are", format_bytes(target_),
                       format_bytes(held_));
  if (status.call() != kLimit) return device_.describe(status);
  return fmt::format(
      "the limit of {} (BERTH_MEMORY_LIMIT, or a memory fraction), of which {} are held",
      format_bytes(limit_), format_bytes(held_));
}

Status PageStore::free_bytes(Bytes* free) noexcept {
  const Status status = device_.free_bytes(free);
  if (status.ok() && limit_ != 0) *free = std::min(*free, limit_ - std::min(limit_, held_));
  return status;
}

}  // namespace berth
