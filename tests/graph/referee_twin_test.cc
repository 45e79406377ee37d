// The referee of schedules beside a twin that knows nothing but bytes.
#include "tests/catch.h"
#include "tests/support/random_graph.h"
#include "tests/support/random_schedule.h"

#include <berth/referee.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace berth;
using namespace berth::graph;
using namespace berth::test;
using Kind = ScheduleStep::Kind;

namespace {

// Whether a schedule is legal, by bytes: each byte of each buffer, of the arena and of the host
// says of which value it is part. Knows no times, no budget and no order among operators. `peak`
// without copies.
class Twin {
 public:
  Twin(const Graph& graph, const Schedule& schedule) : graph_(graph), schedule_(schedule) {}

  bool accepts() {
    arena_.resize(schedule_.arena_bytes, kNobody);
    host_arena_.resize(schedule_.host_bytes, kNobody);
    memory_.resize(schedule_.buffers.size());
    host_.resize(schedule_.buffers.size());
    births_.resize(schedule_.buffers.size(), 0);
    std::vector<bool> begins_on_host(schedule_.buffers.size(), false);
    for (BufferId b = 0; b < schedule_.buffers.size(); ++b) {
      const StorageId s = schedule_.buffers[b].storage;
      if (graph_.storages[s].kind == StorageClass::kStep) continue;
      if (!bear(b)) return false;
      fill(b, {s, 0});
      if (!is_resident(b)) continue;
      if (!schedule_.buffers[b].offsets.empty()) return false;
      const auto copied = std::find_if(
          schedule_.steps.begin(), schedule_.steps.end(), [&](const ScheduleStep& step) {
            return step.buffer == b && (step.kind == Kind::kOffload || step.kind == Kind::kReload);
          });
      begins_on_host[b] = copied != schedule_.steps.end() && copied->kind == Kind::kReload;
      if (begins_on_host[b]) host_[b] = std::exchange(memory_[b], std::nullopt);
    }
    for (const ScheduleStep& step : schedule_.steps) {
      const bool legal = step.kind == Kind::kRun ? run(step) : move(step);
      if (!legal) return false;
    }
    std::set<OperatorId> all(ran_.begin(), ran_.end());
    if (all.size() != graph_.operators.size()) return false;
    for (const OperatorId op : all) {
      const Traits& traits = graph_.operators[op].traits;
      const bool once = (traits.random && !traits.draws_again) || traits.changes_state ||
                        traits.host_sync || traits.collective;
      if (once && std::count(ran_.begin(), ran_.end(), op) != 1) return false;
    }
    // Pairs that keep their order: first runs by place in the list.
    const auto first = [&](OperatorId op) {
      return std::find(ran_.begin(), ran_.end(), op) - ran_.begin();
    };
    for (const auto& [earlier, later] : graph_.control)
      if (first(earlier) > first(later)) return false;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t k = i + 1; k < all.size(); ++k) {
        const OperatorId a = graph_.order.empty() ? static_cast<OperatorId>(i) : graph_.order[i];
        const OperatorId b = graph_.order.empty() ? static_cast<OperatorId>(k) : graph_.order[k];
        const Traits &one = graph_.operators[a].traits, &two = graph_.operators[b].traits;
        const bool kept = (one.random && two.random) ||
                          ((one.collective || one.host_sync) && (two.collective || two.host_sync));
        if (kept && first(a) > first(b)) return false;
      }
    for (BufferId b = 0; b < schedule_.buffers.size(); ++b) {
      const StorageId s = schedule_.buffers[b].storage;
      if (graph_.storages[s].kind != StorageClass::kResident) continue;
      std::uint32_t last = 0;
      for (const Operator& op : graph_.operators)
        for (const ValueId written : op.alternatives[0].writes)
          if (written.storage == s) last = std::max(last, written.version);
      if (begins_on_host[b] && (memory_[b] || !host_[b])) return false;
      if (begins_on_host[b]) memory_[b] = host_[b];
      if (!holds(b, {s, last}, graph_.storages[s].bytes)) return false;
    }
    return true;
  }

  Bytes peak = 0;

 private:
  static constexpr BufferId kNobody = ~BufferId{0};
  using Content = std::vector<ValueId>;  // by byte

  [[nodiscard]] Bytes bytes_of(BufferId b) const {
    return graph_.storages[schedule_.buffers[b].storage].bytes;
  }
  [[nodiscard]] bool is_resident(BufferId b) const {
    return graph_.storages[schedule_.buffers[b].storage].kind == StorageClass::kResident;
  }
  void note(Bytes more) {
    for (const auto& content : memory_) more += content ? content->size() : 0;
    peak = std::max(peak, more);
  }
  void fill(BufferId b, ValueId value) { memory_[b]->assign(bytes_of(b), value); }
  [[nodiscard]] bool holds(BufferId b, ValueId value, Bytes count) const {
    return memory_[b] && memory_[b]->size() >= count &&
           std::all_of(memory_[b]->begin(),
                       memory_[b]->begin() + static_cast<std::ptrdiff_t>(count),
                       [&](ValueId one) { return one == value; });
  }
  using Arena = std::vector<BufferId>;  // whose each byte is
  [[nodiscard]] static bool is_free(const Arena& arena, Bytes offset, Bytes bytes) {
    if (offset == Buffer::kNoOffset) return true;
    for (Bytes k = 0; k < bytes; ++k)
      if (offset + k >= arena.size() || arena[offset + k] != kNobody) return false;
    return offset <= arena.size();
  }
  [[nodiscard]] static bool take(Arena& arena, Bytes offset, Bytes bytes, BufferId b) {
    if (!is_free(arena, offset, bytes)) return false;
    for (Bytes k = 0; k < bytes && offset != Buffer::kNoOffset; ++k) arena[offset + k] = b;
    return true;
  }
  bool bear(BufferId b) {
    const auto& offsets = schedule_.buffers[b].offsets;
    if (!offsets.empty()) {
      if (births_[b] >= offsets.size() || !take(arena_, offsets[births_[b]], bytes_of(b), b))
        return false;
    }
    ++births_[b];
    memory_[b].emplace();
    return true;
  }
  bool run(const ScheduleStep& step) {
    if (step.op >= graph_.operators.size()) return false;
    ran_.push_back(step.op);
    const Operator& op = graph_.operators[step.op];
    if (step.alternative >= op.alternatives.size()) return false;
    const Alternative& taken = op.alternatives[step.alternative];
    if (taken.reads.size() != step.reads.size() || taken.writes.size() != step.writes.size())
      return false;
    for (std::size_t k = 0; k < taken.reads.size(); ++k) {
      if (step.reads[k] >= memory_.size()) return false;
      if (!holds(step.reads[k], taken.reads[k].value,
                 graph_.storages[taken.reads[k].value.storage].bytes))
        return false;
    }
    const std::set<BufferId> targets(step.writes.begin(), step.writes.end());
    if (targets.size() != step.writes.size()) return false;
    const auto before = memory_;
    for (std::size_t k = 0; k < taken.writes.size(); ++k) {
      const BufferId b = step.writes[k];
      const ValueId value = taken.writes[k];
      if (b >= memory_.size()) return false;
      for (std::size_t r = 0; r < taken.reads.size(); ++r)
        if (taken.reads[r].value.storage == value.storage && step.reads[r] != b) return false;
      if (before[b]) {
        const ValueId held = before[b]->front();
        const bool next = held == ValueId{value.storage, value.version - 1};
        bool paired = false;
        for (const auto& pair : taken.in_place)
          for (std::size_t r = 0; r < taken.reads.size(); ++r)
            paired |= pair == std::pair(held, value) && step.reads[r] == b &&
                      taken.reads[r].value == held &&
                      graph_.storages[value.storage].bytes <= bytes_of(b);
        if (!next && !paired) return false;
      } else if (births_[b] != 0 || schedule_.buffers[b].storage != value.storage || !bear(b)) {
        return false;
      }
      fill(b, value);
    }
    if (!is_free(arena_, step.workspace_offset, taken.workspace)) return false;
    note(taken.workspace);
    return true;
  }
  bool move(const ScheduleStep& step) {
    const BufferId b = step.buffer;
    if (b >= memory_.size()) return false;
    if (is_resident(b) && step.kind == Kind::kDrop) return false;
    if (is_resident(b) && step.kind == Kind::kOffload && step.host_offset != Buffer::kNoOffset)
      return false;
    if (step.kind == Kind::kReload) {
      if (!host_[b] || !bear(b)) return false;
      memory_[b] = std::exchange(host_[b], std::nullopt);
      std::replace(host_arena_.begin(), host_arena_.end(), b, kNobody);
    } else {
      if (!memory_[b]) return false;
      if (step.kind == Kind::kOffload) {
        if (!take(host_arena_, step.host_offset, bytes_of(b), b)) return false;
        host_[b] = memory_[b];
      }
      memory_[b].reset();
      std::replace(arena_.begin(), arena_.end(), b, kNobody);
    }
    note(0);
    return true;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  std::vector<OperatorId> ran_;
  Arena arena_, host_arena_;
  std::vector<std::optional<Content>> memory_, host_;
  std::vector<std::size_t> births_;
};

// One thing done to a schedule, at random.
void damage(std::mt19937& random, const Graph& graph, Schedule& schedule) {
  auto& steps = schedule.steps;
  const std::size_t at = random() % steps.size();
  const auto buffer = [&] { return static_cast<BufferId>(random() % schedule.buffers.size()); };
  ScheduleStep& step = steps[at];
  switch (random() % 9) {
    case 0:
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(random() % (steps.size() + 1)),
                   ScheduleStep(step));
      break;
    case 2:
      std::swap(steps[at], steps[random() % steps.size()]);
      break;
    case 3:
      if (!step.reads.empty()) step.reads[random() % step.reads.size()] = buffer();
      break;
    case 4:
      if (!step.writes.empty()) step.writes[random() % step.writes.size()] = buffer();
      break;
    case 5:
      if (step.kind == Kind::kRun) {
        step.op = static_cast<OperatorId>(random() % graph.operators.size());
      } else {
        step.buffer = buffer();
      }
      break;
    case 6: {
      Buffer& moved = schedule.buffers[buffer()];
      if (!moved.offsets.empty())
        moved.offsets[random() % moved.offsets.size()] = random() % (schedule.arena_bytes + 2);
      break;
    }
    case 7:
      step.host_offset = random() % (schedule.host_bytes + 2);
      break;
    default:
      step.kind = static_cast<Kind>(random() % 4);
  }
}

}  // namespace

TEST_CASE("The referee agrees with a twin that looks at every byte", "[graph][referee]") {
  std::mt19937 random(11);
  int made = 0, legal = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    const Graph graph = random_graph(random, 1 + random() % 8);
    REQUIRE(violation(graph) == "");
    const bool copies = random() % 2 == 0;
    const auto schedule = RandomSchedule(random, graph, copies).make(random() % 2 == 0);
    if (!schedule) continue;
    ++made;
    const Verdict verdict = replay(graph, *schedule);
    REQUIRE(verdict.violation == "");
    Twin twin(graph, *schedule);
    REQUIRE(twin.accepts());
    if (!copies) REQUIRE(verdict.peak == std::max(twin.peak, verdict.resident));
    // Copies that take no time leave at once.
    const Verdict fast = replay(graph, *schedule, {kMaxBytes, kMaxBytes});
    REQUIRE(fast.peak <= verdict.peak);
    REQUIRE(verdict.ns >= verdict.compute_ns);
    for (int k = 0; k < 20; ++k) {
      Schedule damaged = *schedule;
      for (unsigned changes = 1 + random() % 2; changes > 0; --changes)
        if (!damaged.steps.empty()) damage(random, graph, damaged);
      const std::string found = replay(graph, damaged).violation;
      CAPTURE(k, found);
      REQUIRE(found.empty() == Twin(graph, damaged).accepts());
      ++(found.empty() ? legal : refused);
    }
  }
  CHECK(made > 1000);
  CHECK(legal > 2000);
  CHECK(refused > 10'000);
}
