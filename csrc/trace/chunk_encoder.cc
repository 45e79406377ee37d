#include "csrc/trace/chunk_encoder.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>

namespace berth::trace_file {
namespace {

// Offset, length and alignment of a text, a vector or a table in a chunk.
constexpr std::size_t kOverhead = 24;

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace

void ChunkEncoder::set_start(const trace::Program& program, Bytes alignment) {
  const auto clip = [](const std::string& text) {
    return std::string_view(text).substr(0, kMaxStringBytes);
  };
  const auto torch_version = builder_.CreateString(clip(program.torch_version));
  const auto device_name = builder_.CreateString(clip(program.device_name));
  const auto tag = builder_.CreateString(clip(program.tag));
  start_ = CreateStart(builder_, torch_version, device_name, program.device_bytes,
                       program.world_size, program.rank, tag, alignment);
  bytes_ += builder_.GetSize() + kOverhead;
}

void ChunkEncoder::add_string(std::string_view text) {
  strings_.push_back(builder_.CreateString(text.substr(0, kMaxStringBytes)));
  bytes_ += text.size() + kOverhead;
}

void ChunkEncoder::add_shape(std::span<const std::int64_t> sizes) {
  sizes = sizes.first(std::min(sizes.size(), kMaxShapeDimensions));
  shape_ranks_.push_back(static_cast<std::uint8_t>(sizes.size()));
  shape_sizes_.insert(shape_sizes_.end(), sizes.begin(), sizes.end());
  bytes_ += sizes.size_bytes() + 1;
}

void ChunkEncoder::add_lane(std::uint64_t key) {
  lanes_.push_back(key);
  bytes_ += sizeof key;
}

template <class Struct, class... Arguments>
void ChunkEncoder::push(const Arguments&... arguments) {
  std::get<std::vector<Struct>>(entries_).emplace_back(arguments...);
  bytes_ += sizeof(Struct);
}

void ChunkEncoder::add(const trace::Entry& e) {
  const auto tick = e.tick;
  const auto time = e.time_ns;
  const auto thread = e.thread;
  // Enumerators have the same numbers here and there; the decoder has the assertions.
  std::visit(
      Overloaded{
          [&](const trace::Request& x) {
            push<Request>(tick, time, x.id, x.bytes, thread, x.lane, x.tag);
          },
          [&](const trace::Free& x) { push<Free>(tick, time, x.id, thread); },
          [&](const trace::Use& x) { push<Use>(tick, time, x.id, thread, x.lane); },
          [&](const trace::EventRecord& x) {
            push<EventRecord>(tick, time, x.event, thread, x.lane);
          },
          [&](const trace::EventWait& x) { push<EventWait>(tick, time, x.event, thread, x.lane); },
          [&](const trace::Synchronize& x) {
            push<Synchronize>(tick, time, x.event, thread, x.lane);
          },
          [&](const trace::StepMark& x) { push<StepMark>(tick, time, thread, x.lane); },
          [&](const trace::RangeBegin& x) {
            push<RangeBegin>(tick, time, x.range, thread, x.name, static_cast<RangeKind>(x.kind));
          },
          [&](const trace::RangeEnd& x) { push<RangeEnd>(tick, time, x.range, thread); },
          [&](const trace::OperatorBegin& x) {
            push<OperatorBegin>(tick, time, x.op, x.sequence, thread, x.forward_thread, x.name,
                                x.backward, x.random, x.changes_state);
          },
          [&](const trace::OperatorEnd& x) { push<OperatorEnd>(tick, time, x.op, thread); },
          [&](const trace::Operand& x) {
            push<Operand>(tick, time, x.op, x.block, x.byte_offset, x.bytes, thread, x.shape,
                          x.position, x.element_type, static_cast<Access>(x.access), x.output);
          },
          [&](const trace::Role& x) {
            push<Role>(tick, time, x.id, thread, static_cast<RoleKind>(x.role));
          },
          [&](const trace::Copy& x) {
            push<Copy>(tick, time, x.bytes, x.duration_ns, thread, x.lane,
                       static_cast<CopyDirection>(x.direction));
          },
          [&](const trace::Alternative& x) {
            push<Alternative>(tick, time, x.op, x.key, x.workspace_bytes, x.duration_ns, thread,
                              x.algorithm, x.chosen);
          },
          [&](const trace::Segment& x) {
            push<Segment>(tick, time, x.address, x.bytes, thread, x.reserve);
          },
          [&](const trace::DeviceTime& x) {
            push<DeviceTime>(tick, time, x.op, x.begin_ns, x.duration_ns, thread, x.lane);
          },
      },
      e.event);
}

std::span<const std::byte> ChunkEncoder::finish(bool end) {
  const auto structs = [&](const auto& entries) {
    using Struct = typename std::remove_cvref_t<decltype(entries)>::value_type;
    // An absent vector is an empty one, and takes no bytes.
    return entries.empty() ? flatbuffers::Offset<flatbuffers::Vector<const Struct*>>(0)
                           : builder_.CreateVectorOfStructs(entries);
  };
  const auto numbers = [&](const auto& vector) {
    using Number = typename std::remove_cvref_t<decltype(vector)>::value_type;
    return vector.empty() ? flatbuffers::Offset<flatbuffers::Vector<Number>>(0)
                          : builder_.CreateVector(vector);
  };
  // Vectors come before the table that holds them, in whatever order.
  const auto vectors =
      std::apply([&](const auto&... kind) { return std::tuple{structs(kind)...}; }, entries_);
  const auto strings = numbers(strings_);
  const auto shape_ranks = numbers(shape_ranks_);
  const auto shape_sizes = numbers(shape_sizes_);
  const auto lanes = numbers(lanes_);
  const auto chunk = std::apply(
      [&](const auto&... kinds) {
        return CreateChunk(builder_, start_, strings, shape_ranks, shape_sizes, lanes, kinds...,
                           end);
      },
      vectors);
  builder_.Finish(chunk);

  const std::size_t size = builder_.GetSize();
  table_.resize((size + 7) / 8 * 8);
  std::memcpy(table_.data(), builder_.GetBufferPointer(), size);
  std::fill(table_.begin() + static_cast<std::ptrdiff_t>(size), table_.end(), std::byte{0});

  builder_.Clear();
  start_ = 0;
  strings_.clear();
  shape_ranks_.clear();
  shape_sizes_.clear();
  lanes_.clear();
  std::apply([](auto&... kind) { (kind.clear(), ...); }, entries_);
  bytes_ = 0;
  return table_;
}

}  // namespace berth::trace_file
