#include "csrc/trace/name_table.h"

#include "csrc/trace/chunk_encoder.h"
#include "csrc/trace/chunk_frame.h"

#include <algorithm>

namespace berth::trace {
namespace {

// Numbers `key`, new ones in order of appearance, and lists a new one; nothing changes where memory
// is short.
template <class Map, class Key, class List>
std::uint32_t number(Map& map, Key&& key, List& list) {
  if (list.size() == list.capacity()) list.reserve(2 * list.size() + 16);
  const auto [it, unknown] =
      map.emplace(std::forward<Key>(key), static_cast<std::uint32_t>(map.size()));
  if (unknown) {
    if constexpr (std::is_pointer_v<typename List::value_type>) {
      list.push_back(&it->first);
    } else {
      list.push_back(it->first);
    }
  }
  return it->second;
}

}  // namespace

StringId NameTable::string(std::string_view text) {
  std::string key(text.substr(0, trace_file::kMaxStringBytes));
  const std::lock_guard lock(mutex_);
  return number(strings_, std::move(key), new_strings_);
}

std::uint32_t NameTable::shape(std::span<const std::int64_t> sizes) {
  sizes = sizes.first(std::min(sizes.size(), trace_file::kMaxShapeDimensions));
  std::vector<std::int64_t> key(sizes.begin(), sizes.end());
  const std::lock_guard lock(mutex_);
  return number(shapes_, std::move(key), new_shapes_);
}

LaneId NameTable::lane(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  return number(lanes_, key, new_lanes_);
}

bool NameTable::take_new(trace_file::ChunkEncoder& chunk) {
  constexpr std::size_t kFull = trace_file::kChunkBytes - 1024 - 2 * trace_file::kMaxStringBytes;
  const std::lock_guard lock(mutex_);
  const auto take = [&](auto& list, auto add) {
    std::size_t taken = 0;
    while (taken < list.size() && chunk.bytes() < kFull) add(list[taken++]);
    list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(taken));
    return taken != 0;
  };
  bool any = take(new_lanes_, [&](std::uint64_t key) { chunk.add_lane(key); });
  any |= take(new_strings_, [&](const std::string* text) { chunk.add_string(*text); });
  any |= take(new_shapes_, [&](const std::vector<std::int64_t>* s) { chunk.add_shape(*s); });
  return any;
}

}  // namespace berth::trace
