#pragma once

#include "csrc/graph/hash.h"
#include "csrc/graph/schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace berth::test {

// Runs a graph of random_graph() in its recorded order, but drops and copies out at random what is
// needed later: that is then made again or copied in. Overwrites in place where that is allowed, at
// random. Legal by making; nothing where it came to a value that cannot be had any more.
class RandomSchedule {
 public:
  RandomSchedule(std::mt19937& random, const graph::Graph& graph, bool copies)
      : random_(random), graph_(graph), copies_(copies) {}

  std::optional<graph::Schedule> make(bool placed) {
    using namespace graph;
    for (StorageId s = 0; s < graph_.storages.size(); ++s) {
      if (graph_.storages[s].kind == StorageClass::kStep) continue;
      add_buffer(s);
      holds_.back() = {s, 0};
      // It does where its first copy is one in.
      if (is_resident(s) && copies_ && chance(0.3)) places_.back() = Place::kHost;
    }
    const std::vector<Place> begin = places_;
    for (const Operator& op : graph_.operators) {
      for (const Read& read : op.alternatives.front().reads) ++reads_left_[read.value];
      for (const ValueId written : op.alternatives.front().writes)
        makers_[written] = static_cast<OperatorId>(&op - graph_.operators.data());
    }
    for (std::size_t k = 0; k < graph_.operators.size(); ++k) {
      const OperatorId op = graph_.order.empty() ? static_cast<OperatorId>(k) : graph_.order[k];
      if (!run(op, 0)) return std::nullopt;
      for (const Read& read : graph_.operators[op].alternatives.front().reads)
        --reads_left_[read.value];
      let_go();
    }
    for (BufferId buffer = 0; buffer < begin.size(); ++buffer)
      if (is_resident(schedule_.buffers[buffer].storage) && places_[buffer] != begin[buffer])
        add_step(begin[buffer] == Place::kHost ? Kind::kOffload : Kind::kReload, buffer);
    schedule_.graph_hash = hash_of(graph_);
    if (placed) place();
    return std::move(schedule_);
  }

 private:
  enum class Place : std::uint8_t { kDevice, kHost, kDropped };
  using BufferId = graph::BufferId;
  using Kind = graph::ScheduleStep::Kind;

  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  [[nodiscard]] const graph::Storage& storage_of(BufferId buffer) const {
    return graph_.storages[schedule_.buffers[buffer].storage];
  }
  [[nodiscard]] bool is_resident(graph::StorageId storage) const {
    return graph_.storages[storage].kind == graph::StorageClass::kResident;
  }
  BufferId add_buffer(graph::StorageId storage) {
    schedule_.buffers.push_back({storage, {}});
    places_.push_back(Place::kDevice);
    holds_.push_back({storage, ~std::uint32_t{0}});
    return static_cast<BufferId>(places_.size() - 1);
  }
  void add_step(Kind kind, BufferId buffer) {
    graph::ScheduleStep step;
    step.kind = kind;
    step.buffer = buffer;
    schedule_.steps.push_back(step);
  }
  [[nodiscard]] std::optional<BufferId> find(graph::ValueId value, Place place) const {
    for (BufferId buffer = 0; buffer < places_.size(); ++buffer)
      if (places_[buffer] == place && holds_[buffer] == value) return buffer;
    return std::nullopt;
  }

  // Has a value on the device.
  bool get(graph::ValueId value, int depth) {
    if (find(value, Place::kDevice)) return true;
    if (const auto away = find(value, Place::kHost)) {
      add_step(Kind::kReload, *away);
      places_[*away] = Place::kDevice;
      return true;
    }
    const auto maker = makers_.find(value);
    if (maker == makers_.end() || depth > 6) return false;
    const graph::Operator& op = graph_.operators[maker->second];
    if (op.traits.only_once()) return false;
    for (const graph::ValueId written : op.alternatives.front().writes)
      if (graph_.storages[written.storage].kind != graph::StorageClass::kStep) return false;
    return run(maker->second, depth + 1);
  }

  bool run(graph::OperatorId number, int depth) {
    const graph::Operator& op = graph_.operators[number];
    graph::ScheduleStep step;
    step.op = number;
    step.alternative = static_cast<std::uint32_t>(random_() % op.alternatives.size());
    const graph::Alternative& taken = op.alternatives[step.alternative];
    for (const graph::Read& read : taken.reads)
      if (!get(read.value, depth)) return false;
    for (const graph::Read& read : taken.reads) {
      const auto buffer = find(read.value, Place::kDevice);
      if (!buffer) return false;  // one of the others was made over it
      step.reads.push_back(*buffer);
    }
    for (const graph::ValueId written : taken.writes) {
      const auto buffer = target(step, taken, written);
      if (!buffer) return false;
      step.writes.push_back(*buffer);
    }
    for (std::size_t k = 0; k < taken.writes.size(); ++k) holds_[step.writes[k]] = taken.writes[k];
    schedule_.steps.push_back(std::move(step));
    return true;
  }

  // Where an operator writes a value.
  std::optional<BufferId> target(const graph::ScheduleStep& step, const graph::Alternative& taken,
                                 graph::ValueId written) {
    const auto is_free = [&step](BufferId buffer) {
      return std::find(step.writes.begin(), step.writes.end(), buffer) == step.writes.end();
    };
    for (std::size_t k = 0; k < taken.reads.size(); ++k)
      if (taken.reads[k].value.storage == written.storage)
        return is_free(step.reads[k]) ? std::optional(step.reads[k]) : std::nullopt;
    const bool born = graph_.storages[written.storage].kind == graph::StorageClass::kStep;
    if (const auto before = find({written.storage, written.version - 1}, Place::kDevice);
        before && written.version > 0 && is_free(*before) && (!born || chance(0.7)))
      return before;
    if (!born) return std::nullopt;
    for (const auto& [from, to] : taken.in_place) {
      const auto buffer = find(from, Place::kDevice);
      if (to == written && buffer && is_free(*buffer) && reads_left_[from] <= 1 && chance(0.5) &&
          std::find(step.reads.begin(), step.reads.end(), *buffer) != step.reads.end() &&
          storage_of(*buffer).kind != graph::StorageClass::kResident &&
          graph_.storages[to.storage].bytes <= storage_of(*buffer).bytes)
        return buffer;
    }
    return add_buffer(written.storage);
  }

  void let_go() {
    for (BufferId buffer = 0; buffer < places_.size(); ++buffer) {
      if (places_[buffer] != Place::kDevice) continue;
      if (is_resident(schedule_.buffers[buffer].storage)) {
        if (!copies_ || !chance(0.2)) continue;
        add_step(Kind::kOffload, buffer);
        places_[buffer] = Place::kHost;
        continue;
      }
      const bool needed = reads_left_[holds_[buffer]] > 0;
      if (needed && copies_ && chance(0.2)) {
        add_step(Kind::kOffload, buffer);
        places_[buffer] = Place::kHost;
      } else if (chance(needed ? 0.08 : 0.7)) {
        add_step(Kind::kDrop, buffer);
        places_[buffer] = Place::kDropped;
      }
    }
  }

  // An arena in the making, by first fit.
  struct Space {
    std::map<BufferId, std::pair<Bytes, Bytes>> there;
    Bytes end = 0;

    Bytes fit(Bytes bytes) {
      Bytes offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (const auto& [buffer, range] : there)
          if (offset < range.second && range.first < offset + bytes) {
            offset = range.second;
            moved = true;
          }
      }
      end = std::max(end, offset + bytes);
      return offset;
    }
    Bytes take(BufferId buffer, Bytes bytes) {
      const Bytes offset = fit(bytes);
      there[buffer] = {offset, offset + bytes};
      return offset;
    }
  };

  // In the order of the steps; on the host some.
  void place() {
    Space device, host;
    const auto bear = [&](BufferId buffer) {
      schedule_.buffers[buffer].offsets.push_back(device.take(buffer, storage_of(buffer).bytes));
    };
    for (BufferId buffer = 0; buffer < schedule_.buffers.size(); ++buffer)
      if (storage_of(buffer).kind == graph::StorageClass::kInput) bear(buffer);
    for (graph::ScheduleStep& step : schedule_.steps) {
      if (step.kind == Kind::kDrop || step.kind == Kind::kOffload) device.there.erase(step.buffer);
      if (step.kind != Kind::kRun && is_resident(schedule_.buffers[step.buffer].storage)) continue;
      if (step.kind == Kind::kOffload && chance(0.8))
        step.host_offset = host.take(step.buffer, storage_of(step.buffer).bytes);
      if (step.kind == Kind::kReload) {
        host.there.erase(step.buffer);
        bear(step.buffer);
      }
      for (const BufferId buffer : step.writes)
        if (storage_of(buffer).kind == graph::StorageClass::kStep && !device.there.count(buffer))
          bear(buffer);
      if (step.kind == Kind::kRun && chance(0.5))
        step.workspace_offset =
            device.fit(graph_.operators[step.op].alternatives[step.alternative].workspace);
    }
    schedule_.arena_bytes = device.end;
    schedule_.host_bytes = host.end;
  }

  std::mt19937& random_;
  const graph::Graph& graph_;
  bool copies_;
  graph::Schedule schedule_;
  std::map<graph::ValueId, int> reads_left_;  // by operators that did not run yet
  std::map<graph::ValueId, graph::OperatorId> makers_;
  // By buffer.
  std::vector<Place> places_;
  std::vector<graph::ValueId> holds_;
};

}  // namespace berth::test
