#pragma once

#include "csrc/trace/trace.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace berth::trace_file {
class ChunkEncoder;
}

namespace berth::trace {

// The texts, shapes and lanes of a recording, numbered in order of appearance: equal ones get the
// same number. Thread-safe: one lock. Texts and shapes beyond what a chunk takes are cut first.
class NameTable {
 public:
  [[nodiscard]] StringId string(std::string_view text);
  [[nodiscard]] std::uint32_t shape(std::span<const std::int64_t> sizes);
  LaneId lane(std::uint64_t key);

  // Adds to a chunk what no call took before, as much as fits. False where there was nothing.
  bool take_new(trace_file::ChunkEncoder& chunk);

 private:
  std::mutex mutex_;
  // Nodes of maps stay where they are, so the lists of what is new point to them.
  std::unordered_map<std::string, StringId> strings_{{"", 0}};
  std::map<std::vector<std::int64_t>, std::uint32_t> shapes_{{{}, 0}};
  std::unordered_map<std::uint64_t, LaneId> lanes_;
  std::vector<const std::string*> new_strings_;
  std::vector<const std::vector<std::int64_t>*> new_shapes_;
  std::vector<std::uint64_t> new_lanes_;
};

}  // namespace berth::trace
