#include "csrc/core/check.h"
#include "csrc/facts/rounding.h"
#include "csrc/trace/csv.h"
#include "csrc/trace/csv_forms.h"

#include <fmt/format.h>

#include <iterator>
#include <unordered_map>

namespace berth::csv {
namespace {

constexpr std::size_t kAction = 0, kId = 1, kBytes = 2, kStream = 3, kFields = 4;
constexpr std::uint64_t kAnyNumber = ~std::uint64_t{0};
constexpr std::uint64_t kMaxId = kAnyNumber - 1;  // a block is its id + 1

class EventsParser {
 public:
  EventsParser(std::string_view text, const std::string& name) : rows_(text, name) {}

  Trace parse() {
    if (!rows_.next()) rows_.fail("is missing: the file is empty");
    if (rows_.whole() != kEventsHeader)
      rows_.fail(fmt::format("is '{}', not '{}'", printable(rows_.whole()), kEventsHeader));
    trace_.alignment = facts::kCudaUnit;
    while (rows_.next()) {
      if (rows_.size() != kFields)
        rows_.fail(fmt::format("has {} fields, not {}", rows_.size(), kFields));
      row();
    }
    return std::move(trace_);
  }

 private:
  struct Lines {
    std::size_t requested = 0, freed = 0;  // 0: never
  };

  void row() {
    const std::string_view action = rows_[kAction];
    if (action == "alloc") {
      allocate();
    } else if (action == "free") {
      free();
    } else if (action == "free_old") {
      free_old();
    } else if (action == "step") {
      optional(kId, "id");
      optional(kBytes, "bytes");
      add(trace::StepMark{rows_[kStream].empty() ? last_lane() : lane()});
    } else {
      rows_.fail(
          fmt::format("has the action '{}', not alloc, free, free_old or step", printable(action)));
    }
  }

  void allocate() {
    const trace::BlockId block = rows_.number(kId, "id", kMaxId) + 1;
    const auto [it, unknown] = blocks_.emplace(block, Lines{rows_.line(), 0});
    if (!unknown) {
      rows_.fail(it->second.requested != 0
                     ? fmt::format("requests block {} again, line {} did", rows_[kId],
                                   it->second.requested)
                     : fmt::format("requests block {}, which line {} freed as an old one",
                                   rows_[kId], it->second.freed));
    }
    const Bytes bytes = rows_.number(kBytes, "bytes", kMaxBytes);
    last_lane_ = lane();
    add(trace::Request{block, bytes, *last_lane_, 0});
  }

  void free() {
    const trace::BlockId block = rows_.number(kId, "id", kMaxId) + 1;
    optional(kBytes, "bytes");
    optional(kStream, "stream");
    const auto it = blocks_.find(block);
    if (it == blocks_.end())
      rows_.fail(fmt::format("frees block {}, which no line before requests", rows_[kId]));
    mark_freed(it->second);
    add(trace::Free{block});
  }

  void free_old() {
    optional(kBytes, "bytes");
    optional(kStream, "stream");
    trace::BlockId block = next_old_;
    if (rows_[kId].empty()) {
      --next_old_;
    } else {
      block = rows_.number(kId, "id", kMaxId) + 1;
    }
    Lines& lines = blocks_[block];
    if (lines.requested != 0)
      rows_.fail(fmt::format("frees block {} as an old one, but line {} requests it", rows_[kId],
                             lines.requested));
    mark_freed(lines);
    add(trace::Free{block});
  }

  void mark_freed(Lines& lines) {
    if (lines.freed != 0)
      rows_.fail(fmt::format("frees block {} again, line {} did", rows_[kId], lines.freed));
    lines.freed = rows_.line();
  }

  void optional(std::size_t field, std::string_view what) {
    if (!rows_[field].empty()) (void)rows_.number(field, what, kAnyNumber);
  }

  trace::LaneId lane_of(std::uint64_t key) {
    const auto [it, unknown] = lanes_.emplace(key, static_cast<trace::LaneId>(trace_.lanes.size()));
    if (unknown) trace_.lanes.push_back({key});
    return it->second;
  }
  trace::LaneId lane() { return lane_of(rows_.number(kStream, "stream", kAnyNumber)); }
  trace::LaneId last_lane() { return last_lane_ ? *last_lane_ : lane_of(0); }

  void add(const trace::Event& event) {
    trace_.entries.push_back({static_cast<trace::Tick>(trace_.entries.size()), 0, 0, event});
  }

  Rows rows_;
  Trace trace_;
  std::unordered_map<trace::BlockId, Lines> blocks_;
  std::unordered_map<std::uint64_t, trace::LaneId> lanes_;
  std::optional<trace::LaneId> last_lane_;
  trace::BlockId next_old_ = kAnyNumber;  // ids of old blocks that have none, counted down
};

}  // namespace

Trace parse_events(std::string_view text, const std::string& name) {
  return EventsParser(text, name).parse();
}

}  // namespace berth::csv
