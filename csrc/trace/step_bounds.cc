#include "csrc/trace/step_bounds.h"

#include "csrc/core/checksum.h"
#include "csrc/trace/run_log.h"
#include "csrc/trace/step_kinds.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace berth {
namespace {

using trace::LaneLog;
using trace::LaneRequest;

constexpr std::size_t kContexts[] = {32, 16, 8, 4};
// Steps of many sizes have so many requests.
constexpr std::size_t kShortestOfMany = 32;
constexpr std::size_t kLeastPieces = 16, kLeastRequests = 4096;
// What lives for this part of the run is not what a step leaves alive.
constexpr double kLongLife = 0.25;
// Of the requests so many are in pieces that come again, and the pieces have so many together.
constexpr double kExplained = 0.9, kPieces = 1.0 / 3;
// What a cut costs, in requests, and what it costs more where all bytes are alive.
constexpr double kLevels = 256;
constexpr double kCut = 8, kCutAlive = 64;
// Fewer requests around tell so much better, or not.
constexpr double kBetter = 0.9;
// More ways in which a piece begins tell nothing of steps.
constexpr std::size_t kMostClasses = 256;

// Bytes alive before each request of a lane.
std::vector<Bytes> alive_before(const std::vector<LaneRequest>& requests) {
  const std::size_t n = requests.size();
  std::vector<Bytes> alive(n + 1, 0);
  const auto long_life = static_cast<std::size_t>(kLongLife * static_cast<double>(n));
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t end = requests[i].end;
    if (requests[i].end == LaneRequest::kAlive || end <= i + 1 || end - i > long_life) continue;
    // The one at i is there before those from i + 1 to its end.
    alive[i + 1] += requests[i].bytes;
    alive[std::min(end, n)] -= requests[i].bytes;  // wraps around and back again in the sum
  }
  for (std::size_t i = 1; i <= n; ++i) alive[i] += alive[i - 1];
  alive.pop_back();
  return alive;
}

// Where a step may begin: all places with the same requests around, and about as much alive, are
// one class. The layers of a network are told apart by the latter.
struct Cut {
  std::size_t at = 0;
  std::uint64_t of = 0;  // hash of those requests
};

class Division {
 public:
  explicit Division(const std::vector<LaneRequest>& requests) : alive_(alive_before(requests)) {
    most_ = std::max<Bytes>(1, *std::max_element(alive_.begin(), alive_.end()));
    hashes_.push_back(0);
    powers_.push_back(1);
    for (const LaneRequest& request : requests) {
      sizes_.push_back(request.bytes);
      hashes_.push_back(hashes_.back() * kBase + hash_combine(0, request.bytes));
      powers_.push_back(powers_.back() * kBase);
    }
  }

  // Bytes alive where a step would begin.
  [[nodiscard]] Bytes alive(std::size_t at) const noexcept { return alive_[at]; }

  // Places where something else came, too, after or before the same `context` requests.
  [[nodiscard]] std::vector<Cut> candidates(std::size_t context) const {
    const std::size_t n = sizes_.size();
    struct Seen {
      Bytes size = 0;
      bool others = false;
    };
    std::unordered_map<std::uint64_t, Seen> after, before;
    const auto note = [](auto& of, std::uint64_t name, Bytes size) {
      const auto [one, first] = of.try_emplace(name, Seen{size, false});
      if (!first && one->second.size != size) one->second.others = true;
    };
    for (std::size_t i = 0; i + context <= n; ++i) {
      const std::uint64_t name = hash(i, i + context);
      if (i + context < n) note(after, name, sizes_[i + context]);
      if (i > 0) note(before, name, sizes_[i - 1]);
    }
    std::vector<Cut> cuts;
    for (std::size_t i = 1; i < n; ++i) {
      const std::uint64_t here = i + context <= n ? hash(i, i + context) : 0;
      const std::uint64_t last = i >= context ? hash(i - context, i) : 0;
      if (i + context <= n && before[here].others) {
        cuts.push_back({i, hash_combine(here, level(i))});
      } else if (i >= context && after[last].others) {
        cuts.push_back({i, hash_combine(~last, level(i))});
      }
    }
    return cuts;
  }

  // What it takes to tell the run by its pieces: those that differ, and where they are. Nothing
  // where too few of them come again.
  [[nodiscard]] std::optional<double> cost(const std::vector<Cut>& cuts) const {
    if (cuts.size() <= kLeastPieces) return std::nullopt;
    const std::size_t all = cuts.back().at - cuts.front().at;
    if (2 * all < sizes_.size()) return std::nullopt;
    std::unordered_map<std::uint64_t, std::size_t> times;
    std::unordered_map<std::size_t, std::size_t> kinds;  // of a length
    double sum = 0;
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      const std::size_t from = cuts[c].at, to = cuts[c + 1].at;
      if (++times[hash(from, to)] == 1) ++kinds[to - from];
      sum += kCut + kCutAlive * static_cast<double>(alive_[from]) / static_cast<double>(most_);
    }
    const auto many = [&](std::size_t length) {
      return length >= kShortestOfMany && kinds[length] > StepKinds::kMostOfShape;
    };
    std::size_t explained = 0, pieces = 0;
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      const std::size_t from = cuts[c].at, to = cuts[c + 1].at;
      if (many(to - from) || times[hash(from, to)] > 1) explained += to - from;
    }
    for (const auto& [length, count] : kinds) pieces += many(length) ? length : length * count;
    if (static_cast<double>(explained) < kExplained * static_cast<double>(all) ||
        static_cast<double>(pieces) > kPieces * static_cast<double>(all))
      return std::nullopt;
    return sum + static_cast<double>(pieces + sizes_.size() - all);
  }

 private:
  static constexpr std::uint64_t kBase = 0x9E3779B97F4A7C15;
  [[nodiscard]] std::uint64_t level(std::size_t at) const noexcept {
    return static_cast<std::uint64_t>(kLevels * static_cast<double>(alive_[at]) /
                                      static_cast<double>(most_));
  }
  [[nodiscard]] std::uint64_t hash(std::size_t from, std::size_t to) const noexcept {
    return hash_combine(to - from, hashes_[to] - hashes_[from] * powers_[to - from]);
  }
  std::vector<Bytes> sizes_, alive_;
  std::vector<std::uint64_t> hashes_, powers_;  // of the first requests; polynomials in kBase
  Bytes most_ = 1;
};

std::vector<Cut> without(const std::vector<Cut>& cuts, std::uint64_t of) {
  std::vector<Cut> rest;
  for (const Cut& cut : cuts)
    if (cut.of != of) rest.push_back(cut);
  return rest;
}

// The first requests of steps, of a lane; none where nothing tells.
std::vector<Cut> find_bounds(const LaneLog& lane, const std::atomic<bool>* cancel) {
  const auto cancelled = [&] {
    return cancel != nullptr && cancel->load(std::memory_order_relaxed);
  };
  const Division division(lane.requests);
  std::vector<Cut> best;
  std::optional<double> least;
  for (const std::size_t context : kContexts) {
    if (lane.requests.size() < 4 * context) continue;
    std::vector<Cut> cuts = division.candidates(context);
    // Where most is alive a step hardly ends: these classes are the first to go.
    std::unordered_map<std::uint64_t, Bytes> alive;
    for (const Cut& cut : cuts) alive[cut.of] = std::max(alive[cut.of], division.alive(cut.at));
    std::vector<std::pair<Bytes, std::uint64_t>> classes;
    for (const auto& [of, bytes] : alive) classes.emplace_back(bytes, of);
    std::sort(classes.begin(), classes.end(), std::greater<>());
    if (classes.size() > kMostClasses) continue;
    // Repeated parts of a step (its layers) look like steps: what tells the run as well without
    // them is better off without.
    std::optional<double> cost = division.cost(cuts);
    for (bool better = true; better;) {
      better = false;
      for (const auto& [bytes, of] : classes) {
        if (cancelled()) return {};
        std::vector<Cut> rest = without(cuts, of);
        if (rest.size() == cuts.size()) continue;
        const std::optional<double> now = division.cost(rest);
        if (cost ? !now || *now >= *cost : rest.size() <= kLeastPieces) continue;
        cost = now;
        cuts = std::move(rest);
        better = true;
      }
    }
    if (!cost || (least && *cost >= kBetter * *least)) continue;
    least = cost;
    best = std::move(cuts);
  }
  return best;
}

}  // namespace

bool mark_steps(Trace& trace, const std::atomic<bool>* cancel) {
  const trace::RunLog log = trace::make_run_log(trace);
  const bool marked = std::any_of(log.lanes.begin(), log.lanes.end(),
                                  [](const LaneLog& lane) { return !lane.marks.empty(); });
  const auto most = std::max_element(
      log.lanes.begin(), log.lanes.end(),
      [](const LaneLog& a, const LaneLog& b) { return a.requests.size() < b.requests.size(); });
  if (marked || most == log.lanes.end() || most->requests.size() < kLeastRequests) return false;
  const auto lane = static_cast<trace::LaneId>(most - log.lanes.begin());
  const std::vector<Cut> bounds = find_bounds(*most, cancel);
  if (bounds.empty()) return false;

  // A step ends with its last request: what is freed after that may be freed by the next one.
  std::vector<trace::Entry> entries;
  entries.reserve(trace.entries.size() + bounds.size());
  auto bound = bounds.begin();
  const auto add = [&](trace::Entry entry) {
    entry.tick = entries.size();
    entries.push_back(std::move(entry));
  };
  for (const trace::Entry& entry : trace.entries) {
    add(entry);
    if (bound == bounds.end() || entry.tick != most->requests[bound->at - 1].tick) continue;
    trace::Entry mark = entry;
    mark.event = trace::StepMark{lane};
    add(std::move(mark));
    ++bound;
  }
  trace.entries = std::move(entries);
  return true;
}

}  // namespace berth
