#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

namespace berth {

// Room for the tables of one step after another: what a step took is there for the next one, so
// that a step asks malloc for nothing large. Not thread-safe. An allocation is O(1), freeing does
// nothing; it holds what the largest step took.
class TableMemory final : public std::pmr::memory_resource {
 public:
  // Nothing of it is in use any more.
  void reset();

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::size_t total_ = 0;  // of all chunks
  void* next_ = nullptr;   // in the last chunk
  std::size_t left_ = 0;
};

}  // namespace berth
