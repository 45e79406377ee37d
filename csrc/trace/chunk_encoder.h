#pragma once

#include "csrc/trace/generated/trace_generated.h"
#include "csrc/trace/trace.h"

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace berth::trace_file {

// Longer texts and shapes are cut when they are interned, so that one always fits a chunk.
inline constexpr std::size_t kMaxStringBytes = 4096;
inline constexpr std::size_t kMaxShapeDimensions = 64;

// Collects entries and what they refer to, and makes the FlatBuffers table of one chunk of them.
//
// Reusable: after the first chunks it takes no memory. Not thread-safe.
class ChunkEncoder {
 public:
  void set_start(const trace::Program& program, Bytes alignment);
  void add_string(std::string_view text);
  void add_shape(std::span<const std::int64_t> sizes);
  void add_lane(std::uint64_t key);
  void add(const trace::Entry& entry);

  // Nothing was added since the last finish().
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }
  // About what the table will take; entries are added one by one until this nears kChunkBytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  // The table, padded to a multiple of 8 bytes; valid until the next call of any method. Starts
  // over.
  [[nodiscard]] std::span<const std::byte> finish(bool end = false);

 private:
  template <class Struct, class... Arguments>
  void push(const Arguments&... arguments);

  using Entries =
      std::tuple<std::vector<Request>, std::vector<Free>, std::vector<Use>,
                 std::vector<EventRecord>, std::vector<EventWait>, std::vector<Synchronize>,
                 std::vector<StepMark>, std::vector<RangeBegin>, std::vector<RangeEnd>,
                 std::vector<OperatorBegin>, std::vector<OperatorEnd>, std::vector<Operand>,
                 std::vector<Role>, std::vector<Copy>, std::vector<Alternative>,
                 std::vector<Segment>, std::vector<DeviceTime>>;

  flatbuffers::FlatBufferBuilder builder_{4096};
  std::vector<std::byte> table_;
  flatbuffers::Offset<Start> start_ = 0;
  std::vector<flatbuffers::Offset<flatbuffers::String>> strings_;
  std::vector<std::uint8_t> shape_ranks_;
  std::vector<std::int64_t> shape_sizes_;
  std::vector<std::uint64_t> lanes_;
  Entries entries_;
  std::size_t bytes_ = 0;
};

// What an entry takes in a chunk at most.
inline constexpr std::size_t kMaxEntryBytes = sizeof(Operand);
static_assert(sizeof(OperatorBegin) <= kMaxEntryBytes && sizeof(Alternative) <= kMaxEntryBytes);

}  // namespace berth::trace_file
