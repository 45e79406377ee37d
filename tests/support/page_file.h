#pragma once

#include "csrc/core/bytes.h"
#include "csrc/core/interval_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace berth::test {

// The physical memory of a simulated device: an anonymous file, whose pages may be mapped at
// several addresses at once. Addresses are somebody else's mappings, which add() names; a page of
// theirs has no memory until map() or alias() puts some there, and reads as zero then.
//
// Memory is named by its first byte in the file, a number that is no address and is never used
// twice. Not thread-safe.
class PageFile {
 public:
  explicit PageFile(Bytes page) : page_(page), file_(memfd_create("pages", MFD_CLOEXEC)) {
    if (file_ < 0) fail("memfd_create");
    // A hole: what was never used takes no memory.
    if (ftruncate(file_, off_t{1} << 62) != 0) fail("ftruncate");
  }
  ~PageFile() { close(file_); }
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  // Bytes of memory that have an address, each once.
  [[nodiscard]] Bytes held() const { return uses_.size() * page_; }

  void add(Bytes base, Bytes size) { ranges_[base].resize(size / page_, kNone); }
  // All of its pages were unmapped.
  void remove(Bytes base) { ranges_.erase(base); }
  // Whether these are whole pages of one range.
  [[nodiscard]] bool has(Bytes first, Bytes size) const {
    const auto it = range_of(first);
    return it != ranges_.end() && first % page_ == 0 && size % page_ == 0 && size != 0 &&
           size <= it->first + it->second.size() * page_ - first;
  }

  // The memory behind the page that holds `address`, or kNone.
  static constexpr Bytes kNone = 0;
  [[nodiscard]] Bytes memory_of(Bytes address) const {
    const auto it = range_of(address);
    return it == ranges_.end() ? kNone : it->second[(address - it->first) / page_];
  }
  // The memory behind `bytes`, in their order; addresses where there is none.
  [[nodiscard]] std::vector<ByteRange> memory_of(ByteRange bytes) const {
    std::vector<ByteRange> parts;
    while (bytes.first < bytes.last) {
      const Bytes page = memory_of(bytes.first), into = bytes.first % page_;
      const Bytes first = page == kNone ? bytes.first : page + into;
      const Bytes last = first + std::min(page_ - into, bytes.last - bytes.first);
      bytes.first += last - first;
      if (!parts.empty() && parts.back().last == first) {
        parts.back().last = last;
      } else {
        parts.push_back({first, last});
      }
    }
    return parts;
  }

  // Bytes of [first, first + size) without memory.
  [[nodiscard]] Bytes missing(Bytes first, Bytes size) const {
    Bytes missing = 0;
    for (Bytes at = first; at < first + size; at += page_)
      missing += memory_of(at) == kNone ? page_ : 0;
    return missing;
  }
  // New memory where there is none.
  void map(Bytes first, Bytes size) {
    for (Bytes at = first; at < first + size;) {
      Bytes end = at;
      while (end < first + size && memory_of(end) == kNone) end += page_;
      if (end != at) {
        const Bytes memory = next_;
        next_ += end - at;
        put(at, end - at, memory);
      }
      at = end + page_;
    }
  }
  // The memory behind `from` behind `to` as well.
  void alias(Bytes to, Bytes from) { put(to, page_, memory_of(from)); }
  // No memory behind these pages; `gone` hears of what has no address any more.
  template <class Gone>
  void unmap(Bytes first, Bytes size, const Gone& gone) {
    std::vector<ByteRange> unused;
    for (Bytes at = first; at < first + size; at += page_) {
      const Bytes memory = std::exchange(page_at(at), kNone);
      if (memory == kNone || --uses_[memory] != 0) continue;
      uses_.erase(memory);
      if (!unused.empty() && unused.back().last == memory) {
        unused.back().last += page_;
      } else {
        unused.push_back({memory, memory + page_});
      }
    }
    for (const ByteRange part : unused) {
      if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(part.first), static_cast<off_t>(part.size())) != 0)
        fail("fallocate");
      gone(part);
    }
    // As the addresses came.
    if (mmap(pointer(first), size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
      fail("mmap");
  }

 private:
  using Ranges = std::map<Bytes, std::vector<Bytes>>;

  static void* pointer(Bytes address) { return reinterpret_cast<void*>(address); }
  [[noreturn]] static void fail(const char* call) {
    throw std::runtime_error(fmt::format("{} of a simulated device's memory", call));
  }
  [[nodiscard]] Ranges::const_iterator range_of(Bytes address) const {
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin()) return ranges_.end();
    --it;
    return address - it->first < it->second.size() * page_ ? it : ranges_.end();
  }
  Bytes& page_at(Bytes address) {
    const auto it = std::prev(ranges_.upper_bound(address));
    return it->second[(address - it->first) / page_];
  }
  void put(Bytes at, Bytes size, Bytes memory) {
    if (mmap(pointer(at), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
             static_cast<off_t>(memory)) == MAP_FAILED)
      fail("mmap");
    for (Bytes done = 0; done < size; done += page_) {
      page_at(at + done) = memory + done;
      ++uses_[memory + done];
    }
  }

  const Bytes page_;
  const int file_;
  Bytes next_ = Bytes{1} << 48;  // above all addresses
  Ranges ranges_;                // by base: the memory of each page
  std::map<Bytes, int> uses_;    // addresses that have it
};

}  // namespace berth::test
