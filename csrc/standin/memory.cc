#include "csrc/standin/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace berth::standin {
namespace {

constexpr std::uint64_t kFileSize = std::uint64_t{1} << 46;
constexpr std::size_t kFilePage = 4096;

std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

std::size_t counted_bytes(std::size_t size) {
  return round_up(size, size >= kGranularity / 2 ? kGranularity : 512);
}

DeviceMemory::DeviceMemory(std::size_t total, bool overcommit)
    : total_(total), overcommit_(overcommit) {
  file_ = memfd_create(kDeviceFile, MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kFileSize)) != 0) {
    std::perror("berth stand-in: cannot make the file of a device's memory");
    std::_Exit(2);
  }
}

std::size_t DeviceMemory::free() const {
  const std::size_t taken = used_ + elsewhere_;
  return taken < total_ ? total_ - taken : 0;
}

std::size_t DeviceMemory::take(std::size_t size) {
  const std::size_t taken = std::min(size, free());
  used_ += taken;
  peak_ = std::max(peak_, used_);
  return taken;
}

std::optional<std::uint64_t> DeviceMemory::allocate(std::size_t size) {
  if (size > free() && (!overcommit_ || size > kFileSize - next_offset_)) return std::nullopt;
  used_ += size;
  peak_ = std::max(peak_, used_);
  const std::uint64_t offset = next_offset_;
  next_offset_ += round_up(size, kFilePage);
  return offset;
}

void DeviceMemory::release(std::uint64_t offset, std::size_t size) noexcept {
  used_ -= size;
  // A refusal costs host memory, nothing else.
  [[maybe_unused]] const int status =
      fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(round_up(size, kFilePage)));
}

void AddressSpace::add(const Allocation& allocation) {
  allocations_.insert_or_assign(allocation.begin, allocation);
}

bool AddressSpace::remove(std::uintptr_t begin) { return allocations_.erase(begin) != 0; }

const Allocation* AddressSpace::at(std::uintptr_t begin) const {
  const auto found = allocations_.find(begin);
  return found == allocations_.end() ? nullptr : &found->second;
}

const Allocation* AddressSpace::holding(std::uintptr_t address) const {
  const auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  const Allocation& candidate = std::prev(next)->second;
  return address < candidate.end() ? &candidate : nullptr;
}

bool AddressSpace::overlaps(std::uintptr_t begin, std::uintptr_t end) const {
  const auto next = allocations_.lower_bound(begin);
  if (next != allocations_.end() && next->first < end) return true;
  return next != allocations_.begin() && std::prev(next)->second.end() > begin;
}

bool AddressSpace::remove_reservation(std::uintptr_t begin, std::size_t size) {
  const auto found = reserved_.find(begin);
  if (found == reserved_.end() || found->second != size || overlaps(begin, begin + size))
    return false;
  reserved_.erase(found);
  return true;
}

bool AddressSpace::reserved(std::uintptr_t begin, std::size_t size) const {
  const auto next = reserved_.upper_bound(begin);
  if (next == reserved_.begin()) return false;
  const auto& [base, length] = *std::prev(next);
  return begin - base <= length && size <= length - (begin - base);
}

std::vector<Allocation> AddressSpace::all() const {
  std::vector<Allocation> result;
  for (const auto& [begin, allocation] : allocations_) result.push_back(allocation);
  return result;
}

std::vector<NamedBytes> AddressSpace::named(std::uintptr_t begin, std::size_t size) const {
  std::vector<NamedBytes> pieces;
  for (std::uintptr_t reached = begin; reached < begin + size;) {
    const Allocation* const there = holding(reached);
    const bool mapped = there != nullptr && there->kind == Allocation::Kind::kMapped;
    // What is not mapped has no other address: the rest is one piece, but for neighbours.
    const std::uintptr_t end =
        there != nullptr ? std::min(there->end(), begin + size) : begin + size;
    // mutant: alias-checker
    const std::uintptr_t bytes = mapped ? there->bytes + (reached - there->begin) : reached;
    if (!pieces.empty() && pieces.back().bytes + pieces.back().size == bytes) {
      pieces.back().size += end - reached;
    } else {
      pieces.push_back({reached, bytes, end - reached});
    }
    reached = end;
  }
  return pieces;
}

std::uintptr_t bytes_of(int file) {
  struct stat about = {};
  if (fstat(file, &about) != 0) return 0;
  // Under the machine's lock.
  static auto* const files = new std::map<ino_t, std::uintptr_t>;
  const auto [found, fresh] = files->try_emplace(about.st_ino, 0);
  if (fresh) found->second = files->size() * kFileSize * 4;
  return found->second;
}

void* map_file(int file, std::uint64_t offset, std::size_t size, void* address) {
  const int flags = MAP_SHARED | MAP_NORESERVE | (address != nullptr ? MAP_FIXED : 0);
  void* mapped = mmap(address, round_up(size, kFilePage), PROT_READ | PROT_WRITE, flags, file,
                      static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? nullptr : mapped;
}

void unmap_to_reserved(void* address, std::size_t size) noexcept {
  mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace berth::standin
