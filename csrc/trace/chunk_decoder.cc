#include "csrc/trace/chunk_decoder.h"

#include "csrc/trace/chunk_encoder.h"
#include "csrc/trace/generated/trace_generated.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <unordered_map>

namespace berth::trace_file {
namespace {

static_assert(static_cast<int>(RangeKind::MAX) == static_cast<int>(trace::RangeKind::kUser));
static_assert(static_cast<int>(Access::MAX) == static_cast<int>(trace::Access::kReadWrite));
static_assert(static_cast<int>(RoleKind::MAX) == static_cast<int>(trace::RoleKind::kInput));
static_assert(static_cast<int>(CopyDirection::MAX) ==
              static_cast<int>(trace::CopyDirection::kHostToHost));

// An element of a vector, by value: the verifier does not ask that elements are aligned.
template <class Element, class Stored>
Element element(const flatbuffers::Vector<Stored>& vector, std::size_t index) {
  static_assert(std::is_trivially_copyable_v<Element>);
  Element value;
  std::memcpy(&value, vector.Data() + index * sizeof value, sizeof value);
  return value;
}

// Turns the structs of a chunk into entries; keeps the first thing that is wrong.
class Reader {
 public:
  explicit Reader(Trace& trace) : trace_(trace) {}

  [[nodiscard]] std::string take_problem() { return std::move(problem_); }
  [[nodiscard]] bool ok() const noexcept { return problem_.empty(); }

  template <class Struct>
  void read(const flatbuffers::Vector<const Struct*>* structs) {
    if (structs == nullptr) return;
    for (flatbuffers::uoffset_t i = 0; i < structs->size(); ++i) {
      const Struct s = element<Struct>(*structs, i);
      tick_ = s.tick();
      trace::Event event = convert(s);
      if (!ok()) return;
      trace_.entries.push_back({tick_, s.time(), s.thread(), event});
    }
  }

 private:
  void fail(const std::string& what) {
    if (ok()) problem_ = fmt::format("tick {} {}", tick_, what);
  }
  trace::LaneId lane(std::uint32_t index) {
    if (index >= trace_.lanes.size())
      fail(fmt::format("names lane {} of {}", index, trace_.lanes.size()));
    return index;
  }
  trace::StringId string(std::uint32_t index) {
    if (index >= trace_.strings.size())
      fail(fmt::format("names text {} of {}", index, trace_.strings.size()));
    return index;
  }
  std::uint32_t shape(std::uint32_t index) {
    if (index >= trace_.shapes.size())
      fail(fmt::format("names shape {} of {}", index, trace_.shapes.size()));
    return index;
  }
  Bytes size(Bytes bytes) {
    if (bytes > kMaxBytes) fail(fmt::format("has {} bytes, the limit is {}", bytes, kMaxBytes));
    return bytes;
  }
  template <class To, class From>
  To enumerator(From value) {
    if (value > From::MAX)
      fail(fmt::format("has the unknown kind {}", static_cast<unsigned>(value)));
    return static_cast<To>(value);
  }

  trace::Event convert(const Request& s) {
    if (s.id() == 0) fail("requests block 0");
    return trace::Request{s.id(), size(s.bytes()), lane(s.lane()), s.tag()};
  }
  trace::Event convert(const Free& s) { return trace::Free{s.id()}; }
  trace::Event convert(const Use& s) { return trace::Use{s.id(), lane(s.lane())}; }
  trace::Event convert(const EventRecord& s) {
    return trace::EventRecord{s.event(), lane(s.lane())};
  }
  trace::Event convert(const EventWait& s) { return trace::EventWait{s.event(), lane(s.lane())}; }
  trace::Event convert(const Synchronize& s) {
    // With an event the lane says nothing, but must not lead anybody astray.
    return trace::Synchronize{s.event(), s.lane() == trace::kAllLanes ? s.lane() : lane(s.lane())};
  }
  trace::Event convert(const StepMark& s) { return trace::StepMark{lane(s.lane())}; }
  trace::Event convert(const RangeBegin& s) {
    return trace::RangeBegin{s.range(), string(s.name()), enumerator<trace::RangeKind>(s.kind())};
  }
  trace::Event convert(const RangeEnd& s) { return trace::RangeEnd{s.range()}; }
  trace::Event convert(const OperatorBegin& s) {
    return trace::OperatorBegin{.op = s.op(),
                                .name = string(s.name()),
                                .sequence = s.sequence(),
                                .forward_thread = s.forward_thread(),
                                .backward = s.backward(),
                                .random = s.random(),
                                .changes_state = s.changes_state()};
  }
  trace::Event convert(const OperatorEnd& s) { return trace::OperatorEnd{s.op()}; }
  trace::Event convert(const Operand& s) {
    return trace::Operand{.op = s.op(),
                          .block = s.block(),
                          .byte_offset = size(s.byte_offset()),
                          .bytes = size(s.bytes()),
                          .shape = shape(s.shape()),
                          .element_type = s.element_type(),
                          .access = enumerator<trace::Access>(s.access()),
                          .output = s.output(),
                          .position = s.position()};
  }
  trace::Event convert(const Role& s) {
    return trace::Role{s.id(), enumerator<trace::RoleKind>(s.role())};
  }
  trace::Event convert(const Copy& s) {
    return trace::Copy{enumerator<trace::CopyDirection>(s.direction()), size(s.bytes()),
                       s.duration(), lane(s.lane())};
  }
  trace::Event convert(const Alternative& s) {
    return trace::Alternative{.op = s.op(),
                              .key = s.key(),
                              .algorithm = s.algorithm(),
                              .workspace_bytes = size(s.workspace_bytes()),
                              .duration_ns = s.duration(),
                              .chosen = s.chosen()};
  }
  trace::Event convert(const Segment& s) {
    return trace::Segment{s.address(), size(s.bytes()), s.reserve()};
  }
  trace::Event convert(const DeviceTime& s) {
    return trace::DeviceTime{s.op(), lane(s.lane()), s.begin(), s.duration()};
  }

  Trace& trace_;
  trace::Tick tick_ = 0;
  std::string problem_;
};

std::string text(const flatbuffers::String* string) {
  return string == nullptr ? std::string() : string->str();
}

std::string read_start(const Start& start, Trace& trace) {
  trace.program = {.torch_version = text(start.torch_version()),
                   .device_name = text(start.device_name()),
                   .device_bytes = start.device_bytes(),
                   .world_size = start.world_size(),
                   .rank = start.rank(),
                   .tag = text(start.tag())};
  trace.alignment = start.alignment();
  if (!is_power_of_two(trace.alignment) || trace.alignment > Bytes{1} << 40)
    return fmt::format("alignment {} is no power of two up to 2^40", trace.alignment);
  return {};
}

std::string read_names(const Chunk& chunk, Trace& trace) {
  if (const auto* strings = chunk.strings()) {
    for (const flatbuffers::String* string : *strings) trace.strings.push_back(string->str());
  }
  std::size_t used = 0;
  const std::size_t given = chunk.shape_sizes() == nullptr ? 0 : chunk.shape_sizes()->size();
  if (const auto* ranks = chunk.shape_ranks()) {
    for (const std::size_t rank : *ranks) {
      if (rank > kMaxShapeDimensions || rank > given - used) return "a shape exceeds its sizes";
      std::vector<std::int64_t> shape(rank);
      for (std::int64_t& size : shape) size = element<std::int64_t>(*chunk.shape_sizes(), used++);
      trace.shapes.push_back(std::move(shape));
    }
  }
  if (used != given) return fmt::format("{} sizes belong to no shape", given - used);
  if (const auto* lanes = chunk.lanes()) {
    for (std::size_t i = 0; i < lanes->size(); ++i)
      trace.lanes.push_back({element<std::uint64_t>(*lanes, i)});
  }
  return {};
}

}  // namespace

DecodeResult decode_chunk(std::span<const std::byte> table, Trace& trace) {
  DecodeResult result;
  // Tables are read in place, so they must lie as they were written.
  std::vector<std::byte> aligned;
  if (reinterpret_cast<std::uintptr_t>(table.data()) % 8 != 0) {
    aligned.assign(table.begin(), table.end());
    table = aligned;
  }
  const auto* data = reinterpret_cast<const std::uint8_t*>(table.data());
  flatbuffers::Verifier verifier(data, table.size(), /*max_depth=*/64, /*max_tables=*/64);
  if (table.size() < 8 || !VerifyChunkBuffer(verifier)) {
    result.problem = "its table is malformed";
    return result;
  }
  const Chunk& chunk = *GetChunk(data);
  if (const Start* start = chunk.start()) {
    result.start = true;
    result.problem = read_start(*start, trace);
  }
  if (result.problem.empty()) result.problem = read_names(chunk, trace);
  if (!result.problem.empty()) return result;

  Reader reader(trace);
  const auto read = [&](const auto*... kinds) { (reader.read(kinds), ...); };
  read(chunk.requests(), chunk.frees(), chunk.uses(), chunk.event_records(), chunk.event_waits(),
       chunk.synchronizes(), chunk.step_marks(), chunk.range_begins(), chunk.range_ends(),
       chunk.operator_begins(), chunk.operator_ends(), chunk.operands(), chunk.roles(),
       chunk.copies(), chunk.alternatives(), chunk.segments(), chunk.device_times());
  result.problem = reader.take_problem();
  result.end = chunk.end();
  return result;
}

}  // namespace berth::trace_file

namespace berth::trace {

std::string sort_and_check(Trace& trace) {
  const auto earlier = [](const Entry& a, const Entry& b) { return a.tick < b.tick; };
  auto& entries = trace.entries;
  if (!std::is_sorted(entries.begin(), entries.end(), earlier))
    std::sort(entries.begin(), entries.end(), earlier);

  std::unordered_map<BlockId, bool> freed;        // of every id seen: whether it was freed
  std::unordered_map<std::uint64_t, bool> ended;  // the same of operators
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (i != 0 && entries[i - 1].tick == entry.tick)
      return fmt::format("two entries have tick {}", entry.tick);
    if (const auto* request = std::get_if<Request>(&entry.event)) {
      if (!freed.emplace(request->id, false).second)
        return fmt::format("block {} is requested at tick {} though it was there before",
                           request->id, entry.tick);
    } else if (const auto* free = std::get_if<Free>(&entry.event)) {
      const auto [it, unknown] = freed.emplace(free->id, true);
      if (!unknown && it->second)
        return fmt::format("block {} is freed again at tick {}", free->id, entry.tick);
      it->second = true;
    } else if (const auto* begin = std::get_if<OperatorBegin>(&entry.event)) {
      if (!ended.emplace(begin->op, false).second)
        return fmt::format("operator {} begins at tick {} though it was there before", begin->op,
                           entry.tick);
    } else if (const auto* end = std::get_if<OperatorEnd>(&entry.event)) {
      const auto [it, unknown] = ended.emplace(end->op, true);
      if (!unknown && it->second)
        return fmt::format("operator {} ends again at tick {}", end->op, entry.tick);
      it->second = true;
    }
  }
  return {};
}

}  // namespace berth::trace
