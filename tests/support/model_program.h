#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/host_device.h"
#include "csrc/plan/plan.h"
#include "csrc/runtime/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// Programs whose every operation is looked at: live blocks share no byte, and the allocator is
// valid. A program that fails prints itself as C++ that pastes back.
namespace berth::test {

// --- Operations

struct Allocate {
  std::uint32_t block = 0;  // number of the request
  Bytes size = 0;
  LaneKey lane = 0;
};
// Nothing where the block does not live.
struct Free {
  std::uint32_t block = 0;
};
struct Mark {
  LaneKey lane = 0;
};
// Serves the model's plan of this number.
struct Load {
  std::size_t plan = 0;
};
using ModelOperation = std::variant<Allocate, Free, Mark, Load>;
using ModelOperations = std::vector<ModelOperation>;

struct Model {
  std::vector<Plan> plans;  // the first is served from the start; none: the program learns
  ModelOperations operations;
};

inline std::string printed(const Plan& plan) {
  std::string text;
  for (const Sequence& sequence : plan.sequences) {
    std::string slots;
    for (const Slot& slot : sequence.slots) {
      const std::string offset =
          slot.planned() ? fmt::format("{}", slot.offset) : "Slot::kUnplanned";
      slots += fmt::format("{}{{{}, {}, {}{}}}", slots.empty() ? "" : ", ", offset, slot.requested,
                           slot.length, slot.bucket() ? fmt::format(", {}", slot.least) : "");
    }
    text += text.empty() ? "" : ", ";
    text += sequence.parent < 0
                ? "sequence_of({" + slots + "}"
                : fmt::format("branch_of({}, {}, {{{}}}", sequence.parent, sequence.fork, slots);
    text += sequence.lane == 0 ? ")" : fmt::format(", {})", sequence.lane);
  }
  std::string edges;
  for (const PlanEdge& edge : plan.edges)
    edges += fmt::format("{}{{{}, {}, {}, {}, {}}}", edges.empty() ? "" : ", ", edge.from_lane,
                         edge.from_tick, edge.to_lane, edge.to_tick, edge.delta);
  return fmt::format("plan_of({{{}}}{})", text, edges.empty() ? "" : ", {" + edges + "}");
}

inline std::string printed(const ModelOperation& operation) {
  struct Print {
    std::string operator()(Allocate one) const {
      return one.lane == 0 ? fmt::format("Allocate{{{}, {}}}", one.block, one.size)
                           : fmt::format("Allocate{{{}, {}, {}}}", one.block, one.size, one.lane);
    }
    std::string operator()(Free one) const { return fmt::format("Free{{{}}}", one.block); }
    std::string operator()(Mark one) const { return fmt::format("Mark{{{}}}", one.lane); }
    std::string operator()(Load one) const { return fmt::format("Load{{{}}}", one.plan); }
  };
  return std::visit(Print{}, operation);
}

inline std::string printed(const Model& model) {
  std::string plans, operations;
  for (const Plan& plan : model.plans) plans += (plans.empty() ? "" : ",\n ") + printed(plan);
  for (const ModelOperation& operation : model.operations)
    operations += (operations.empty() ? "" : ", ") + printed(operation);
  return fmt::format("{{{{{}}},\n {{{}}}}}", plans, operations);
}

// --- Running

// Runs a program on an allocator of its own, with a ledger of the bytes of each live block, and
// looks whether the allocator is valid after every operation, or every `every`-th.
class ModelRun {
 public:
  explicit ModelRun(const Model& model, std::size_t every = 1) : model_(model), every_(every) {}

  // The first fault, in one line; empty where there is none.
  [[nodiscard]] std::string fault() {
    if (!model_.plans.empty()) allocator_.load_plan(model_.plans.front());
    std::size_t count = 0;
    for (const ModelOperation& operation : model_.operations) {
      std::string fault = std::visit([this](auto one) { return apply(one); }, operation);
      if (fault.empty() && ++count % every_ == 0) fault = allocator_.is_valid();
      if (!fault.empty())
        return fmt::format("{} at operation {}, {}", fault, &operation - &model_.operations[0],
                           printed(operation));
    }
    while (!live_.empty()) {
      if (std::string fault = apply(Free{live_.begin()->first}); !fault.empty()) return fault;
    }
    return allocator_.is_valid();
  }
  // Requests that the plans served, of all that there were.
  [[nodiscard]] Stats stats() const { return allocator_.stats(); }

 private:
  static Allocator::Options options(const Model& model) {
    Allocator::Options options;
    options.start_threads = false;
    options.config.plan_time_limit_seconds = 1e-4;
    if (!model.plans.empty()) options.config.mode = Mode::kOff;
    return options;
  }
  std::string apply(Allocate one) {
    void* const pointer = allocator_.allocate(one.size, one.lane);
    const auto first = reinterpret_cast<Bytes>(pointer);
    if (first % kAlignment != 0) return fmt::format("block {} is not aligned", one.block);
    const ByteRange bytes{first, first + align_up(one.size, kAlignment)};
    if (const auto other = ledger_.find_touching(bytes))
      return fmt::format("block {} of {} bytes overlaps block {}", one.block, one.size,
                         *ledger_.find(other->first));
    ledger_.insert(bytes, one.block);
    live_[one.block] = pointer;
    const auto known = allocator_.find(pointer);
    if (!known || known->requested != one.size)
      return fmt::format("block {} of {} bytes is known as one of {}", one.block, one.size,
                         known ? known->requested : 0);
    return {};
  }
  std::string apply(Free one) {
    const auto block = live_.find(one.block);
    if (block == live_.end()) return {};
    void* const pointer = block->second;
    live_.erase(block);
    ledger_.erase(reinterpret_cast<Bytes>(pointer));
    if (allocator_.free(pointer) != Allocator::FreeOutcome::kDone)
      return fmt::format("block {} is not known", one.block);
    return {};
  }
  std::string apply(Mark one) {
    allocator_.mark_step(one.lane);
    return {};
  }
  std::string apply(Load one) {
    allocator_.load_plan(model_.plans[one.plan]);
    return {};
  }

  static constexpr Bytes kAlignment = 64;
  const Model& model_;
  const std::size_t every_;
  std::unique_ptr<Device> device_ = make_host_device(Bytes{1} << 30);
  Allocator allocator_{*device_, options(model_)};
  std::map<std::uint32_t, void*> live_;
  IntervalMap<std::uint32_t> ledger_;
};

[[nodiscard]] inline std::string fault_of(const Model& model) { return ModelRun(model).fault(); }

// The same program without what its fault does not need, as far as `runs` runs of it show that.
inline Model shrunk(Model model, std::size_t runs = 1000) {
  for (std::size_t part = model.operations.size() / 2; part > 0; part /= 2) {
    for (std::size_t at = 0; at + part <= model.operations.size() && runs > 0; --runs) {
      Model less = model;
      const auto first = less.operations.begin() + static_cast<std::ptrdiff_t>(at);
      less.operations.erase(first, first + static_cast<std::ptrdiff_t>(part));
      if (fault_of(less).empty()) {
        at += part;
      } else {
        model = std::move(less);
      }
    }
  }
  return model;
}

// --- Writing

// What a step asks for on its lane, in order.
struct ModelRequest {
  Bytes most = 0;
  Bytes least = 0;           // of one of many sizes; else equal
  std::uint32_t length = 0;  // requests of its lane that it lives over
};
struct ModelLane {
  LaneKey key = 0;
  std::vector<std::vector<ModelRequest>> kinds;
};

// The kinds of steps that a plan was made for: its paths.
inline std::vector<ModelLane> lanes_of(const Plan& plan) {
  std::vector<ModelLane> lanes;
  for (const std::uint64_t key : plan.lane_keys) lanes.push_back({key, {}});
  for (const Sequence& sequence : plan.sequences) {
    std::vector<ModelRequest> path(sequence.period);
    std::uint32_t end = sequence.period;
    for (const Sequence* own = &sequence;;
         own = &plan.sequences[static_cast<std::size_t>(own->parent)]) {
      for (const Slot& slot : own->slots) {
        if (slot.birth < end)
          path[slot.birth] = {slot.requested, slot.bucket() ? slot.least : slot.requested,
                              std::max(slot.length, 1u)};
      }
      end = std::min(end, own->fork);
      if (own->parent < 0) break;
    }
    lanes[sequence.lane].kinds.push_back(std::move(path));
  }
  return lanes;
}

// How often a program does what its plan does not expect: once in so many times.
struct ModelHabits {
  std::uint32_t drops = 10, inserts = 10, changes = 10;
  std::uint32_t early_marks = 20, missing_marks = 5;
  std::uint32_t early_frees = 10, late_frees = 5;
  std::uint32_t loads = 0;           // of another plan; 0: never
  Bytes unit = 64;                   // of what is inserted or changed
  std::size_t steps_as_planned = 0;  // at the beginning
};

// A program of so many requests whose steps are of these kinds, in random turns.
inline ModelOperations write_program(const std::vector<ModelLane>& lanes, std::uint32_t requests,
                                     const ModelHabits& habits, std::size_t plans,
                                     std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  struct Lane {
    const std::vector<ModelRequest>* step = nullptr;
    std::size_t next = 0, steps = 0;
    std::uint64_t now = 0;
    std::multimap<std::uint64_t, std::uint32_t> due;  // what is freed then
  };
  std::vector<Lane> state(lanes.size());
  ModelOperations operations;
  for (const ModelLane& lane : lanes) operations.emplace_back(Mark{lane.key});
  for (std::uint32_t block = 0; block < requests;) {
    const std::size_t number = below(lanes.size());
    Lane& lane = state[number];
    const LaneKey key = lanes[number].key;
    const auto now_and_then = [&](std::uint32_t times) {
      return lane.steps > habits.steps_as_planned && times != 0 && below(times) == 0;
    };
    if (now_and_then(habits.loads)) operations.emplace_back(Load{below(plans)});
    if (lane.step == nullptr || lane.next == lane.step->size() ||
        now_and_then(habits.early_marks)) {
      if (lane.step != nullptr && !now_and_then(habits.missing_marks))
        operations.emplace_back(Mark{key});
      lane.step = &lanes[number].kinds[below(lanes[number].kinds.size())];
      lane.next = 0;
      ++lane.steps;
      continue;
    }
    for (; !lane.due.empty() && lane.due.begin()->first <= lane.now;
         lane.due.erase(lane.due.begin()))
      operations.emplace_back(Free{lane.due.begin()->second});
    ModelRequest request = (*lane.step)[lane.next];
    if (now_and_then(habits.inserts)) {
      request = {habits.unit * (Bytes{1} + below(4)), 0, 1 + below(4)};
      request.least = request.most;
    } else {
      ++lane.next;
      ++lane.now;
      if (now_and_then(habits.drops)) continue;
      if (now_and_then(habits.changes)) request.most = request.least = 1 + below(5 * habits.unit);
    }
    const Bytes size = request.least + below(request.most - request.least + 1);
    operations.emplace_back(Allocate{block, size, key});
    std::uint64_t until = lane.now - 1 + request.length;
    if (now_and_then(habits.late_frees)) until += below(2 * lane.step->size() + 4);
    if (now_and_then(habits.early_frees)) until = lane.now - 1 + below(request.length);
    lane.due.emplace(until, block++);
  }
  return operations;
}

}  // namespace berth::test
