#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/driver_costs.h"

#include <array>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace berth::replay {

// PyTorch's CUDA caching allocator on paper, in its two forms: what it reserves for requests and
// frees in their order, and at which addresses, without memory and without libtorch. Its rules are
// those of c10/cuda/CUDACachingAllocator.cpp with default settings (torch 2.11, alike since 2.1):
//
// Sizes are rounded up to 512. Up to 1 MiB they come from a pool of segments of 2 MiB, above from
// one of segments of 20 MiB, from 10 MiB on of their own size rounded up to 2 MiB. The smallest
// free block of the stream serves, the lowest of equal ones; it is split where the rest is above 1
// MiB (in the small pool from 512 bytes on). A freed block joins its free neighbours. With
// expandable segments there is one range of addresses a stream and pool, which grows at its lowest
// gap by whole pages of 2 MiB, of 20 MiB in the large pool, and every rest is split off.
//
// Of a block that other streams used the model says that they are done at the next request: events
// are, at the latest, when the device is idle. Private pools (CUDA graphs) are not modelled.
//
// At a limit it does as the original: gives back all that is cached, whole segments or pages, and
// tries once more (a retry: the device is idle meanwhile). A refused request changes nothing that
// lives. With `max_split` blocks of that size and larger are never split, serve requests of their
// size only, and at the limit those of the stream are given back first.
//
// allocate() and free() are O(log free blocks). Not thread-safe. Owns the paper blocks.
class CachingModel {
 public:
  static constexpr Bytes kNoBytes = ~Bytes{0};
  struct Options {
    bool expandable = false;
    Bytes limit = 0;                      // of what may be reserved; 0: none
    Bytes device_bytes = Bytes{1} << 40;  // what an expandable segment's addresses are 9/8 of
    // A new segment lies below the one before, as mmap() has it and so the stand-in; or above it.
    // What a GPU's driver does decides between free blocks of equal size.
    bool addresses_fall = true;
    Bytes max_split = kNoBytes;           // max_split_size_mb of PYTORCH_ALLOC_CONF
    std::uint32_t roundup_divisions = 0;  // roundup_power2_divisions, a power of two; 0: none
  };
  struct Block;  // one that was handed out; valid until it is freed

  explicit CachingModel(const Options& options);
  ~CachingModel();
  CachingModel(const CachingModel&) = delete;
  CachingModel& operator=(const CachingModel&) = delete;

  // Null where the limit does not allow it. Requires size > 0.
  [[nodiscard]] Block* allocate(Bytes size, std::uint32_t stream);
  void free(Block* block);
  // The block is used on another stream than its own.
  void use(Block* block, std::uint32_t stream);
  // torch.cuda.empty_cache().
  void empty_cache();

  [[nodiscard]] static std::uint64_t address(const Block* block);

  // Bytes of segments, now and at most.
  [[nodiscard]] Bytes reserved() const noexcept { return reserved_; }
  [[nodiscard]] Bytes reserved_peak() const noexcept { return reserved_peak_; }
  // Bytes of blocks that are handed out, unsplit rests included: PyTorch's `allocated`.
  [[nodiscard]] Bytes allocated() const noexcept { return allocated_; }
  // How often the cache was given back and a request tried once more: num_alloc_retries.
  [[nodiscard]] std::uint64_t retries() const noexcept { return retries_; }
  // cudaMalloc and cudaFree; of expandable segments, pages mapped or unmapped at once.
  [[nodiscard]] std::uint64_t driver_calls() const noexcept { return driver_calls_; }
  // All calls of these; of expandable segments those of each handle.
  [[nodiscard]] const MemoryCallCounts& memory_calls() const noexcept { return memory_calls_; }

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const noexcept;
  };
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const noexcept;
  };
  struct Pool {
    bool small = false;
    std::set<Block*, BySize> free;
    std::set<Block*, ByAddress> unmapped;
    [[nodiscard]] Bytes page() const noexcept;  // of expandable segments
  };

  Block* make(std::uint32_t stream, Bytes size, Pool* pool, std::uint64_t address);
  void remove(Block* block);
  std::uint64_t new_addresses(Bytes size);
  [[nodiscard]] Bytes round_size(Bytes size) const noexcept;
  [[nodiscard]] bool splits(const Block* block, Bytes size) const noexcept;
  // Gives back blocks that are never split, for a request of `size`; whether that was enough.
  bool give_back_unsplit(Pool& pool, std::uint32_t stream, Bytes size);
  void give_back(Block* block);  // a whole segment
  Block* take_free(Pool& pool, std::uint32_t stream, Bytes size);
  Block* take_new(Pool& pool, std::uint32_t stream, Bytes size);
  Block* take_expandable(Pool& pool, std::uint32_t stream, Bytes size);
  Block* expandable_room(Pool& pool, std::uint32_t stream, Bytes size);
  bool map(Block* block, Bytes size);
  void unmap(Block* block);
  void merge(Block* into, Block* neighbour);
  void release(Block* block);  // back into its pool
  void finish_uses();
  void grow(Bytes size);
  [[nodiscard]] bool fits(Bytes size) const noexcept;

  Options options_;
  std::array<Pool, 2> pools_;  // small, large
  std::deque<Block> blocks_;
  std::vector<Block*> unused_, pending_;
  std::uint64_t next_address_;
  Bytes reserved_ = 0, reserved_peak_ = 0, allocated_ = 0;
  std::uint64_t driver_calls_ = 0, retries_ = 0;
  MemoryCallCounts memory_calls_;
};

}  // namespace berth::replay
