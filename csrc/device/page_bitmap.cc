#include "csrc/device/page_bitmap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace berth {
namespace {

// The bits of word `word` that lie in [first, last).
std::uint64_t mask_of(std::uint64_t word, std::uint64_t first, std::uint64_t last) noexcept {
  const std::uint64_t low = std::max(first, word * 64) - word * 64;
  const std::uint64_t high = std::min(last, word * 64 + 64) - word * 64;
  const std::uint64_t below = high == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << high) - 1;
  return below & (~std::uint64_t{0} << low);
}

std::uint64_t next(const std::uint64_t* words, std::uint64_t flip, std::uint64_t first,
                   std::uint64_t last) noexcept {
  if (first >= last) return last;
  for (std::uint64_t word = first / 64; word <= (last - 1) / 64; ++word) {
    const std::uint64_t bits = (words[word] ^ flip) & mask_of(word, first, last);
    if (bits != 0) return word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
  }
  return last;
}

}  // namespace

PageBitmap::PageBitmap(std::uint64_t pages) noexcept {
  const std::size_t bytes = std::max<std::size_t>((pages + 63) / 64 * 8, 8);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return;
  words_ = static_cast<std::uint64_t*>(base);
  bytes_ = bytes;
}

PageBitmap::~PageBitmap() {
  if (words_ != nullptr) munmap(words_, bytes_);
}

std::uint64_t PageBitmap::count(std::uint64_t first, std::uint64_t last) const noexcept {
  std::uint64_t found = 0;
  if (first >= last) return found;
  for (std::uint64_t word = first / 64; word <= (last - 1) / 64; ++word)
    found += static_cast<std::uint64_t>(std::popcount(words_[word] & mask_of(word, first, last)));
  return found;
}

std::uint64_t PageBitmap::set(std::uint64_t first, std::uint64_t last) noexcept {
  if (first >= last) return 0;
  const std::uint64_t before = count(first, last);
  for (std::uint64_t word = first / 64; word <= (last - 1) / 64; ++word)
    words_[word] |= mask_of(word, first, last);
  return last - first - before;
}

std::uint64_t PageBitmap::clear(std::uint64_t first, std::uint64_t last) noexcept {
  const std::uint64_t before = count(first, last);
  if (before == 0) return 0;  // writes nothing: untouched words stay without a page
  for (std::uint64_t word = first / 64; word <= (last - 1) / 64; ++word)
    words_[word] &= ~mask_of(word, first, last);
  return before;
}

std::uint64_t PageBitmap::next_set(std::uint64_t first, std::uint64_t last) const noexcept {
  return next(words_, 0, first, last);
}

std::uint64_t PageBitmap::next_clear(std::uint64_t first, std::uint64_t last) const noexcept {
  return next(words_, ~std::uint64_t{0}, first, last);
}

}  // namespace berth
