#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace berth {

// One bit a page of an address range. Pages are named by index; ranges are half-open.
//
// Its words are an anonymous mapping of its own, so that changing it never allocates and clear
// parts cost no memory. O(pages / 64) a call. Not thread-safe; movable.
class PageBitmap {
 public:
  PageBitmap() = default;
  // valid() says whether the words could be had.
  explicit PageBitmap(std::uint64_t pages) noexcept;
  ~PageBitmap();
  PageBitmap(PageBitmap&& other) noexcept
      : words_(std::exchange(other.words_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PageBitmap& operator=(PageBitmap&& other) noexcept {
    std::swap(words_, other.words_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  [[nodiscard]] bool valid() const noexcept { return words_ != nullptr; }
  // Set bits of [first, last).
  [[nodiscard]] std::uint64_t count(std::uint64_t first, std::uint64_t last) const noexcept;
  // Returns how many bits changed.
  std::uint64_t set(std::uint64_t first, std::uint64_t last) noexcept;
  std::uint64_t clear(std::uint64_t first, std::uint64_t last) noexcept;
  // The first bit of [first, last) that is set (clear), or `last`.
  [[nodiscard]] std::uint64_t next_set(std::uint64_t first, std::uint64_t last) const noexcept;
  [[nodiscard]] std::uint64_t next_clear(std::uint64_t first, std::uint64_t last) const noexcept;

 private:
  std::uint64_t* words_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace berth
