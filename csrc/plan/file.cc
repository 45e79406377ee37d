#include "csrc/plan/file.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/plan/generated/plan_generated.h"
#include "csrc/plan/section_file.h"
#include "csrc/plan/section_table.h"
#include "csrc/plan/structure.h"
#include "csrc/plan/verify.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace berth {
namespace {

namespace fb = plan_file;

std::string text(const flatbuffers::String* string) { return string ? string->str() : ""; }

constexpr std::size_t kMaxTables = Plan::kMaxSequences + 1;

// How many things a file may make us store: a few bytes of it can name the same vector again and
// again.
class Budget {
 public:
  Budget(const std::string& name, const char* what, std::size_t limit)
      : name_(name), what_(what), limit_(limit) {}
  void take(std::size_t count) {
    BERTH_CHECK(count <= limit_ - used_, kInput,
                "'{}' is malformed: {} {} or more, the limit is {}", name_, used_ + count, what_,
                limit_);
    used_ += count;
  }

 private:
  const std::string& name_;
  const char* what_;
  std::size_t limit_;
  std::size_t used_ = 0;
};

trace::Program read_program(const fb::Summary& from) {
  return {.torch_version = text(from.torch_version()),
          .device_name = text(from.device_name()),
          .device_bytes = from.device_bytes(),
          .world_size = from.world_size(),
          .rank = from.rank(),
          .tag = text(from.tag())};
}

void read_summary(const fb::Summary& from, Plan& plan) {
  plan.program = read_program(from);
  plan.alignment = from.alignment();
  plan.arena_bytes = from.arena_bytes();
  plan.lower_bound = from.lower_bound();
  plan.engine = text(from.engine());
  plan.seed = from.seed();
  plan.plan_seconds = from.plan_seconds();
}

Sequence read_sequence(const fb::Sequence& from, Bytes alignment, const std::string& name,
                       Budget& slots, Budget& marks) {
  Sequence sequence;
  sequence.lane = from.lane();
  sequence.parent = from.parent();
  sequence.fork = from.fork();
  if (from.marks()) {
    marks.take(from.marks()->size());
    sequence.marks.assign(from.marks()->begin(), from.marks()->end());
  }
  if (from.slots()) {
    slots.take(from.slots()->size());
    check_place(*from.slots(), name);
    sequence.slots.reserve(from.slots()->size());
    std::uint32_t birth = sequence.fork;
    for (const fb::Slot* slot : *from.slots()) {
      sequence.slots.push_back({.offset = slot->offset(),
                                .requested = slot->requested(),
                                .size = align_up(slot->requested(), alignment),
                                .birth = birth++,
                                .length = slot->length(),
                                .origin = slot->origin()});
    }
    if (from.least()) {
      BERTH_CHECK(from.least()->size() == sequence.slots.size(), kInput,
                  "'{}' has {} least sizes for {} slots of a sequence", name, from.least()->size(),
                  sequence.slots.size());
      for (std::uint32_t k = 0; k < sequence.slots.size(); ++k)
        sequence.slots[k].least = from.least()->Get(k);
    }
  }
  sequence.period = sequence.fork + static_cast<std::uint32_t>(sequence.slots.size());
  return sequence;
}

void read_layout(const fb::Layout& from, const std::string& name, Plan& plan) {
  Budget lanes(name, "lanes", Plan::kMaxLanes), sequences(name, "sequences", Plan::kMaxSequences),
      edges(name, "edges", Plan::kMaxEdges), slots(name, "slots", Plan::kMaxSlots),
      marks(name, "marks", Plan::kMaxMarks),
      strings(name, "bytes of strings", Plan::kMaxStringBytes);
  if (from.lanes()) {
    lanes.take(from.lanes()->size());
    check_place(*from.lanes(), name);
    plan.lane_keys.assign(from.lanes()->begin(), from.lanes()->end());
  }
  if (from.sequences()) {
    sequences.take(from.sequences()->size());
    plan.sequences.reserve(from.sequences()->size());
    for (const fb::Sequence* sequence : *from.sequences()) {
      plan.sequences.push_back(read_sequence(*sequence, plan.alignment, name, slots, marks));
    }
  }
  if (from.edges()) {
    edges.take(from.edges()->size());
    plan.edges.reserve(from.edges()->size());
    for (const fb::Edge* edge : *from.edges()) {
      plan.edges.push_back(
          {edge->from_lane(), edge->from_tick(), edge->to_lane(), edge->to_tick(), edge->delta()});
    }
  }
  plan.strings.clear();
  if (from.strings()) {
    for (const flatbuffers::String* string : *from.strings()) {
      strings.take(string->size() + 1);
      plan.strings.push_back(string->str());
    }
  }
}

std::optional<PlanHead> read_head(const fb::Summary& from, const std::string& name) {
  if (from.heads() == nullptr) return std::nullopt;
  PlanHead head{.program = read_program(from),
                .alignment = from.alignment(),
                .arena_bytes = from.arena_bytes(),
                .planned_bytes = from.planned_bytes(),
                .fingerprint = from.fingerprint(),
                .kinds = {},
                .kind_count = from.kind_count(),
                .cycle = from.cycle()};
  Budget kinds(name, "kinds of steps in its head", PlanHead::kMostKinds);
  Budget requests(name, "requests in its head", PlanHead::kMostKinds * PlanHead::kMostFirst);
  kinds.take(from.heads()->size());
  for (const fb::KindHead* kind : *from.heads()) {
    PlanHead::Kind& to = head.kinds.emplace_back();
    to.lane_key = kind->lane();
    to.requests = kind->requests();
    to.hash = kind->hash();
    to.planned_bytes = kind->planned_bytes();
    if (kind->first() == nullptr) continue;
    requests.take(kind->first()->size());
    check_place(*kind->first(), name);
    to.first.assign(kind->first()->begin(), kind->first()->end());
  }
  return head;
}

flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::KindHead>>> write_head(
    flatbuffers::FlatBufferBuilder& to, const PlanHead& head) {
  std::vector<flatbuffers::Offset<fb::KindHead>> kinds;
  for (const PlanHead::Kind& kind : head.kinds) {
    const auto first = to.CreateVector(kind.first);
    kinds.push_back(
        fb::CreateKindHead(to, kind.lane_key, kind.requests, kind.hash, first, kind.planned_bytes));
  }
  return to.CreateVector(kinds);
}

void write_summary(flatbuffers::FlatBufferBuilder& to, const Plan& plan, const PlanHead* head) {
  const auto torch_version = to.CreateString(plan.program.torch_version);
  const auto device_name = to.CreateString(plan.program.device_name);
  const auto tag = to.CreateString(plan.program.tag);
  const auto engine = to.CreateString(plan.engine);
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::KindHead>>> heads;
  if (head != nullptr) heads = write_head(to, *head);
  to.Finish(fb::CreateSummary(
      to, torch_version, device_name, plan.program.device_bytes, plan.program.world_size,
      plan.program.rank, tag, plan.alignment, plan.arena_bytes, plan.lower_bound, engine, plan.seed,
      plan.plan_seconds, fingerprint(plan), heads, head != nullptr ? head->kind_count : 0,
      head != nullptr && head->cycle, head != nullptr ? head->planned_bytes : 0));
}

void write_layout(flatbuffers::FlatBufferBuilder& to, const Plan& plan) {
  std::vector<flatbuffers::Offset<fb::Sequence>> sequences;
  for (const Sequence& sequence : plan.sequences) {
    fb::Slot* slot = nullptr;
    const auto slots = to.CreateUninitializedVectorOfStructs(sequence.slots.size(), &slot);
    for (const Slot& from : sequence.slots) {
      *slot++ = fb::Slot(from.offset, from.requested, from.length, from.origin);
    }
    const auto marks = to.CreateVector(sequence.marks);
    flatbuffers::Offset<flatbuffers::Vector<std::uint64_t>> least;
    if (std::any_of(sequence.slots.begin(), sequence.slots.end(),
                    [](const Slot& one) { return one.bucket(); })) {
      std::uint64_t* bytes = nullptr;
      least = to.CreateUninitializedVector(sequence.slots.size(), &bytes);
      for (const Slot& from : sequence.slots) *bytes++ = from.least;
    }
    sequences.push_back(
        fb::CreateSequence(to, sequence.lane, sequence.parent, sequence.fork, marks, slots, least));
  }
  fb::Edge* edge = nullptr;
  const auto edges = to.CreateUninitializedVectorOfStructs(plan.edges.size(), &edge);
  for (const PlanEdge& from : plan.edges) {
    *edge++ = fb::Edge(from.from_lane, from.from_tick, from.to_lane, from.to_tick, from.delta);
  }
  const auto strings = to.CreateVectorOfStrings(plan.strings);
  const auto lanes = to.CreateVector(plan.lane_keys);
  const auto all_sequences = to.CreateVector(sequences);
  to.Finish(fb::CreateLayout(to, lanes, all_sequences, edges, strings));
}

}  // namespace

Plan read_plan(const std::string& path) {
  return parse_plan(read_file(path, kMaxPlanFileBytes), path);
}

std::optional<Plan> read_plan_if_there(const std::string& path) {
  if (!is_there(path)) return std::nullopt;
  return read_plan(path);
}

Plan parse_plan(std::span<const std::byte> data, const std::string& name, PlanCheck check) {
  BERTH_CHECK(data.size() <= kMaxPlanFileBytes, kInput, "'{}' has {}, the limit is {}", name,
              format_bytes(data.size()), format_bytes(kMaxPlanFileBytes));
  std::vector<std::byte> copy;
  data = aligned(data, copy);
  constexpr SectionType kKnown[] = {SectionType::kSummary, SectionType::kLayout};
  const std::vector<Section> sections = read_sections(data, kKnown, name);
  const auto& summary = root_table<fb::Summary>(sections, SectionType::kSummary, kMaxTables, name);
  const auto& layout = root_table<fb::Layout>(sections, SectionType::kLayout, kMaxTables, name);
  Plan plan;
  read_summary(summary, plan);
  read_layout(layout, name, plan);
  if (check == PlanCheck::kAll) {
    const std::optional<std::string> violation = verify(plan);
    BERTH_CHECK(!violation, kInput, "'{}' holds no legal plan: {}", name, *violation);
  }
  BERTH_CHECK(summary.fingerprint() == fingerprint(plan), kInput,
              "'{}' is malformed: fingerprint {:016x}, its requests have {:016x}", name,
              summary.fingerprint(), fingerprint(plan));
  return plan;
}

void write_plan(const std::string& path, const Plan& plan) {
  const std::optional<std::string> violation = verify(plan);
  BERTH_CHECK(!violation, kUsage, "'{}' is not written, the plan is not legal: {}", path,
              *violation);
  write_file_atomically(path, serialize_plan(plan));
}

std::optional<PlanHead> read_plan_head(const std::string& path) {
  const std::vector<std::byte> head = read_file_head(path, kPlanHeadBytes);
  constexpr SectionType kKnown[] = {SectionType::kSummary};
  const std::vector<Section> sections = read_first_sections(head, kKnown, path);
  if (sections.empty()) return std::nullopt;  // texts that are longer than that
  return read_head(root_table<fb::Summary>(sections, SectionType::kSummary, kMaxTables, path),
                   path);
}

std::vector<std::byte> serialize_plan(const Plan& plan, const PlanHead* head) {
  const std::optional<std::string> violation = structure_violation(plan);
  BERTH_CHECK(!violation, kUsage, "a malformed plan: {}", *violation);
  flatbuffers::FlatBufferBuilder summary, layout;
  write_summary(summary, plan, head);
  write_layout(layout, plan);
  return write_sections({{SectionType::kSummary, true, table_content(summary)},
                         {SectionType::kLayout, true, table_content(layout)}});
}

}  // namespace berth
