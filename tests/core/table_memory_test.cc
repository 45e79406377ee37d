#include "csrc/core/table_memory.h"

#include "tests/catch.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace {

using berth::TableMemory;

// Blocks of growing sizes and alignments, each filled with bytes of its own.
std::vector<std::pair<std::byte*, std::size_t>> take(TableMemory& memory, int count) {
  std::vector<std::pair<std::byte*, std::size_t>> blocks;
  for (int n = 0; n < count; ++n) {
    const std::size_t bytes = 1 + static_cast<std::size_t>(n) * 37;
    const std::size_t alignment = std::size_t{1} << (n % 7);
    auto* const block = static_cast<std::byte*>(memory.allocate(bytes, alignment));
    CHECK(reinterpret_cast<std::uintptr_t>(block) % alignment == 0);
    std::memset(block, n % 251, bytes);
    blocks.emplace_back(block, bytes);
  }
  return blocks;
}

}  // namespace

TEST_CASE("Blocks of a step do not touch each other", "[table_memory]") {
  TableMemory memory;
  const auto blocks = take(memory, 300);
  for (std::size_t n = 0; n < blocks.size(); ++n)
    CHECK(std::all_of(blocks[n].first, blocks[n].first + blocks[n].second,
                      [&](std::byte one) { return one == static_cast<std::byte>(n % 251); }));
}

TEST_CASE("A step finds the room that the largest one took", "[table_memory]") {
  TableMemory memory;
  (void)take(memory, 300);
  memory.reset();
  const auto second = take(memory, 300);
  memory.reset();
  (void)take(memory, 5);
  memory.reset();
  const auto last = take(memory, 300);
  CHECK(second == last);
}

TEST_CASE("Freeing gives nothing back before the step is over", "[table_memory]") {
  TableMemory memory;
  void* const first = memory.allocate(64, 8);
  memory.deallocate(first, 64, 8);
  CHECK(memory.allocate(64, 8) != first);
  memory.reset();
  CHECK(memory.allocate(64, 8) == first);
}
