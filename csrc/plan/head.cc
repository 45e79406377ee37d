#include "csrc/plan/head.h"

#include "csrc/core/checksum.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

namespace berth {
namespace {

std::uint64_t hash_text(std::string_view text) noexcept {
  return checksum(std::as_bytes(std::span(text)));
}

// Of all lanes but one.
std::uint64_t hash_others(const Plan& plan, std::uint32_t main) noexcept {
  std::uint64_t hash = hash_combine(0, plan.lane_keys.size());
  for (const std::uint64_t key : plan.lane_keys) hash = hash_combine(hash, key);
  for (const Sequence& sequence : plan.sequences) {
    if (sequence.lane == main) continue;
    hash = hash_combine(hash, sequence.lane);
    hash = hash_combine(hash, sequence.fork);
    hash = hash_combine(hash, sequence.slots.size());
    for (const Slot& slot : sequence.slots) hash = hash_combine(hash, slot.requested);
  }
  return hash;
}

std::uint32_t main_lane(const Plan& plan) {
  std::vector<std::size_t> slots(plan.lane_keys.size());
  for (const Sequence& sequence : plan.sequences) slots[sequence.lane] += sequence.slots.size();
  return static_cast<std::uint32_t>(std::max_element(slots.begin(), slots.end()) - slots.begin());
}

// Calls visit(slot) for each request of a path, in order.
template <class Visit>
void for_each_request(const Plan& plan, const Sequence& sequence, std::uint32_t until,
                      const Visit& visit) {
  if (sequence.parent >= 0)
    for_each_request(plan, plan.sequences[static_cast<std::size_t>(sequence.parent)],
                     std::min(sequence.fork, until), visit);
  for (const Slot& slot : sequence.slots)
    if (slot.birth < until) visit(slot);
}

// At most kMaxBytes.
Bytes sum(Bytes a, Bytes b) noexcept { return checked_add(a, b).value_or(kMaxBytes); }

// Planned by other lanes than one.
Bytes planned_by_others(const Plan& plan, std::uint32_t main) noexcept {
  Bytes bytes = 0;
  for (const Sequence& sequence : plan.sequences) {
    if (sequence.lane == main) continue;
    for (const Slot& slot : sequence.slots)
      if (slot.planned()) bytes = sum(bytes, slot.size);
  }
  return bytes;
}

struct Request {
  Bytes size = 0;
  Bytes planned = 0;  // bytes of the arena
  bool bucket = false;
};

// The step that follows the i-th mark of a path of these requests.
PlanHead::Kind kind_of(const Sequence& sequence, std::size_t i, const std::vector<Request>& path,
                       std::uint64_t others) {
  const std::vector<std::uint32_t>& marks = sequence.marks;
  const std::size_t begin = marks.empty() ? 0 : marks[i];
  const std::size_t end =
      i + 1 < marks.size() ? marks[i + 1] : (marks.empty() ? 0 : marks[0]) + path.size();
  PlanHead::Kind kind{
      .requests = static_cast<std::uint32_t>(end - begin), .hash = others, .first = {}};
  for (std::size_t tick = begin; tick < end; ++tick) {
    const Request request = path[tick % path.size()];
    kind.hash = hash_combine(kind.hash, request.size);
    kind.planned_bytes = sum(kind.planned_bytes, request.planned);
    if (kind.first.size() < PlanHead::kMostFirst)
      kind.first.push_back(request.bucket ? PlanHead::kAnySize : request.size);
  }
  return kind;
}

// Kinds are told apart by their hash and the number of their requests.
bool same(const PlanHead::Kind& a, const PlanHead::Kind& b) noexcept {
  return a.hash == b.hash && a.requests == b.requests;
}

}  // namespace

PlanHead head_of(const Plan& plan) {
  PlanHead head{.program = plan.program,
                .alignment = plan.alignment,
                .arena_bytes = plan.arena_bytes,
                .fingerprint = fingerprint(plan),
                .kinds = {}};
  if (plan.lane_keys.empty()) return head;
  const std::uint32_t main = main_lane(plan);
  const std::uint64_t others = hash_others(plan, main);
  const Bytes planned = planned_by_others(plan, main);
  std::map<std::uint64_t, Bytes> known;  // planned bytes of each kind
  std::vector<Request> path;
  for (const Sequence& sequence : plan.sequences) {
    if (sequence.lane != main || sequence.period == 0) continue;
    path.clear();
    for_each_request(plan, sequence, sequence.period, [&](const Slot& slot) {
      path.push_back({slot.requested, slot.planned() ? slot.size : 0, slot.bucket()});
    });
    head.cycle |= sequence.marks.size() > 1;
    for (std::size_t i = 0; i < std::max<std::size_t>(sequence.marks.size(), 1); ++i) {
      PlanHead::Kind kind = kind_of(sequence, i, path, others);
      kind.planned_bytes = sum(kind.planned_bytes, planned);
      const auto [it, is_new] = known.try_emplace(kind.hash, kind.planned_bytes);
      it->second = std::min(it->second, kind.planned_bytes);
      // mutant: head-many-told
      if (!is_new || head.kind_count++ >= PlanHead::kMostKinds) continue;
      head.kinds.push_back(std::move(kind));
      head.kinds.back().lane_key = plan.lane_keys[main];
    }
  }
  for (PlanHead::Kind& kind : head.kinds) kind.planned_bytes = known[kind.hash];
  for (const auto& [hash, bytes] : known) head.planned_bytes = sum(head.planned_bytes, bytes);
  return head;
}

bool PlanHead::covers(const PlanHead& other) const noexcept {
  if (fingerprint == other.fingerprint) return true;
  // mutant: head-many-kinds
  if (other.kind_count > kMostKinds) return false;
  if (cycle && !other.cycle && other.kind_count > 1) return false;
  return std::all_of(other.kinds.begin(), other.kinds.end(), [&](const Kind& kind) {
    return std::any_of(kinds.begin(), kinds.end(),
                       [&](const Kind& own) { return same(own, kind); });
  });
}

bool PlanHead::plans_as_much_as(const PlanHead& other) const noexcept {
  if (fingerprint == other.fingerprint) return planned_bytes >= other.planned_bytes;
  return std::all_of(other.kinds.begin(), other.kinds.end(), [&](const Kind& kind) {
    return std::any_of(kinds.begin(), kinds.end(), [&](const Kind& own) {
      return same(own, kind) && own.planned_bytes >= kind.planned_bytes;
    });
  });
}

bool PlanHead::agrees_with(const PlanHead& actual) const noexcept {
  // mutant: folder-claims-all
  if (planned_bytes > actual.planned_bytes) return false;
  return std::equal(kinds.begin(), kinds.end(), actual.kinds.begin(), actual.kinds.end(),
                    [](const Kind& told, const Kind& is) {
                      // mutant: folder-claims
                      return told.lane_key == is.lane_key && same(told, is) &&
                             told.first == is.first && told.planned_bytes <= is.planned_bytes;
                    });
}

std::uint64_t program_key(const trace::Program& program, Bytes alignment) noexcept {
  std::uint64_t key = hash_combine(0, alignment);
  key = hash_combine(key, hash_text(program.torch_version));
  key = hash_combine(key, hash_text(program.device_name));
  return hash_combine(key, hash_text(program.tag));
}

}  // namespace berth
