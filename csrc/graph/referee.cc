#include "csrc/core/check.h"
#include "csrc/graph/hash.h"

#include <berth/referee.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

namespace berth::graph {
namespace {

constexpr std::size_t kBeginning = ~std::size_t{0};  // in the place of a step

std::string text_of(ValueId value) {
  return fmt::format("version {} of storage {}", value.version, value.storage);
}

class Referee {
 public:
  Referee(const Graph& graph, const Schedule& schedule, const CopyRates& rates)
      : graph_(graph), schedule_(schedule), rates_(rates) {}

  // Throws Error(kInput) for what is wrong first.
  Verdict judge() {
    begin();
    for (step_ = 0; step_ < schedule_.steps.size(); ++step_) {
      const ScheduleStep& step = schedule_.steps[step_];
      if (step.kind == ScheduleStep::Kind::kRun) {
        run(step);
        // mutant: referee-workspace
        note_live();
        free(alternative_of(step).workspace, step.workspace_offset);
        continue;
      }
      BERTH_CHECK(step.buffer < states_.size(), kInput, "{} names buffer {}, there are {}", who(),
                  step.buffer, states_.size());
      free_what_left();
      if (step.kind == ScheduleStep::Kind::kDrop) drop(step.buffer);
      if (step.kind == ScheduleStep::Kind::kOffload) copy_out(step);
      if (step.kind == ScheduleStep::Kind::kReload) copy_in(step.buffer);
      note_live();
    }
    end();
    return std::move(verdict_);
  }

 private:
  enum class Place : std::uint8_t { kUnborn, kDevice, kHost, kDropped };
  struct State {
    Place place = Place::kUnborn;
    ValueId holds;
    std::size_t since = kBeginning;         // the step that made it so
    std::size_t births = 0;                 // on the device
    Bytes offset = Buffer::kNoOffset;       // of the last of them
    Bytes host_offset = Buffer::kNoOffset;  // of its last offload
    std::uint64_t ready = 0, away = 0;      // when its last reload and its last offload end
    // Of a resident that is copied: where it begins, and what the host's copy holds.
    bool moves = false, begins_on_host = false;
    std::optional<ValueId> on_host = {};
  };
  struct Leaving {  // bytes that are being offloaded
    std::uint64_t end = 0;
    Bytes bytes = 0, offset = 0;
  };
  struct Taken {  // bytes of the arena, by where they begin
    Bytes end = 0;
    BufferId buffer = 0;
    bool leaving = false;
  };

  struct TakenOnHost {
    Bytes end = 0;
    BufferId buffer = 0;
    std::optional<std::uint64_t> free_at;  // when its reload ends; nothing: it is there
  };

  // Words.

  [[nodiscard]] std::string name(OperatorId op) const {
    return fmt::format("operator {} ({})", op, graph_.operators[op].name);
  }
  [[nodiscard]] std::string who() const {
    if (step_ == kBeginning) return "at the beginning the schedule";
    const ScheduleStep& step = schedule_.steps[step_];
    const bool runs = step.kind == ScheduleStep::Kind::kRun && step.op < graph_.operators.size();
    return fmt::format("step {}: {}", step_, runs ? name(step.op) : "the schedule");
  }
  [[nodiscard]] static std::string text_of(BufferId buffer) {
    return buffer == kWorkspace ? "its workspace" : fmt::format("buffer {}", buffer);
  }
  [[nodiscard]] std::string with_state(BufferId buffer) const {
    const State& state = states_[buffer];
    const std::string what = text_of(buffer);
    switch (state.place) {
      case Place::kUnborn:
        return what + ", which is not made yet";
      case Place::kHost:
        return fmt::format("{}, which was offloaded at step {}", what, state.since);
      case Place::kDropped:
        return fmt::format("{}, which was dropped at step {}", what, state.since);
      case Place::kDevice:
        break;
    }
    return fmt::format(
        "{}, which holds {} since {}", what, graph::text_of(state.holds),
        state.since == kBeginning ? "the beginning" : fmt::format("step {}", state.since));
  }

  // Bytes and time.

  [[nodiscard]] static std::uint64_t sum(std::uint64_t a, std::uint64_t b, const char* what) {
    const auto both = checked_add(a, b);
    BERTH_CHECK(both, kInput, "{} and more {}, the limit is {}", a, what, kMaxBytes);
    return *both;
  }
  [[nodiscard]] std::uint64_t ns_of(Bytes bytes, Bytes per_second) const {
    const auto ns =
        (static_cast<unsigned __int128>(bytes) * 1'000'000'000 + per_second - 1) / per_second;
    BERTH_CHECK(ns <= kMaxBytes, kInput, "{} copies {} bytes at {} a second: that takes too long",
                who(), bytes, per_second);
    return static_cast<std::uint64_t>(ns);
  }
  [[nodiscard]] const Storage& storage_of(BufferId buffer) const {
    return graph_.storages[schedule_.buffers[buffer].storage];
  }
  [[nodiscard]] const Alternative& alternative_of(const ScheduleStep& step) const {
    return graph_.operators[step.op].alternatives[step.alternative];
  }

  void note_live() {
    const Bytes live = outside_ + inside_;
    verdict_.live.push_back(live);
    const ScheduleStep::Kind kind = schedule_.steps[step_].kind;
    const bool takes = kind == ScheduleStep::Kind::kRun || kind == ScheduleStep::Kind::kReload;
    if (!takes || live <= verdict_.peak) return;
    verdict_.peak = live;
    verdict_.peak_step = step_;
  }

  void free(Bytes bytes, Bytes offset) {
    (offset == Buffer::kNoOffset ? outside_ : inside_) -= bytes;
    if (offset != Buffer::kNoOffset && bytes != 0) taken_.erase(offset);
  }
  void wait_for_offload() {
    now_ = std::max(now_, leaving_.front().end);
    free(leaving_.front().bytes, leaving_.front().offset);
    leaving_.pop_front();
  }

  void free_what_left() {
    while (!leaving_.empty() && leaving_.front().end <= now_) wait_for_offload();
  }

  // What lies in these bytes of the arena, or the end of taken_.
  [[nodiscard]] std::map<Bytes, Taken>::const_iterator found_in(Bytes offset, Bytes end) const {
    auto next = taken_.lower_bound(offset);
    // mutant: referee-touch
    if (next != taken_.begin() && std::prev(next)->second.end > offset) return std::prev(next);
    return next != taken_.end() && next->first < end ? next : taken_.end();
  }

  // Takes bytes for a birth, as soon as they are free.
  void take(BufferId buffer, Bytes bytes, Bytes offset) {
    free_what_left();
    if (offset == Buffer::kNoOffset) {
      outside_ = sum(outside_, bytes, "bytes on the device");
    } else {
      BERTH_CHECK(offset <= schedule_.arena_bytes && bytes <= schedule_.arena_bytes - offset,
                  kInput, "{} puts the {} bytes of {} at {} of an arena of {}", who(), bytes,
                  text_of(buffer), offset, schedule_.arena_bytes);
      const Bytes end = offset + bytes;
      for (auto other = found_in(offset, end); bytes != 0 && other != taken_.end();
           other = found_in(offset, end)) {
        BERTH_CHECK(other->second.leaving, kInput,
                    "{} puts {} at bytes {} to {} of the arena, where {} has bytes {} to {}", who(),
                    text_of(buffer), offset, end, text_of(other->second.buffer), other->first,
                    other->second.end);
        wait_for_offload();
      }
      if (bytes != 0) taken_[offset] = {end, buffer};
      inside_ += bytes;  // no more than the arena
      verdict_.arena = std::max(verdict_.arena, end);
    }
    if (schedule_.budget == 0) return;
    const auto needed = [&] { return sum(outside_, schedule_.arena_bytes, "bytes on the device"); };
    while (needed() > schedule_.budget && !leaving_.empty()) wait_for_offload();
    BERTH_CHECK(needed() <= schedule_.budget, kInput,
                "{} needs {} bytes with the {} of {}, the budget is {}", who(), needed(), bytes,
                text_of(buffer), schedule_.budget);
  }

  void bear(BufferId buffer) {
    State& state = states_[buffer];
    const std::vector<Bytes>& offsets = schedule_.buffers[buffer].offsets;
    BERTH_CHECK(offsets.empty() || state.births < offsets.size(), kInput,
                "{} has no place for birth {} of {}, there are {}", who(), state.births + 1,
                text_of(buffer), offsets.size());
    state.offset = offsets.empty() ? Buffer::kNoOffset : offsets[state.births];
    ++state.births;
    take(buffer, storage_of(buffer).bytes, state.offset);
    state.place = Place::kDevice;
    state.since = step_;
  }

  // The steps.

  void begin() {
    BERTH_CHECK(schedule_.graph_hash == 0 || schedule_.graph_hash == hash_of(graph_), kInput,
                "the schedule is for the graph {:016x}, this one is {:016x}", schedule_.graph_hash,
                hash_of(graph_));
    const std::size_t operators = graph_.operators.size();
    runs_.resize(operators);
    before_.resize(operators);
    recorded_.resize(operators);
    for (const auto& [earlier, later] : graph_.control) before_[later].push_back(earlier);
    for (std::size_t k = 0; k < operators; ++k)
      recorded_[graph_.order.empty() ? k : graph_.order[k]] = k;
    states_.resize(schedule_.buffers.size());
    for (const Operator& op : graph_.operators)
      for (const ValueId& written : op.alternatives.front().writes)
        if (graph_.storages[written.storage].kind == StorageClass::kResident)
          last_versions_[written.storage] =
              std::max(last_version(written.storage), written.version);
    std::vector<bool> has_buffer(graph_.storages.size(), false);
    const std::map<BufferId, ScheduleStep::Kind> copied_first = first_copies();
    for (BufferId buffer = 0; buffer < states_.size(); ++buffer) {
      const StorageId storage = schedule_.buffers[buffer].storage;
      BERTH_CHECK(storage < graph_.storages.size(), kInput,
                  "buffer {} is of storage {}, there are {}", buffer, storage,
                  graph_.storages.size());
      if (graph_.storages[storage].kind == StorageClass::kStep) continue;
      BERTH_CHECK(!has_buffer[storage], kInput,
                  "buffer {} is a second one of storage {}, which is there at the beginning",
                  buffer, storage);
      has_buffer[storage] = true;
      states_[buffer].holds = {storage, 0};
      if (graph_.storages[storage].kind == StorageClass::kResident &&
          begin_resident(buffer, copied_first))
        continue;
      bear(buffer);
    }
    for (StorageId storage = 0; storage < graph_.storages.size(); ++storage)
      BERTH_CHECK(graph_.storages[storage].kind == StorageClass::kStep || has_buffer[storage],
                  kInput, "storage {} is there at the beginning and has no buffer", storage);
    verdict_.peak = verdict_.resident;
  }

  // Of each buffer that is copied, the first copy.
  [[nodiscard]] std::map<BufferId, ScheduleStep::Kind> first_copies() const {
    std::map<BufferId, ScheduleStep::Kind> first;
    for (const ScheduleStep& step : schedule_.steps)
      if (step.kind == ScheduleStep::Kind::kOffload || step.kind == ScheduleStep::Kind::kReload)
        first.try_emplace(step.buffer, step.kind);
    return first;
  }

  // Whether the resident is on the host at the beginning.
  bool begin_resident(BufferId buffer, const std::map<BufferId, ScheduleStep::Kind>& first) {
    State& state = states_[buffer];
    const StorageId storage = schedule_.buffers[buffer].storage;
    const Bytes bytes = graph_.storages[storage].bytes;
    BERTH_CHECK(schedule_.buffers[buffer].offsets.empty(), kInput,
                "buffer {} has a place in the arena, storage {} is resident", buffer, storage);
    const auto copied = first.find(buffer);
    state.moves = copied != first.end();
    state.begins_on_host = state.moves && copied->second == ScheduleStep::Kind::kReload;
    if (!state.moves) {
      verdict_.resident = sum(verdict_.resident, bytes, "resident bytes");
      return false;
    }
    // Its room on the host is there all the time.
    host_ = sum(host_, bytes, "bytes on the host");
    verdict_.host_peak = std::max(verdict_.host_peak, host_);
    // What no operator writes has its copy there from the step before.
    if (state.begins_on_host || last_version(storage) == 0) state.on_host = state.holds;
    // mutant: referee-resident-begin
    if (state.begins_on_host) state.place = Place::kHost;
    return state.begins_on_host;
  }
  [[nodiscard]] std::uint32_t last_version(StorageId storage) const {
    const auto found = last_versions_.find(storage);
    return found == last_versions_.end() ? 0 : found->second;
  }

  void check_turn(OperatorId op) {
    const Traits& traits = graph_.operators[op].traits;
    if (runs_[op]++ != 0) {
      BERTH_CHECK(!traits.only_once(), kInput, "{} is recomputed: it {}", who(),
                  traits.changes_state ? "changes state"
                  : traits.host_sync   ? "waits for the host"
                  : traits.collective  ? "is a collective"
                                       : "is random");
      return;
    }
    for (const OperatorId earlier : before_[op])
      // mutant: referee-control
      BERTH_CHECK(runs_[earlier] != 0, kInput, "{} runs before {}: a control edge forbids that",
                  who(), name(earlier));
    const auto keep_order = [&](std::optional<OperatorId>& last, const char* what) {
      BERTH_CHECK(!last || recorded_[*last] < recorded_[op], kInput,
                  "{} runs after {}: {} keep their recorded order", who(), name(*last), what);
      last = op;
    };
    if (traits.random) keep_order(last_random_, "random operators");
    if (traits.collective || traits.host_sync)
      keep_order(last_in_step_, "collectives and what waits for the host");
  }

  void run(const ScheduleStep& step) {
    BERTH_CHECK(step.op < graph_.operators.size(), kInput, "step {} runs operator {}, there are {}",
                step_, step.op, graph_.operators.size());
    BERTH_CHECK(step.alternative < graph_.operators[step.op].alternatives.size(), kInput,
                "{} runs by alternative {}, it has {}", who(), step.alternative,
                graph_.operators[step.op].alternatives.size());
    const Alternative& taken = alternative_of(step);
    BERTH_CHECK(
        step.reads.size() == taken.reads.size() && step.writes.size() == taken.writes.size(),
        kInput, "{} has {} buffers to read and {} to write, {} and {} are wanted", who(),
        step.reads.size(), step.writes.size(), taken.reads.size(), taken.writes.size());
    check_turn(step.op);
    for (std::size_t k = 0; k < taken.reads.size(); ++k) read(taken.reads[k].value, step.reads[k]);
    for (std::size_t k = 0; k < taken.writes.size(); ++k) write(step, taken, k);
    take(kWorkspace, taken.workspace, step.workspace_offset);
    if (runs_[step.op] > 1) {
      ++verdict_.recomputed;
      verdict_.recomputed_ns = sum(verdict_.recomputed_ns, taken.ns, "ns");
    }
    verdict_.compute_ns = sum(verdict_.compute_ns, taken.ns, "ns");
    now_ = sum(now_, taken.ns, "ns");
  }

  void read(ValueId value, BufferId buffer) {
    BERTH_CHECK(buffer < states_.size(), kInput, "{} reads {} in buffer {}, there are {}", who(),
                graph::text_of(value), buffer, states_.size());
    const State& state = states_[buffer];
    // mutant: referee-version
    BERTH_CHECK(state.place == Place::kDevice && state.holds == value, kInput, "{} reads {} in {}",
                who(), graph::text_of(value), with_state(buffer));
    now_ = std::max(now_, state.ready);
  }

  // The k-th write of an alternative, all of whose reads were found.
  void write(const ScheduleStep& step, const Alternative& taken, std::size_t k) {
    const ValueId value = taken.writes[k];
    const BufferId buffer = step.writes[k];
    BERTH_CHECK(buffer < states_.size(), kInput, "{} writes {} into buffer {}, there are {}", who(),
                graph::text_of(value), buffer, states_.size());
    for (std::size_t other = 0; other < taken.reads.size(); ++other)
      BERTH_CHECK(taken.reads[other].value.storage != value.storage || step.reads[other] == buffer,
                  kInput, "{} writes {} into buffer {} and reads {} in buffer {}: one is wanted",
                  who(), graph::text_of(value), buffer, graph::text_of(taken.reads[other].value),
                  step.reads[other]);
    State& state = states_[buffer];
    if (state.place == Place::kUnborn) {
      const StorageId storage = schedule_.buffers[buffer].storage;
      BERTH_CHECK(storage == value.storage, kInput,
                  "{} writes {} into buffer {}, which is of storage {}", who(),
                  graph::text_of(value), buffer, storage);
      bear(buffer);
    } else {
      BERTH_CHECK(state.place == Place::kDevice && may_overwrite(step, taken, value, buffer),
                  kInput, "{} writes {} into {}", who(), graph::text_of(value), with_state(buffer));
      now_ = std::max(now_, state.ready);
    }
    state.holds = value;
    state.since = step_;
  }

  // The version before, or a read whose bytes the alternative lets it take over.
  [[nodiscard]] bool may_overwrite(const ScheduleStep& step, const Alternative& taken,
                                   ValueId value, BufferId buffer) const {
    const ValueId held = states_[buffer].holds;
    // mutant: referee-overwrite
    if (held.storage == value.storage) return held.version + 1 == value.version;
    bool reads = false;  // what this very buffer holds
    for (std::size_t k = 0; k < taken.reads.size(); ++k)
      reads = reads || (step.reads[k] == buffer && taken.reads[k].value == held);
    const bool paired = std::find(taken.in_place.begin(), taken.in_place.end(),
                                  std::pair(held, value)) != taken.in_place.end();
    // mutant: referee-in-place, referee-room
    return reads && paired && graph_.storages[value.storage].bytes <= storage_of(buffer).bytes;
  }

  void check_there(BufferId buffer, const char* does) const {
    BERTH_CHECK(states_[buffer].place == Place::kDevice, kInput, "{} {} {}", who(), does,
                with_state(buffer));
  }

  void drop(BufferId buffer) {
    BERTH_CHECK(storage_of(buffer).kind != StorageClass::kResident, kInput,
                "{} drops buffer {} of storage {}, which is resident", who(), buffer,
                schedule_.buffers[buffer].storage);
    check_there(buffer, "drops");
    State& state = states_[buffer];
    now_ = std::max(now_, state.ready);
    free(storage_of(buffer).bytes, state.offset);
    state.place = Place::kDropped;
    state.since = step_;
  }

  void copy_out(const ScheduleStep& step) {
    const BufferId buffer = step.buffer;
    check_there(buffer, "offloads");
    State& state = states_[buffer];
    const Bytes bytes = storage_of(buffer).bytes;
    BERTH_CHECK(!state.moves || step.host_offset == Buffer::kNoOffset, kInput,
                "{} gives buffer {} a place on the host, storage {} is resident", who(), buffer,
                schedule_.buffers[buffer].storage);
    state.place = Place::kHost;
    state.since = step_;
    // mutant: referee-resident-copy
    if (state.moves && state.on_host == state.holds) {  // the host has the same bytes
      now_ = std::max(now_, state.ready);
      free(bytes, state.offset);
      return;
    }
    out_end_ = std::max({out_end_, now_, state.ready});
    if (step.host_offset != Buffer::kNoOffset) take_on_host(step);
    out_end_ = sum(out_end_, ns_of(bytes, rates_.out), "ns");
    // mutant: referee-copied
    leaving_.push_back({out_end_, bytes, state.offset});
    if (state.offset != Buffer::kNoOffset && bytes != 0) taken_.at(state.offset).leaving = true;
    verdict_.offloaded_bytes = sum(verdict_.offloaded_bytes, bytes, "offloaded bytes");
    if (state.moves) {
      state.on_host = state.holds;
    } else {
      host_ = sum(host_, bytes, "bytes on the host");
      verdict_.host_peak = std::max(verdict_.host_peak, host_);
    }
    state.away = out_end_;
    state.host_offset = step.host_offset;
  }

  // Takes bytes of the host's arena, as soon as they were reloaded from.
  void take_on_host(const ScheduleStep& step) {
    const Bytes bytes = storage_of(step.buffer).bytes, offset = step.host_offset;
    BERTH_CHECK(offset <= schedule_.host_bytes && bytes <= schedule_.host_bytes - offset, kInput,
                "{} puts the {} bytes of {} at {} of an arena of {} on the host", who(), bytes,
                text_of(step.buffer), offset, schedule_.host_bytes);
    if (bytes == 0) return;
    const Bytes end = offset + bytes;
    auto other = host_taken_.lower_bound(offset);
    // mutant: referee-host
    if (other != host_taken_.begin() && std::prev(other)->second.end > offset) --other;
    while (other != host_taken_.end() && other->first < end) {
      BERTH_CHECK(other->second.free_at, kInput,
                  "{} puts {} at bytes {} to {} of the host's arena, where {} has bytes {} to {}",
                  who(), text_of(step.buffer), offset, end, text_of(other->second.buffer),
                  other->first, other->second.end);
      // mutant: referee-host-wait
      out_end_ = std::max(out_end_, *other->second.free_at);
      other = host_taken_.erase(other);
    }
    host_taken_[offset] = {end, step.buffer, std::nullopt};
    verdict_.host_arena = std::max(verdict_.host_arena, end);
  }

  void copy_in(BufferId buffer) {
    State& state = states_[buffer];
    BERTH_CHECK(state.place == Place::kHost, kInput, "{} reloads {}", who(), with_state(buffer));
    bear(buffer);
    const Bytes bytes = storage_of(buffer).bytes;
    // mutant: referee-reload
    in_end_ = std::max({in_end_, now_, state.away});
    in_end_ = sum(in_end_, ns_of(bytes, rates_.in), "ns");
    // mutant: referee-ready
    state.ready = in_end_;
    if (state.host_offset != Buffer::kNoOffset && bytes != 0)
      host_taken_.at(state.host_offset).free_at = in_end_;
    verdict_.reloaded_bytes = sum(verdict_.reloaded_bytes, bytes, "reloaded bytes");
    if (!state.moves) host_ -= bytes;
  }

  void end() {
    for (OperatorId op = 0; op < graph_.operators.size(); ++op)
      BERTH_CHECK(runs_[op] != 0, kInput, "{} is never run", name(op));
    for (BufferId buffer = 0; buffer < states_.size(); ++buffer) {
      if (storage_of(buffer).kind != StorageClass::kResident) continue;
      const StorageId storage = schedule_.buffers[buffer].storage;
      const ValueId wanted = {storage, last_version(storage)};
      // mutant: referee-end
      BERTH_CHECK(states_[buffer].holds == wanted, kInput,
                  "at the end {}, and the resident must hold {}", with_state(buffer),
                  graph::text_of(wanted));
      const State& state = states_[buffer];
      // mutant: referee-resident-place
      BERTH_CHECK(!state.moves || (state.place == Place::kHost) == state.begins_on_host, kInput,
                  "at the end {}, and the resident began {}", with_state(buffer),
                  state.begins_on_host ? "on the host" : "on the device");
    }
    verdict_.ns = std::max({now_, out_end_, in_end_});
  }

  static constexpr BufferId kWorkspace = ~BufferId{0};

  const Graph& graph_;
  const Schedule& schedule_;
  const CopyRates& rates_;
  Verdict verdict_;
  std::size_t step_ = kBeginning;
  // By operator.
  std::vector<std::uint32_t> runs_;
  std::vector<std::vector<OperatorId>> before_;
  std::vector<std::size_t> recorded_;  // its place in the recorded order
  std::optional<OperatorId> last_random_, last_in_step_;
  std::map<StorageId, std::uint32_t> last_versions_;  // of residents that are written
  // By buffer.
  std::vector<State> states_;
  std::map<Bytes, Taken> taken_;               // of the arena
  std::map<Bytes, TakenOnHost> host_taken_;    // of the host's
  Bytes outside_ = 0, inside_ = 0, host_ = 0;  // on the device but the arena, in the arena, away
  // When the last run, offload and reload end, and what the offloads have not freed yet.
  std::uint64_t now_ = 0, out_end_ = 0, in_end_ = 0;
  std::deque<Leaving> leaving_;
};

}  // namespace

Verdict replay(const Graph& graph, const Schedule& schedule, const CopyRates& rates) {
  BERTH_CHECK(rates.out != 0 && rates.in != 0, kUsage,
              "copies at {} bytes a second out and {} in: both must be above 0", rates.out,
              rates.in);
  try {
    return Referee(graph, schedule, rates).judge();
  } catch (const Error& error) {
    return {.violation = error.what(), .live = {}};
  }
}

}  // namespace berth::graph
