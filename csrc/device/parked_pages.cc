#include "csrc/device/parked_pages.h"

#include <algorithm>
#include <new>
#include <utility>

namespace berth {

ParkedPages::~ParkedPages() { forget(); }

void ParkedPages::forget() noexcept {
  // Copies may be under way where one failed; where nobody can tell, their memory stays.
  if (pinned_ != nullptr && store_.synchronize_all().ok())
    (void)store_.release_pinned(pinned_, size_);
  pinned_ = nullptr;
  pieces_.clear();
  size_ = 0;
  parked_ = false;
}

Status ParkedPages::park() noexcept {
  try {
    pieces_ = store_.pieces();
    Bytes largest = 0;  // of those that have other addresses
    for (const PageStore::Piece& piece : pieces_)
      if (!piece.others.empty()) largest = std::max(largest, piece.last - piece.first);
    from_.reserve(largest / store_.properties().page_bytes);
  } catch (const std::bad_alloc&) {
    return {Status::Code::kFailed, "host memory"};
  }
  size_ = 0;
  for (const PageStore::Piece& piece : pieces_) size_ += piece.last - piece.first;
  if (size_ == 0) {
    parked_ = true;
    return {};
  }
  // mutant: parked-wait
  Status status = store_.synchronize_all();
  if (status.ok()) status = store_.reserve_pinned(size_, &pinned_);
  if (status.ok()) status = copy(false);
  if (!status.ok()) {
    forget();
    return status;
  }
  parked_ = true;
  status = decommit(pieces_.size());
  // mutant: park-undo
  if (!status.ok()) (void)unpark();
  return status;
}

Status ParkedPages::unpark() noexcept {
  if (!parked_) return {};
  if (const Status status = commit(); !status.ok()) return status;
  // mutant: parked-contents
  if (const Status status = copy(true); !status.ok()) {
    // The bytes are safe where they are; the pages would count a second time at the next try.
    (void)store_.synchronize_all();
    (void)decommit(pieces_.size());
    return status;
  }
  forget();
  return {};
}

// Between the pages and their place in pinned memory, and waits for it.
Status ParkedPages::copy(bool back) noexcept {
  auto* saved = static_cast<std::byte*>(pinned_);
  for (const PageStore::Piece& piece : pieces_) {
    const Bytes size = piece.last - piece.first;
    void* const pages = pointer_at(piece.first);
    const Status status = back ? store_.copy(pages, saved, size, 0, nullptr)
                               : store_.copy(saved, pages, size, 0, nullptr);
    if (!status.ok()) return status;
    saved += size;
  }
  return store_.synchronize_all();
}

Status ParkedPages::commit() noexcept {
  const Bytes page = store_.properties().page_bytes;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const PageStore::Piece& piece = pieces_[i];
    // A handle behind several addresses stays one: stitches count on that.
    // mutant: parked-handles
    const Bytes most = piece.others.empty() ? store_.handle_bytes() : piece.last - piece.first;
    Status status = store_.commit(pointer_at(piece.first), piece.last - piece.first,
                                  Device::Residency::kResident, most);
    from_.clear();
    if (!piece.others.empty())
      for (Bytes at = piece.first; at < piece.last; at += page) from_.push_back(pointer_at(at));
    for (const Bytes other : piece.others) {
      // It may still have its memory, where that could not be given back.
      if (status.ok()) status = store_.decommit(pointer_at(other), piece.last - piece.first);
      // mutant: parked-alias
      if (status.ok()) status = store_.alias(pointer_at(other), from_.data(), from_.size());
    }
    if (status.ok()) continue;
    // mutant: unpark-undo
    (void)decommit(i + 1);
    return status;
  }
  return {};
}

// The first `pieces` of them.
Status ParkedPages::decommit(std::size_t pieces) noexcept {
  for (std::size_t i = 0; i < pieces; ++i) {
    const PageStore::Piece& piece = pieces_[i];
    Status status;
    for (const Bytes other : piece.others)
      if (status.ok()) status = store_.decommit(pointer_at(other), piece.last - piece.first);
    // The memory goes with the address where it is in use.
    if (status.ok()) status = store_.decommit(pointer_at(piece.first), piece.last - piece.first);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace berth
