#pragma once

#include "csrc/device/page_store.h"

#include <cstddef>
#include <vector>

namespace berth {

// All pages of a store, away from the device while nobody uses them: what they held is in pinned
// host memory, and comes back to the same addresses. Pages that were behind several addresses are
// again.
//
// Who asked the store for the pages does not hear of it, and must use neither them nor the store
// until they are back. Not thread-safe: the allocator's lock covers it. The store outlives it. Both
// calls are O(bytes), and wait for the device.
class ParkedPages {
 public:
  explicit ParkedPages(PageStore& store) : store_(store) {}
  // What is still away is lost.
  ~ParkedPages();
  ParkedPages(const ParkedPages&) = delete;
  ParkedPages& operator=(const ParkedPages&) = delete;

  [[nodiscard]] bool parked() const noexcept { return parked_; }
  [[nodiscard]] Bytes bytes() const noexcept { return parked_ ? size_ : 0; }

  // Takes them away, once the device is done with them. After a failure all is as it was, but where
  // the device then refused what it had just taken: that stays parked. Requires !parked() and a
  // device that maps pages.
  Status park() noexcept;
  // Brings them back. After a failure they stay parked.
  Status unpark() noexcept;

 private:
  Status copy(bool back) noexcept;
  Status commit() noexcept;
  Status decommit(std::size_t pieces) noexcept;
  void forget() noexcept;

  PageStore& store_;
  bool parked_ = false;
  std::vector<PageStore::Piece> pieces_;
  std::vector<const void*> from_;  // pages of the piece that comes back
  void* pinned_ = nullptr;         // their contents, one after the other
  Bytes size_ = 0;
};

}  // namespace berth
