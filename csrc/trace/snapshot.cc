#include "csrc/trace/snapshot.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/facts/rounding.h"
#include "csrc/trace/gzip.h"
#include "csrc/trace/held_segments.h"
#include "csrc/trace/pickle.h"
#include "csrc/trace/snapshot_frames.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

namespace berth {
namespace {

using trace::BlockId;
using trace::LaneId;
using trace::StringId;
using Value = Pickle::Value;
using Type = Pickle::Type;

constexpr Bytes kMaxBytesOfFile = Bytes{4} << 30;
constexpr Bytes kMostSmall = Bytes{1} << 20;  // its small segments hold what is no larger
// The first ids; what was there before the history counts from kFirstOld on.
constexpr BlockId kFirstOld = BlockId{1} << 62;

enum class Action {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,
  kNothing,  // snapshot, annotate
  kUnknown
};

// The fields of a snapshot, as values of its pickle. What a version does not write is not there.
struct Fields {
  explicit Fields(const Pickle& pickle)
      : segments(pickle.find("segments")),
        device_traces(pickle.find("device_traces")),
        external_annotations(pickle.find("external_annotations")),
        allocator_settings(pickle.find("allocator_settings")),
        alloc_conf(pickle.find("PYTORCH_CUDA_ALLOC_CONF")),
        alloc_conf_new(pickle.find("PYTORCH_ALLOC_CONF")),
        device(pickle.find("device")),
        address(pickle.find("address")),
        total_size(pickle.find("total_size")),
        stream(pickle.find("stream")),
        segment_pool_id(pickle.find("segment_pool_id")),
        is_expandable(pickle.find("is_expandable")),
        blocks(pickle.find("blocks")),
        size(pickle.find("size")),
        requested_size(pickle.find("requested_size")),
        state(pickle.find("state")),
        action(pickle.find("action")),
        addr(pickle.find("addr")),
        time_us(pickle.find("time_us")),
        user_metadata(pickle.find("user_metadata")),
        name(pickle.find("name")),
        stage(pickle.find("stage")),
        segment_type(pickle.find("segment_type")) {
    constexpr std::pair<std::string_view, Action> kActions[] = {
        {"alloc", Action::kAlloc},
        {"free_requested", Action::kFreeRequested},
        {"free_completed", Action::kFreeCompleted},
        {"segment_alloc", Action::kSegmentAlloc},
        {"segment_map", Action::kSegmentAlloc},
        {"segment_free", Action::kSegmentFree},
        {"segment_unmap", Action::kSegmentFree},
        {"oom", Action::kOutOfMemory},
        {"snapshot", Action::kNothing},
        {"annotate", Action::kNothing}};
    for (const auto& [text, what] : kActions) {
      if (const auto value = pickle.find(text)) actions[value->bits] = what;
    }
  }

  using Field = std::optional<Value>;
  Field segments, device_traces, external_annotations, allocator_settings, alloc_conf,
      alloc_conf_new, device, address, total_size, stream, segment_pool_id, is_expandable, blocks,
      size, requested_size, state, action, addr, time_us, user_metadata, name, stage, segment_type;
  std::unordered_map<std::uint64_t, Action> actions;
};

// A block that is alive at the end, by the segments.
struct EndBlock {
  Bytes bytes = 0;
  std::int64_t stream = 0;
  Value value;
};

class SnapshotReader {
 public:
  SnapshotReader(const Pickle& pickle, const std::string& name)
      : pickle_(pickle), fields_(pickle), frames_(pickle), name_(name) {}

  Snapshot read(std::optional<std::uint32_t> device) {
    check_form();
    list_devices();
    choose(device);
    read_settings();
    read_segments();
    snapshot_.trace.alignment = facts::kCudaUnit;
    read_history();
    finish();
    return std::move(snapshot_);
  }

 private:
  [[noreturn]] void fail(std::string_view problem) const {
    throw Error(ErrorKind::kInput,
                fmt::format("'{}' is no memory snapshot that berth reads: {}", name_, problem));
  }

  // --- Values ---

  [[nodiscard]] std::span<const Value> list(Value dict, Fields::Field field) const {
    const auto found = pickle_.at(dict, field);
    return found && Pickle::type(*found) == Type::kList ? pickle_.members(*found)
                                                        : std::span<const Value>{};
  }
  [[nodiscard]] std::optional<std::int64_t> integer(Value dict, Fields::Field field) const {
    const auto found = pickle_.at(dict, field);
    return found ? pickle_.integer(*found) : std::nullopt;
  }
  [[nodiscard]] std::string_view text(Value dict, Fields::Field field) const {
    const auto found = pickle_.at(dict, field);
    return found ? pickle_.text(*found).value_or("") : std::string_view{};
  }
  [[nodiscard]] std::optional<Bytes> bytes(Value dict, Fields::Field field) const {
    const auto found = pickle_.at(dict, field);
    const auto value = found ? pickle_.natural(*found) : std::nullopt;
    return value && *value <= kMaxBytes ? value : std::nullopt;
  }
  [[nodiscard]] std::uint64_t address(Value dict, Fields::Field field) const {
    const auto found = pickle_.at(dict, field);
    return found ? pickle_.natural(*found).value_or(0) : 0;
  }

  // --- The whole ---

  void check_form() const {
    const Value root = pickle_.root();
    if (Pickle::type(root) == Type::kList && !pickle_.members(root).empty() &&
        pickle_.at(pickle_.members(root)[0], fields_.total_size))
      fail(
          "it has segments alone, as torch.cuda.memory_snapshot() gives them, and no history of "
          "requests; torch.cuda.memory._record_memory_history() and then _dump_snapshot() write "
          "one");
    if (Pickle::type(root) != Type::kDict) fail("it holds no dictionary");
    if (!pickle_.at(root, fields_.segments)) fail("it has no 'segments'");
    const auto traces = pickle_.at(root, fields_.device_traces);
    if (!traces || Pickle::type(*traces) != Type::kList) fail("it has no 'device_traces'");
  }

  void list_devices() {
    std::map<std::uint32_t, Snapshot::Device> devices;
    const std::span<const Value> traces = list(pickle_.root(), fields_.device_traces);
    for (std::size_t i = 0; i < traces.size(); ++i) {
      const std::span<const Value> entries = pickle_.members(traces[i]);
      if (Pickle::type(traces[i]) != Type::kList)
        fail(
            fmt::format("the history of device {} is no "
                        "list",
                        i));
      if (entries.empty()) continue;
      Snapshot::Device& device = devices[static_cast<std::uint32_t>(i)];
      device.entries = entries.size();
      for (const Value entry : entries) {
        const Action action = action_of(entry);
        device.requests += action == Action::kAlloc ? 1 : 0;
        if (action == Action::kFreeRequested || action == Action::kFreeCompleted) frees_only_ = i;
      }
    }
    for (const Value segment : list(pickle_.root(), fields_.segments)) {
      const auto index = integer(segment, fields_.device).value_or(0);
      if (index < 0 || index > 1023) fail(fmt::format("a segment is of device {}", index));
      devices[static_cast<std::uint32_t>(index)].reserved +=
          bytes(segment, fields_.total_size).value_or(0);
    }
    for (auto& [index, device] : devices) {
      device.index = index;
      snapshot_.devices.push_back(device);
    }
  }

  void choose(std::optional<std::uint32_t> wanted) {
    std::vector<std::string> with_history;
    std::optional<std::uint32_t> only;
    for (const Snapshot::Device& device : snapshot_.devices) {
      if (device.requests == 0) continue;
      with_history.push_back(fmt::format("{} ({} requests)", device.index, device.requests));
      only = with_history.size() == 1 ? std::optional(device.index) : std::nullopt;
    }
    if (with_history.empty() && frees_only_)
      fail(fmt::format(
          "it has no history of requests: all that the ring of device {} holds are frees, {} "
          "entries. The ring was too short; "
          "torch.cuda.memory._record_memory_history(max_entries=1000000) keeps whole steps",
          *frees_only_,
          pickle_.members(list(pickle_.root(), fields_.device_traces)[*frees_only_]).size()));
    if (with_history.empty())
      fail(
          "it has no history of requests: torch.cuda.memory._record_memory_history() has to be "
          "called before them");
    const std::string list = fmt::format("{}", fmt::join(with_history, ", "));
    if (!wanted) {
      BERTH_CHECK(only.has_value(), kUsage,
                  "'{}' has the history of several devices: {}; --device says which is wanted",
                  name_, list);
      wanted = only;
    }
    const auto found = std::find_if(
        snapshot_.devices.begin(), snapshot_.devices.end(),
        [&](const Snapshot::Device& one) { return one.index == *wanted && one.requests != 0; });
    BERTH_CHECK(found != snapshot_.devices.end(), kUsage,
                "'{}' has no history of device {}, but of {}", name_, *wanted, list);
    snapshot_.device = *wanted;
    snapshot_.entries = found->entries;
    snapshot_.requests = found->requests;
    snapshot_.reserved_at_end = found->reserved;
  }

  void read_settings() {
    const auto settings = pickle_.at(pickle_.root(), fields_.allocator_settings);
    if (!settings) return;
    std::string_view conf = text(*settings, fields_.alloc_conf);
    if (conf.empty()) conf = text(*settings, fields_.alloc_conf_new);
    snapshot_.settings = conf;
  }

  void read_segments() {
    const auto allocated = pickle_.find("active_allocated");
    for (const Value segment : list(pickle_.root(), fields_.segments)) {
      if (integer(segment, fields_.device).value_or(0) != snapshot_.device) continue;
      const std::int64_t stream = integer(segment, fields_.stream).value_or(0);
      const auto flag = pickle_.at(segment, fields_.is_expandable);
      const bool expandable = flag && pickle_.boolean(*flag).value_or(false);
      const bool large = text(segment, fields_.segment_type) == "large";
      snapshot_.expandable |= expandable;
      if (const auto pool = pickle_.at(segment, fields_.segment_pool_id)) {
        bool of_pool = false;
        for (const Value part : pickle_.members(*pool))
          of_pool |= pickle_.natural(part).value_or(0) != 0;
        if (of_pool) snapshot_.private_bytes += bytes(segment, fields_.total_size).value_or(0);
      }
      std::uint64_t at = address(segment, fields_.address);
      for (const Value block : list(segment, fields_.blocks)) {
        const Bytes size = bytes(block, fields_.size).value_or(0);
        if (const std::uint64_t own = address(block, fields_.address); own != 0) at = own;
        // A block that waits for other streams was freed: the history says so or does not know it.
        if (const auto state = pickle_.at(block, fields_.state); state && state == allocated) {
          at_end_[at] = {bytes(block, fields_.requested_size).value_or(size), stream, block};
          snapshot_.of_berth |= expandable && large && size != 0 && size <= kMostSmall;
        }
        at += size;
      }
    }
  }

  // --- The history ---

  [[nodiscard]] Action action_of(Value entry) const {
    const auto action = pickle_.at(entry, fields_.action);
    if (!action) return Action::kUnknown;
    const auto it = fields_.actions.find(action->bits);
    return it == fields_.actions.end() ? Action::kUnknown : it->second;
  }

  void read_history() {
    const std::span<const Value> entries =
        pickle_.members(list(pickle_.root(), fields_.device_traces)[snapshot_.device]);
    for (const Value entry : entries) completes_ |= action_of(entry) == Action::kFreeCompleted;
    read_annotations();
    snapshot_.trace.entries.reserve(entries.size() + entries.size() / 2);
    std::size_t index = 0;
    for (const Value entry : entries) {
      if (!pickle_.at(entry, fields_.action))
        fail(fmt::format("entry {} of device {} has no 'action'", index, snapshot_.device));
      time_us_ = std::max(time_us_, integer(entry, fields_.time_us).value_or(0));
      if (first_us_ == 0) first_us_ = time_us_;
      annotate_until(time_us_);
      see(entry, index++);
    }
    annotate_until(std::numeric_limits<std::int64_t>::max());
    close_ranges();
  }

  void see(Value entry, std::size_t index) {
    const Action action = action_of(entry);
    const std::uint64_t at = address(entry, fields_.addr);
    const auto size = bytes(entry, fields_.size);
    if (action != Action::kNothing && action != Action::kUnknown && !size)
      fail(fmt::format("entry {} of device {} has no 'size' up to {}", index, snapshot_.device,
                       kMaxBytes));
    switch (action) {
      case Action::kAlloc:
        allocate(entry, at, *size);
        break;
      case Action::kFreeRequested:
        if (completes_) {
          request_free(entry, at, *size);
        } else {
          free(entry, at, *size);
        }
        break;
      case Action::kFreeCompleted:
        free(entry, at, *size);
        break;
      case Action::kSegmentAlloc:
      case Action::kSegmentFree:
        add(trace::Segment{at, *size, action == Action::kSegmentAlloc});
        break;
      case Action::kOutOfMemory:
        ++snapshot_.out_of_memory;
        snapshot_.refused = std::max(snapshot_.refused, *size);
        break;
      case Action::kNothing:
        break;
      case Action::kUnknown:
        ++snapshot_.unknown_entries;
        break;
    }
    if (action != Action::kNothing && action != Action::kUnknown) ++seen_;
  }

  void allocate(Value entry, std::uint64_t at, Bytes size) {
    const auto [it, unknown] = live_.try_emplace(at);
    if (!unknown) {
      ++snapshot_.lost_frees;
      add(trace::Free{it->second.id});
    }
    it->second = {++last_id_, false, 0};
    const LaneId lane = lane_of(integer(entry, fields_.stream).value_or(0));
    ++lane_requests_[lane];
    open_ranges(frames_.origin(entry, snapshot_.trace), text(entry, fields_.user_metadata));
    add(trace::Request{last_id_, size, lane, 0});
  }

  // Its address is free again once the free completes.
  void request_free(Value entry, std::uint64_t at, Bytes size) {
    const auto it = live_.find(at);
    if (it != live_.end()) {
      it->second.leaving = true;
      it->second.left = seen_;
    } else {
      live_[at] = {old_block(entry, at, size), true, seen_};
    }
  }

  void free(Value entry, std::uint64_t at, Bytes size) {
    ++snapshot_.frees;
    const auto it = live_.find(at);
    if (it == live_.end()) {
      add(trace::Free{old_block(entry, at, size)});
      return;
    }
    if (it->second.leaving && it->second.left + 1 != seen_) ++snapshot_.delayed_frees;
    add(trace::Free{it->second.id});
    live_.erase(it);
  }

  // A block that is freed here and was there before.
  BlockId old_block(Value entry, std::uint64_t at, Bytes size) {
    ++snapshot_.old_freed;
    old_.push_back({at, size, lane_of(integer(entry, fields_.stream).value_or(0)), {}});
    return kFirstOld + old_.size() - 1;
  }

  LaneId lane_of(std::int64_t stream) {
    const auto [it, unknown] = lanes_.try_emplace(stream, static_cast<LaneId>(lanes_.size()));
    if (unknown) lane_requests_.push_back(0);
    return it->second;
  }

  void add(const trace::Event& event) {
    const std::uint64_t ns = static_cast<std::uint64_t>(time_us_ - first_us_) * 1000;
    snapshot_.trace.entries.push_back({0, ns, 0, event});
  }

  // --- Who asked ---

  struct OpenRange {
    StringId name = 0;
    std::uint64_t range = 0;
  };

  void set_range(OpenRange& open, StringId name, trace::RangeKind kind) {
    if (open.name == name) return;
    if (open.name != 0) add(trace::RangeEnd{open.range});
    open.name = name;
    if (name == 0) return;
    open.range = ++last_range_;
    add(trace::RangeBegin{open.range, name, kind});
  }

  void open_ranges(const trace::FrameOrigin& origin, std::string_view metadata) {
    if (origin != origin_) {
      if (op_ != 0) add(trace::OperatorEnd{op_});
      op_ = 0;
      set_range(phase_, origin.optimizer ? frames_.string("optimizer", snapshot_.trace) : 0,
                trace::RangeKind::kPhase);
      set_range(module_, origin.module, trace::RangeKind::kModule);
      if (origin.op != 0) {
        op_ = ++last_op_;
        trace::OperatorBegin begin;
        begin.op = op_;
        begin.name = origin.op;
        begin.backward = origin.backward;
        add(begin);
      }
      origin_ = origin;
    }
    set_range(scope_, metadata.empty() ? 0 : frames_.string(metadata, snapshot_.trace),
              trace::RangeKind::kUser);
  }

  void close_ranges() { open_ranges({}, {}); }

  // --- Annotations ---

  struct Annotation {
    std::int64_t time_us = 0;
    std::string_view name;
    bool begins = false;
  };

  void read_annotations() {
    for (const Value value : list(pickle_.root(), fields_.external_annotations)) {
      if (integer(value, fields_.device).value_or(0) != snapshot_.device) continue;
      const std::string_view name = text(value, fields_.name), stage = text(value, fields_.stage);
      if (name.empty() || (stage != "START" && stage != "END")) continue;
      annotations_.push_back({integer(value, fields_.time_us).value_or(0), name, stage == "START"});
    }
    std::stable_sort(annotations_.begin(), annotations_.end(),
                     [](const auto& a, const auto& b) { return a.time_us < b.time_us; });
  }

  void annotate_until(std::int64_t time_us) {
    for (; next_annotation_ < annotations_.size() &&
           annotations_[next_annotation_].time_us <= time_us;
         ++next_annotation_) {
      const Annotation& annotation = annotations_[next_annotation_];
      if (annotation.begins) {
        open_annotations_[annotation.name].push_back(++last_range_);
        add(trace::RangeBegin{last_range_, frames_.string(annotation.name, snapshot_.trace),
                              trace::RangeKind::kUser});
        continue;
      }
      auto& open = open_annotations_[annotation.name];
      if (!open.empty()) {
        add(trace::RangeEnd{open.back()});
        open.pop_back();
      }
      if (annotation.name.starts_with("Optimizer.step")) {
        // Before the first entry of the history it ends nothing.
        if (seen_ == 0) continue;
        ++snapshot_.marks;
        add(trace::StepMark{});  // of which lane is known at the end
      }
    }
  }

  // --- The end ---

  struct OldBlock {
    std::uint64_t address = 0;
    Bytes bytes = 0;
    LaneId lane = 0;
    trace::FrameOrigin origin;
  };

  void finish() {
    find_old_blocks();
    count_segments();
    if (snapshot_.of_berth) {
      snapshot_.expandable = false;
      std::erase_if(snapshot_.trace.entries, [](const trace::Entry& entry) {
        return std::holds_alternative<trace::Segment>(entry.event);
      });
    }
    // Keys count up in order of first use; the default stream is 0 wherever it comes.
    Trace& run = snapshot_.trace;
    run.lanes.resize(lanes_.size());
    std::vector<std::int64_t> streams(lanes_.size());
    for (const auto& [stream, lane] : lanes_) streams[lane] = stream;
    std::uint64_t next = 1;
    for (std::size_t i = 0; i < streams.size(); ++i)
      run.lanes[i].key = streams[i] == 0 ? 0 : next++;
    const auto busiest = std::max_element(lane_requests_.begin(), lane_requests_.end());
    const auto marked = static_cast<LaneId>(busiest - lane_requests_.begin());
    prepend_old_blocks();
    trace::Tick tick = 0;
    for (trace::Entry& entry : run.entries) {
      entry.tick = tick++;
      if (auto* mark = std::get_if<trace::StepMark>(&entry.event)) mark->lane = marked;
    }
  }

  // Those that live throughout, beside those that the history frees.
  void find_old_blocks() {
    for (const auto& [at, block] : at_end_) {
      if (live_.erase(at) != 0) continue;
      old_.push_back(
          {at, block.bytes, lane_of(block.stream), frames_.origin(block.value, snapshot_.trace)});
    }
    for (const auto& [at, block] : live_) snapshot_.missing_frees += block.leaving ? 0 : 1;
    snapshot_.old_blocks = old_.size();
    for (const OldBlock& block : old_) {
      const auto sum = checked_add(snapshot_.old_bytes, block.bytes);
      if (!sum) fail("its blocks are larger than any device");
      snapshot_.old_bytes = *sum;
    }
  }

  // What was reserved when the history begins, from what is at the end.
  void count_segments() {
    Bytes grown = 0, shrunk = 0;
    for (const trace::Entry& entry : snapshot_.trace.entries) {
      if (const auto* segment = std::get_if<trace::Segment>(&entry.event)) {
        Bytes& sum = segment->reserve ? grown : shrunk;
        sum = checked_add(sum, segment->bytes).value_or(kMaxBytes);
      }
    }
    const Bytes end = snapshot_.reserved_at_end + shrunk;
    snapshot_.reserved_at_start = end > grown ? end - grown : 0;
    HeldSegments held{.now = snapshot_.reserved_at_start};
    held.peak = std::max(held.now, snapshot_.reserved_at_end);
    for (const trace::Entry& entry : snapshot_.trace.entries) held.see(entry);
    snapshot_.reserved_peak = held.peak;
  }

  void prepend_old_blocks() {
    std::vector<std::size_t> order(old_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(old_[a].address, a) < std::pair(old_[b].address, b);
    });
    Trace& run = snapshot_.trace;
    std::vector<trace::Entry> body;
    body.swap(run.entries);
    time_us_ = first_us_;
    if (snapshot_.reserved_at_start != 0 && !snapshot_.of_berth)
      add(trace::Segment{0, snapshot_.reserved_at_start, true});
    if (!order.empty()) {
      const std::uint64_t range = ++last_range_;
      const StringId name = frames_.string(kBeforeHistory, run);
      add(trace::RangeBegin{range, name, trace::RangeKind::kPhase});
      for (const std::size_t i : order) {
        trace::FrameOrigin origin = old_[i].origin;
        origin.optimizer = false;  // the phase is that of the history
        open_ranges(origin, {});
        add(trace::Request{kFirstOld + i, old_[i].bytes, old_[i].lane, 0});
      }
      close_ranges();
      add(trace::RangeEnd{range});
    }
    run.entries.insert(run.entries.end(), std::make_move_iterator(body.begin()),
                       std::make_move_iterator(body.end()));
  }

  struct LiveBlock {
    BlockId id = 0;
    bool leaving = false;  // its free was requested
    std::size_t left = 0;  // when
  };

  const Pickle& pickle_;
  const Fields fields_;
  trace::SnapshotFrames frames_;
  const std::string& name_;
  Snapshot snapshot_;
  std::map<std::uint64_t, EndBlock> at_end_;  // by address
  std::unordered_map<std::uint64_t, LiveBlock> live_;
  std::vector<OldBlock> old_;
  std::unordered_map<std::int64_t, LaneId> lanes_;
  std::vector<std::size_t> lane_requests_;
  std::vector<Annotation> annotations_;
  std::size_t next_annotation_ = 0;
  std::unordered_map<std::string_view, std::vector<std::uint64_t>> open_annotations_;
  std::optional<std::size_t> frees_only_;  // a device whose history has frees
  bool completes_ = false;                 // the history says when frees complete
  std::size_t seen_ = 0;                   // entries
  std::int64_t time_us_ = 0, first_us_ = 0;
  BlockId last_id_ = 0;
  std::uint64_t last_range_ = 0, last_op_ = 0, op_ = 0;
  OpenRange phase_, module_, scope_;
  trace::FrameOrigin origin_;
};

}  // namespace

std::vector<std::string> Snapshot::notes() const {
  std::vector<std::string> notes;
  const auto note = [&]<class... Arguments>(fmt::format_string<Arguments...> text,
                                            Arguments&&... arguments) {
    notes.push_back(fmt::format(text, std::forward<Arguments>(arguments)...));
  };
  if (cut()) {
    note(
        "the history is cut: {} blocks of {} and {} reserved were there when it begins. It was "
        "turned on late, or its ring (max_entries) was full after {} entries; peaks before it are "
        "not known",
        old_blocks, format_bytes(old_bytes), format_bytes(reserved_at_start), entries);
  }
  if (lost_frees != 0)
    note("{} frees are missing: an address is handed out again; those blocks are freed there",
         lost_frees);
  if (missing_frees != 0)
    note(
        "{} blocks are neither freed nor there at the end: frees were not recorded "
        "(skip_actions), so that what lives is too much",
        missing_frees);
  if (delayed_frees != 0)
    note("{} frees had to wait for other streams; which streams is not recorded", delayed_frees);
  if (private_bytes != 0)
    note(
        "{} are in private pools (CUDA graphs, MemPool), which no plan covers; their requests are "
        "taken for others",
        format_bytes(private_bytes));
  if (unknown_entries != 0)
    note("{} entries are of a kind that this berth does not know and are left out",
         unknown_entries);
  return notes;
}

bool is_pickle(std::span<const std::byte> head) noexcept { return begins_as_pickle(head); }

Snapshot parse_snapshot(std::span<const std::byte> data, const std::string& name,
                        std::optional<std::uint32_t> device) {
  const Pickle pickle = Pickle::parse(data, name);
  return SnapshotReader(pickle, name).read(device);
}

Snapshot read_snapshot(const std::string& path, std::optional<std::uint32_t> device) {
  const std::vector<std::byte> data = is_gzip(read_file_head(path, 2))
                                          ? gunzip(path, kMaxBytesOfFile)
                                          : read_file(path, kMaxBytesOfFile);
  if (!begins_as_pickle(data)) {
    const bool archive = data.size() > 2 && std::to_integer<char>(data[0]) == 'P' &&
                         std::to_integer<char>(data[1]) == 'K';
    throw Error(ErrorKind::kInput,
                fmt::format("'{}' is no pickle{}: a memory snapshot is wanted, as "
                            "torch.cuda.memory._dump_snapshot() writes it",
                            path, archive ? " but an archive, as torch.save() writes it" : ""));
  }
  return parse_snapshot(data, path, device);
}

}  // namespace berth
