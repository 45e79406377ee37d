#include "csrc/replay/caching_model.h"

#include "csrc/facts/rounding.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <tuple>

namespace berth::replay {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
constexpr Bytes kSmall = kMiB;              // the largest request of the small pool
constexpr Bytes kSmallSegment = 2 * kMiB;   // and the page of its expandable segments
constexpr Bytes kLargeSegment = 20 * kMiB;  // the same of the large pool
constexpr Bytes kOwnSegment = 10 * kMiB;    // from here on a request has a segment of its own size
constexpr Bytes kOwnUnit = 2 * kMiB;

Bytes round_up(Bytes size, Bytes unit) { return (size + unit - 1) / unit * unit; }
Bytes round_down(Bytes size, Bytes unit) { return size / unit * unit; }

Bytes segment_bytes(Bytes size) {
  if (size <= kSmall) return kSmallSegment;
  return size < kOwnSegment ? kLargeSegment : round_up(size, kOwnUnit);
}

}  // namespace

struct CachingModel::Block {
  std::uint32_t stream = 0;
  bool in_use = false;  // handed out, or waiting for other streams
  bool used_elsewhere = false;
  bool mapped = true;
  Bytes size = 0;
  std::uint64_t address = 0;
  std::uint64_t range = 0;  // where its expandable segment begins; 0: it is in none
  Pool* pool = nullptr;
  Block* before = nullptr;  // neighbours in the segment
  Block* after = nullptr;
};

bool CachingModel::BySize::operator()(const Block* a, const Block* b) const noexcept {
  return std::tie(a->stream, a->size, a->address) < std::tie(b->stream, b->size, b->address);
}

bool CachingModel::ByAddress::operator()(const Block* a, const Block* b) const noexcept {
  return std::tie(a->stream, a->address) < std::tie(b->stream, b->address);
}

Bytes CachingModel::Pool::page() const noexcept { return small ? kSmallSegment : kLargeSegment; }

CachingModel::CachingModel(const Options& options)
    : options_(options), next_address_(std::uint64_t{1} << (options.addresses_fall ? 62 : 40)) {
  pools_[0].small = true;
}

CachingModel::~CachingModel() = default;

std::uint64_t CachingModel::address(const Block* block) { return block->address; }

CachingModel::Block* CachingModel::allocate(Bytes size, std::uint32_t stream) {
  finish_uses();
  size = round_size(size);
  Pool& pool = pools_[size <= kSmall ? 0 : 1];
  Block* block = take_free(pool, stream, size);
  if (block == nullptr) block = take_new(pool, stream, size);
  if (block == nullptr && give_back_unsplit(pool, stream, size))
    block = take_new(pool, stream, size);
  if (block == nullptr) {
    empty_cache();
    ++retries_;
    block = take_new(pool, stream, size);
  }
  if (block == nullptr) return nullptr;
  if (splits(block, size)) {
    const Bytes rest = block->size - size;
    Block* const remaining = make(stream, rest, &pool, block->address + size);
    remaining->range = block->range;
    remaining->before = block;
    remaining->after = block->after;
    if (block->after != nullptr) block->after->before = remaining;
    block->after = remaining;
    block->size = size;
    pool.free.insert(remaining);
  }
  block->in_use = true;
  allocated_ += block->size;
  return block;
}

void CachingModel::free(Block* block) {
  allocated_ -= block->size;
  if (block->used_elsewhere) {
    pending_.push_back(block);
  } else {
    release(block);
  }
}

void CachingModel::use(Block* block, std::uint32_t stream) {
  block->used_elsewhere |= stream != block->stream;
}

void CachingModel::empty_cache() {
  finish_uses();
  for (Pool* pool : {&pools_[1], &pools_[0]}) {
    std::vector<Block*> whole, pages;
    for (Block* block : pool->free) {
      if (block->range != 0) {
        pages.push_back(block);
      } else if (block->before == nullptr && block->after == nullptr) {
        whole.push_back(block);
      }
    }
    for (Block* block : whole) give_back(block);
    for (Block* block : pages) {
      unmap(block);
      // The whole range is unmapped: its addresses go back too.
      if (!block->mapped && block->before == nullptr && block->after == nullptr) {
        pool->unmapped.erase(block);
        remove(block);
        memory_calls_.add(MemoryCall::kFreeAddresses);
      }
    }
  }
}

CachingModel::Block* CachingModel::make(std::uint32_t stream, Bytes size, Pool* pool,
                                        std::uint64_t address) {
  Block* block = nullptr;
  if (unused_.empty()) {
    block = &blocks_.emplace_back();
  } else {
    block = unused_.back();
    unused_.pop_back();
    *block = Block{};
  }
  block->stream = stream;
  block->size = size;
  block->pool = pool;
  block->address = address;
  return block;
}

void CachingModel::remove(Block* block) { unused_.push_back(block); }

std::uint64_t CachingModel::new_addresses(Bytes size) {
  if (options_.addresses_fall) return next_address_ -= size;
  const std::uint64_t address = next_address_;
  next_address_ += size;
  return address;
}

Bytes CachingModel::round_size(Bytes size) const noexcept {
  const Bytes divisions = options_.roundup_divisions;
  if (divisions <= 1 || size <= facts::kCudaUnit * divisions)
    return round_up(size, facts::kCudaUnit);
  if (std::has_single_bit(size)) return size;
  const Bytes division = std::bit_floor(size) / divisions;
  return division == 0 ? std::bit_ceil(size) : round_up(size, division);
}

bool CachingModel::splits(const Block* block, Bytes size) const noexcept {
  const Bytes rest = block->size - size;
  if (block->pool->small || options_.expandable) return rest >= facts::kCudaUnit;
  return size < options_.max_split && rest > kSmall;
}

void CachingModel::give_back(Block* block) {
  block->pool->free.erase(block);
  reserved_ -= block->size;
  ++driver_calls_;
  memory_calls_.add(MemoryCall::kFree);
  remove(block);
}

bool CachingModel::give_back_unsplit(Pool& pool, std::uint32_t stream, Bytes size) {
  if (options_.max_split == kNoBytes || options_.expandable) return false;
  Block key;
  key.stream = stream;
  key.size = std::max(size, options_.max_split);
  const auto found = pool.free.lower_bound(&key);
  if (found != pool.free.end() && (*found)->stream == stream) {
    give_back(*found);
    return true;
  }
  // None is large enough: the largest ones, until together they are.
  Bytes given = 0;
  for (auto it = found; given < key.size && it != pool.free.begin();) {
    Block* const block = *--it;
    if (block->size < options_.max_split || block->stream != stream) break;
    given += block->size;
    it = std::next(it);
    give_back(block);
  }
  return given >= key.size;
}

CachingModel::Block* CachingModel::take_free(Pool& pool, std::uint32_t stream, Bytes size) {
  Block key;
  key.stream = stream;
  key.size = size;
  auto it = pool.free.lower_bound(&key);
  if (it == pool.free.end() || (*it)->stream != stream) return nullptr;
  if ((*it)->range != 0) {
    // The block before a gap counts as large as it can grow, so that others are preferred.
    const auto can_be = [](const Block* block) {
      const Block* const after = block->after;
      return block->size + (after != nullptr && !after->mapped ? after->size : 0);
    };
    for (auto next = std::next(it);
         next != pool.free.end() && (*next)->stream == stream && can_be(*next) < can_be(*it);)
      it = next++;
  }
  Block* const block = *it;
  if (size < options_.max_split && block->size >= options_.max_split) return nullptr;
  if (size >= options_.max_split && block->size >= size + kLargeSegment) return nullptr;
  pool.free.erase(it);
  return block;
}

CachingModel::Block* CachingModel::take_new(Pool& pool, std::uint32_t stream, Bytes size) {
  const Bytes segment = segment_bytes(size);
  if (options_.expandable) return take_expandable(pool, stream, size);
  if (!fits(segment)) return nullptr;
  grow(segment);
  memory_calls_.add(MemoryCall::kMalloc);
  return make(stream, segment, &pool, new_addresses(segment));
}

// A block that is free or unmapped and, with what follows it, as large as `size`.
CachingModel::Block* CachingModel::expandable_room(Pool& pool, std::uint32_t stream, Bytes size) {
  Block key;
  key.stream = stream;
  for (auto it = pool.unmapped.lower_bound(&key);
       it != pool.unmapped.end() && (*it)->stream == stream; ++it) {
    Block* block = *it;
    if (block->before != nullptr && !block->before->in_use) block = block->before;
    Bytes room = 0;
    for (const Block* next = block; room < size && next != nullptr && !next->in_use;
         next = next->after)
      room += next->size;
    if (room >= size) return block;
  }
  const Bytes addresses =
      round_up(std::max(options_.device_bytes + options_.device_bytes / 8, size), pool.page());
  Block* const block = make(stream, addresses, &pool, new_addresses(addresses));
  block->range = block->address;
  block->mapped = false;
  memory_calls_.add(MemoryCall::kReserve);
  pool.unmapped.insert(block);
  return block;
}

CachingModel::Block* CachingModel::take_expandable(Pool& pool, std::uint32_t stream, Bytes size) {
  Block* block = expandable_room(pool, stream, size);
  if (!block->mapped && !map(block, std::min(block->size, size))) return nullptr;
  while (block->size < size) {
    Block* const next = block->after;  // unmapped; joined with the block once it is mapped
    if (!map(next, std::min(size - block->size, next->size))) return nullptr;
    block = next;
  }
  pool.free.erase(block);
  return block;
}

// Puts pages behind the first `size` bytes of an unmapped block, which becomes a free one.
bool CachingModel::map(Block* block, Bytes size) {
  Pool& pool = *block->pool;
  const Bytes page = pool.page();
  const std::uint64_t end = block->range + round_up(block->address + size - block->range, page);
  const Bytes mapped = end - block->address;
  if (!fits(mapped)) return false;
  grow(mapped);
  memory_calls_.add(MemoryCall::kCreate, mapped / page);
  memory_calls_.add(MemoryCall::kMap, mapped / page);
  memory_calls_.add(MemoryCall::kSetAccess);
  pool.unmapped.erase(block);
  block->mapped = true;
  if (mapped < block->size) {
    Block* const rest = make(block->stream, block->size - mapped, &pool, end);
    rest->range = block->range;
    rest->mapped = false;
    rest->before = block;
    rest->after = block->after;
    if (block->after != nullptr) block->after->before = rest;
    block->after = rest;
    block->size = mapped;
    pool.unmapped.insert(rest);
  }
  merge(block, block->before);
  merge(block, block->after);
  pool.free.insert(block);
  return true;
}

// Takes the whole pages of a free block away.
void CachingModel::unmap(Block* block) {
  Pool& pool = *block->pool;
  const Bytes page = pool.page();
  const std::uint64_t first = block->range + round_up(block->address - block->range, page);
  const std::uint64_t last =
      block->range + round_down(block->address + block->size - block->range, page);
  if (first >= last) return;
  pool.free.erase(block);
  if (const Bytes head = first - block->address; head > 0) {
    Block* const rest = make(block->stream, head, &pool, block->address);
    rest->range = block->range;
    rest->before = block->before;
    rest->after = block;
    if (block->before != nullptr) block->before->after = rest;
    block->before = rest;
    pool.free.insert(rest);
  }
  if (const Bytes tail = block->address + block->size - last; tail > 0) {
    Block* const rest = make(block->stream, tail, &pool, last);
    rest->range = block->range;
    rest->before = block;
    rest->after = block->after;
    if (block->after != nullptr) block->after->before = rest;
    block->after = rest;
    pool.free.insert(rest);
  }
  block->address = first;
  block->size = last - first;
  block->mapped = false;
  reserved_ -= block->size;
  ++driver_calls_;
  memory_calls_.add(MemoryCall::kUnmap, block->size / page);
  memory_calls_.add(MemoryCall::kRelease, block->size / page);
  merge(block, block->before);
  merge(block, block->after);
  pool.unmapped.insert(block);
}

// Joins a free neighbour in the same state to `into`, which is in no set.
void CachingModel::merge(Block* into, Block* neighbour) {
  if (neighbour == nullptr || neighbour->in_use || neighbour->mapped != into->mapped) return;
  Pool& pool = *into->pool;
  if (neighbour->mapped) {
    pool.free.erase(neighbour);
  } else {
    pool.unmapped.erase(neighbour);
  }
  if (neighbour == into->before) {
    into->address = neighbour->address;
    into->before = neighbour->before;
    if (into->before != nullptr) into->before->after = into;
  } else {
    into->after = neighbour->after;
    if (into->after != nullptr) into->after->before = into;
  }
  into->size += neighbour->size;
  remove(neighbour);
}

void CachingModel::release(Block* block) {
  block->in_use = block->used_elsewhere = false;
  merge(block, block->before);
  merge(block, block->after);
  block->pool->free.insert(block);
}

void CachingModel::finish_uses() {
  for (Block* block : pending_) release(block);
  pending_.clear();
}

void CachingModel::grow(Bytes size) {
  reserved_ += size;
  reserved_peak_ = std::max(reserved_peak_, reserved_);
  ++driver_calls_;
}

bool CachingModel::fits(Bytes size) const noexcept {
  return options_.limit == 0 || (reserved_ <= options_.limit && size <= options_.limit - reserved_);
}

}  // namespace berth::replay
