#include "csrc/device/address_table.h"

#include <algorithm>
#include <new>

namespace berth {

AddressTable::~AddressTable() {
  for (const auto& leaf : root_) delete leaf.load();
}

void AddressTable::note(const void* base, Bytes size, int device) noexcept {
  if (size == 0 || device < 0 || device >= kMaxDevices) return;
  const std::size_t first = granule_of(base);
  const std::size_t last = granule_of(static_cast<const std::byte*>(base) + size - 1);
  for (std::size_t granule = first; granule <= last; ++granule) {
    if (granule / kLeaf >= kRoot) return;
    Leaf* const here = leaf(granule / kLeaf);
    if (here == nullptr) return;
    (*here)[granule % kLeaf].store(static_cast<std::uint8_t>(device + 1),
                                   std::memory_order_relaxed);
  }
}

AddressTable::Leaf* AddressTable::leaf(std::size_t index) noexcept {
  Leaf* there = root_[index].load(std::memory_order_acquire);
  if (there != nullptr) return there;
  auto* const made = new (std::nothrow) Leaf{};
  if (made == nullptr || root_[index].compare_exchange_strong(there, made)) return made;
  delete made;  // another thread was first
  return there;
}

}  // namespace berth
