#include "csrc/schedule/joint/lifetimes.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace berth::schedule {
namespace {

using graph::BufferId;
using graph::ScheduleStep;
using graph::StorageClass;

constexpr std::size_t kNone = ~std::size_t{0};

class LifetimeWalk {
 public:
  LifetimeWalk(const graph::Graph& graph, const graph::Schedule& schedule,
               const graph::CopyRates& rates)
      : graph_(graph), schedule_(schedule), rates_(rates), buffers_(schedule.buffers.size()) {}

  Lifetimes take() {
    const std::vector<bool> on_host = graph::begin_on_host(graph_, schedule_);
    std::vector<bool> written(graph_.storages.size(), false);
    for (const graph::Operator& op : graph_.operators)
      for (const graph::ValueId& one : op.alternatives.front().writes) written[one.storage] = true;
    for (BufferId buffer = 0; buffer < buffers_.size(); ++buffer) {
      const graph::Storage& storage = storage_of(buffer);
      if (is_resident(buffer)) {
        buffers_[buffer].on_host_too =
            on_host[buffer] || !written[schedule_.buffers[buffer].storage];
        if (!on_host[buffer]) resident_ += storage.bytes;
      } else if (storage.kind == StorageClass::kInput) {
        bear(buffer);
      }
    }
    for (const ScheduleStep& step : schedule_.steps) {
      tick_ += 2;
      switch (step.kind) {
        case ScheduleStep::Kind::kRun:
          run(step);
          break;
        case ScheduleStep::Kind::kDrop:
          begin(buffers_[step.buffer].ready);
          die(buffers_[step.buffer].lifetime);
          break;
        case ScheduleStep::Kind::kOffload:
          begin(now_);
          copy_out(step.buffer);
          break;
        case ScheduleStep::Kind::kReload:
          begin(now_);
          copy_in(step.buffer);
          break;
      }
    }
    for (auto* const all : {&result_.all, &result_.host})
      for (Lifetimes::One& one : *all)
        if (one.end == 0) one.end = tick_ + 2;
    return std::move(result_);
  }

 private:
  struct State {
    std::size_t lifetime = kNone;       // the last one's
    std::size_t on_host = kNone;        // the last one's there
    std::uint64_t ready = 0, away = 0;  // when its last reload and its last offload end
    bool on_host_too = false;           // of a resident: the same version
  };
  struct Leaving {  // by a copy
    std::uint64_t end = 0;
    std::size_t lifetime = 0;  // kNone: of a resident
    Bytes bytes = 0;           // of a resident
  };

  [[nodiscard]] bool is_resident(BufferId buffer) const {
    return storage_of(buffer).kind == StorageClass::kResident;
  }

  [[nodiscard]] const graph::Storage& storage_of(BufferId buffer) const {
    return graph_.storages[schedule_.buffers[buffer].storage];
  }
  [[nodiscard]] static std::uint64_t ns_of(Bytes bytes, Bytes per_second) {
    return static_cast<std::uint64_t>(
        (static_cast<unsigned __int128>(bytes) * 1'000'000'000 + per_second - 1) / per_second);
  }

  void note(Bytes more) { result_.live_peak = std::max(result_.live_peak, live_ + more); }
  void bear(BufferId buffer) {
    const Bytes bytes = storage_of(buffer).bytes;
    buffers_[buffer].lifetime = result_.all.size();
    result_.all.push_back({.buffer = buffer, .bytes = bytes, .birth = tick_});
    live_ += bytes;
    note(0);
  }
  void die(std::size_t lifetime) {
    result_.all[lifetime].end = tick_;
    live_ -= result_.all[lifetime].bytes;
  }
  void see_off() {
    if (leaving_.front().lifetime == kNone)
      resident_ -= leaving_.front().bytes;
    else
      die(leaving_.front().lifetime);
    leaving_.pop_front();
  }
  // A step, which cannot begin before `earliest`.
  void begin(std::uint64_t earliest) {
    now_ = std::max(now_, earliest);
    while (!leaving_.empty() && leaving_.front().end <= now_) see_off();
  }
  // Waits until there is room for what a step takes.
  void make_room(Bytes bytes) {
    if (schedule_.budget == 0) return;
    while (!leaving_.empty() && resident_ + live_ + bytes > schedule_.budget) {
      now_ = std::max(now_, leaving_.front().end);
      see_off();
    }
  }

  void run(const ScheduleStep& step) {
    const graph::Alternative& taken = graph_.operators[step.op].alternatives[step.alternative];
    std::uint64_t earliest = 0;
    for (const BufferId buffer : step.reads) earliest = std::max(earliest, buffers_[buffer].ready);
    Bytes born = taken.workspace;
    for (const BufferId buffer : step.writes) {
      earliest = std::max(earliest, buffers_[buffer].ready);
      if (is_birth(buffer)) born += storage_of(buffer).bytes;
    }
    begin(earliest);
    make_room(born);
    for (const BufferId buffer : step.writes) {
      buffers_[buffer].on_host_too = false;
      if (is_birth(buffer)) bear(buffer);
    }
    note(taken.workspace);
    if (taken.workspace != 0)
      result_.all.push_back(
          {.step = tick_ / 2 - 1, .bytes = taken.workspace, .birth = tick_, .end = tick_ + 1});
    now_ += taken.ns;
  }
  [[nodiscard]] bool is_birth(BufferId buffer) const {
    return buffers_[buffer].lifetime == kNone && !is_resident(buffer);
  }

  void copy_out(BufferId buffer) {
    State& state = buffers_[buffer];
    const Bytes bytes = storage_of(buffer).bytes;
    if (std::exchange(state.on_host_too, is_resident(buffer))) {
      now_ = std::max(now_, state.ready);
      resident_ -= bytes;
      return;
    }
    const std::uint64_t start = std::max({out_end_, now_, state.ready});
    if (is_resident(buffer)) {
      state.away = out_end_ = start + ns_of(bytes, rates_.out);
      leaving_.push_back({out_end_, kNone, bytes});
      return;
    }
    clear_host(start);
    state.on_host = result_.host.size();
    result_.host.push_back(
        {.buffer = buffer, .step = tick_ / 2 - 1, .bytes = bytes, .birth = tick_});
    host_ += bytes;
    result_.host_peak = std::max(result_.host_peak, host_);
    out_end_ = start + ns_of(bytes, rates_.out);
    leaving_.push_back({out_end_, state.lifetime});
    state.away = out_end_;
  }
  void copy_in(BufferId buffer) {
    State& state = buffers_[buffer];
    make_room(storage_of(buffer).bytes);
    if (is_resident(buffer))
      resident_ += storage_of(buffer).bytes;
    else
      bear(buffer);
    in_end_ = std::max({in_end_, now_, state.away}) + ns_of(storage_of(buffer).bytes, rates_.in);
    state.ready = in_end_;
    if (is_resident(buffer)) return;
    coming_.push_back({in_end_, state.on_host});
  }
  // Ends what was reloaded from the host by then.
  void clear_host(std::uint64_t now) {
    // mutant: copies-host
    while (!coming_.empty() && coming_.front().end <= now) {
      Lifetimes::One& one = result_.host[coming_.front().lifetime];
      one.end = tick_;
      host_ -= one.bytes;
      coming_.pop_front();
    }
  }

  const graph::Graph& graph_;
  const graph::Schedule& schedule_;
  const graph::CopyRates& rates_;
  Lifetimes result_;
  std::uint64_t tick_ = 0;
  Bytes resident_ = 0, live_ = 0;  // live_: the others, what is being offloaded included
  std::vector<State> buffers_;
  // When the last run, offload and reload end, and what the offloads have not freed yet.
  std::uint64_t now_ = 0, out_end_ = 0, in_end_ = 0;
  std::deque<Leaving> leaving_, coming_;  // from the device, from the host
  Bytes host_ = 0;
};

}  // namespace

Lifetimes lifetimes_of(const graph::Graph& graph, const graph::Schedule& schedule,
                       const graph::CopyRates& rates) {
  return LifetimeWalk(graph, schedule, rates).take();
}

bool all_placed(const Lifetimes& lifetimes, const graph::Schedule& schedule) {
  constexpr Bytes kNoOffset = graph::Buffer::kNoOffset;
  if (lifetimes.live_peak > schedule.arena_bytes) return false;
  return std::all_of(lifetimes.all.begin(), lifetimes.all.end(), [&](const Lifetimes::One& one) {
    if (one.buffer == Lifetimes::One::kWorkspace)
      return schedule.steps[one.step].workspace_offset != kNoOffset;
    const std::vector<Bytes>& offsets = schedule.buffers[one.buffer].offsets;
    return !offsets.empty() &&
           std::find(offsets.begin(), offsets.end(), kNoOffset) == offsets.end();
  });
}

}  // namespace berth::schedule
