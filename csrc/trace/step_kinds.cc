#include "csrc/trace/step_kinds.h"

#include "csrc/core/checksum.h"
#include "csrc/trace/step_parts.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>

namespace berth {
namespace {

using trace::LaneLog;
using trace::LaneRequest;
using trace::RunLog;
using trace::Tick;

constexpr std::uint32_t kNone = ~std::uint32_t{0};

// The ticks of a run at which steps of the marked lane begin and end.
std::vector<Tick> bounds_of(const LaneLog& marked) {
  std::vector<Tick> bounds = {0};
  for (const trace::LaneMark& mark : marked.marks) {
    if (mark.tick > bounds.back()) bounds.push_back(mark.tick);
  }
  return bounds;
}

void count(std::uint16_t& counter) noexcept {
  if (counter != std::numeric_limits<std::uint16_t>::max()) ++counter;
}

// Whether steps of one size are of one kind, by the bytes of theirs that outlive them.
bool outlive_alike(Bytes a, Bytes b) noexcept {
  return std::max(a, b) <= 2 * std::min(a, b) + 65536;
}

// The steps of one lane in a piece of a run.
class LaneSteps {
 public:
  LaneSteps(const LaneLog& log, std::uint64_t key, std::span<const Tick> bounds)
      : log_(log), key_(key), bounds_(bounds) {
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      Step step{.begin = log.position_at(bounds[i]), .end = log.position_at(bounds[i + 1])};
      for (std::uint32_t at = step.begin; at < step.end; ++at) {
        step.hash = kind_hash(step.hash, log.requests[at].bytes);
        if (log.requests[at].freed >= bounds[i + 1]) step.outliving += log.requests[at].bytes;
      }
      steps_.push_back(step);
    }
    tell_apart();
  }

  // A kind of each hash, in order of appearance; of those seen once, too.
  [[nodiscard]] std::vector<StepKind> kinds() {
    std::vector<StepKind> kinds(count_);
    for (const Step& step : steps_) {
      if (step.begin == step.end) continue;
      StepKind& kind = kinds[step.kind];
      kind.lane = key_;
      kind.hash = step.hash;
      kind.outliving = std::max(kind.outliving, step.outliving);
      kind.requests.resize(step.end - step.begin);
      ++kind.seen;
      for (std::uint32_t at = step.begin; at < step.end; ++at)
        observe(step, at, kind.requests[at - step.begin]);
    }
    note_releases(kinds);
    note_ends(kinds);
    for (StepKind& kind : kinds) kind.load = load_of(kind);
    return kinds;
  }

 private:
  struct Step {
    std::uint32_t begin = 0, end = 0;  // positions in the lane's requests
    std::uint64_t hash = 0;
    Bytes outliving = 0;         // bytes of its requests that outlive it
    std::uint32_t next = kNone;  // step of this kind
    std::uint32_t kind = kNone;
  };

  // Which kind each step is, and which is the next of it. What the last step leaves alive says
  // nothing: it may be the run that ended.
  void tell_apart() {
    struct Known {
      Bytes outliving = 0;
      std::uint32_t last = 0, kind = 0;
    };
    std::unordered_map<std::uint64_t, std::vector<Known>> known;
    for (std::uint32_t i = 0; i < steps_.size(); ++i) {
      Step& step = steps_[i];
      if (step.begin == step.end) continue;
      std::vector<Known>& alike = known[step.hash];
      const auto one = std::find_if(alike.begin(), alike.end(), [&](const Known& other) {
        return outlive_alike(other.outliving, step.outliving);
      });
      if (one == alike.end()) {
        step.kind = count_++;
        alike.push_back({step.outliving, i, step.kind});
      } else {
        step.kind = one->kind;
        steps_[std::exchange(one->last, i)].next = i;
      }
    }
  }

  // The step that a tick lies in; as many as there are where it lies behind all.
  [[nodiscard]] std::size_t step_at(Tick tick) const noexcept {
    const auto behind = std::upper_bound(bounds_.begin(), bounds_.end(), tick);
    return static_cast<std::size_t>(behind - bounds_.begin()) - 1;
  }

  void observe(const Step& step, std::uint32_t at, StepKind::Request& known) const {
    const LaneRequest& request = log_.requests[at];
    const auto own = static_cast<std::size_t>(&step - steps_.data());
    known.bytes = known.least = request.bytes;
    const bool again = step.next != kNone;
    if (request.freed < bounds_[own + 1]) {
      count(known.seen);
      known.length = std::max(known.length, std::max(1u, request.end - at));
      return;
    }
    const std::uint32_t to_end = step.end - at;
    if (request.freed == LaneRequest::kNever) {
      if (again) {
        count(known.seen);
        count(known.beyond);
      } else {  // the other steps know its end
        known.outlives = true;
      }
      return;
    }
    count(known.seen);
    if (again) {
      const std::uint32_t in_its_place = steps_[step.next].begin + (at - step.begin);
      if (request.freed > log_.requests[in_its_place].tick) {
        count(known.beyond);
        return;
      }
    }
    known.length = std::max(known.length, to_end);
    known.outlives = true;
  }

  // Calls visit(request, own step, step that it ends in) for each that outlives its step and has a
  // place in a plan. One whose end is not known ends behind all. What a step leaves to the end that
  // came once is what a program begins with.
  template <class Visit>
  void for_each_outliving(const std::vector<StepKind>& kinds, Visit&& visit) const {
    for (std::size_t own = 0; own < steps_.size(); ++own) {
      const Step& step = steps_[own];
      for (std::uint32_t at = step.begin; at < step.end; ++at) {
        const LaneRequest& request = log_.requests[at];
        if (request.freed < bounds_[own + 1]) continue;
        const StepKind::Request& known = kinds[step.kind].requests[at - step.begin];
        if (!known.planned() || known.seen == 0) continue;  // or nothing is known of its end
        const bool ends = request.freed != LaneRequest::kNever;
        const std::size_t last =
            ends ? std::min(step_at(request.freed), steps_.size()) : steps_.size();
        if (last < steps_.size() || kinds[step.kind].seen > 1) visit(at, own, last);
      }
    }
  }

  // When the steps of each kind free most of what they find.
  void note_releases(std::vector<StepKind>& kinds) const {
    std::vector<std::unordered_map<std::uint32_t, Bytes>> freed(kinds.size());
    for_each_outliving(kinds, [&](std::uint32_t at, std::size_t, std::size_t last) {
      if (last == steps_.size() || steps_[last].kind == kNone) return;
      const LaneRequest& request = log_.requests[at];
      freed[steps_[last].kind][request.end - steps_[last].begin] += request.bytes;
    });
    Bytes most = 0;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      for (const auto& [tick, bytes] : freed[i]) {
        const Bytes of_one = bytes / kinds[i].seen;
        const bool sooner = of_one == kinds[i].released && tick < kinds[i].release;
        if (of_one > kinds[i].released || sooner) {
          kinds[i].released = of_one;
          kinds[i].release = tick;
        }
      }
      most = std::max(most, kinds[i].released);
    }
    // Little of it says nothing: what such a step finds is there to its end.
    for (StepKind& kind : kinds) {
      if (kind.released >= most / kLittle && kind.released != 0) continue;
      kind.released = 0;
      // mutant: kinds-release-end
      kind.release = most == 0 ? 0 : static_cast<std::uint32_t>(kind.requests.size());
    }
  }

  // How far into later steps the requests of each kind live.
  void note_ends(std::vector<StepKind>& kinds) const {
    for_each_outliving(kinds, [&](std::uint32_t at, std::size_t own, std::size_t last) {
      const Step& step = steps_[own];
      StepKind::Request& known = kinds[step.kind].requests[at - step.begin];
      const auto lives_into = [&](std::size_t i, std::uint32_t ticks) {
        if (steps_[i].kind == kNone) return;
        const std::uint32_t release = kinds[steps_[i].kind].release;
        known.wrapped = std::max(known.wrapped, std::min(ticks, release));
        if (ticks > release) known.behind = std::max(known.behind, ticks - release);
      };
      for (std::size_t i = own + 1; i < last; ++i) lives_into(i, steps_[i].end - steps_[i].begin);
      if (last < steps_.size()) lives_into(last, log_.requests[at].end - steps_[last].begin);
    });
  }

  // Of what the steps of another kind release.
  static constexpr Bytes kLittle = 16;

  const LaneLog& log_;
  const std::uint64_t key_;
  const std::span<const Tick> bounds_;
  std::vector<Step> steps_;
  std::uint32_t count_ = 0;  // of kinds
};

std::uint16_t sum(std::uint16_t a, std::uint16_t b) noexcept {
  return static_cast<std::uint16_t>(
      std::min<std::uint32_t>(std::uint32_t{a} + b, std::numeric_limits<std::uint16_t>::max()));
}

// How many steps ask for what a kind has at each request: a bucket says it of two.
[[nodiscard]] Bytes asked_twice(const StepKind& kind, std::size_t k) noexcept {
  return kind.bucket() || kind.seen > 1 ? kind.requests[k].bytes : 0;
}
[[nodiscard]] Bytes asked_once(const StepKind& kind, std::size_t k) noexcept {
  return kind.bucket() ? kind.requests[k].most : kind.requests[k].bytes;
}

// The sizes of a kind become those of a bucket, before others are added.
void begin_bucket(StepKind& kind) noexcept {
  if (kind.bucket()) return;
  for (std::size_t k = 0; k < kind.requests.size(); ++k) {
    const Bytes once = asked_once(kind, k), twice = asked_twice(kind, k);
    kind.requests[k].most = once;
    kind.requests[k].bytes = twice;
  }
  kind.hash = 0;
}

// What came once counts where it is not far from what came twice.
void trust(StepKind::Request& request) noexcept {
  if (request.most <= StepKind::kTrusted * request.bytes) request.bytes = request.most;
}

void add_sizes(StepKind& bucket, const StepKind& from) noexcept {
  for (std::size_t k = 0; k < bucket.requests.size(); ++k) {
    StepKind::Request& request = bucket.requests[k];
    const Bytes once = asked_once(from, k);
    request.bytes = std::max({request.bytes, asked_twice(from, k), std::min(request.most, once)});
    request.most = std::max(request.most, once);
    trust(request);
  }
}

// What two records of equally many requests say together, but for sizes.
void add(StepKind& to, const StepKind& from) {
  to.seen += from.seen;
  if (from.released > to.released) {
    to.released = from.released;
    to.release = from.release;
  } else if (to.released == 0) {
    to.release = std::max(to.release, from.release);
  }
  to.outliving = std::max(to.outliving, from.outliving);
  to.load = std::max(to.load, from.load);
  for (std::size_t k = 0; k < to.requests.size(); ++k) {
    StepKind::Request& a = to.requests[k];
    const StepKind::Request& b = from.requests[k];
    a.least = std::min(a.least, b.least);
    a.length = std::max(a.length, b.length);
    a.wrapped = std::max(a.wrapped, b.wrapped);
    a.behind = std::max(a.behind, b.behind);
    a.seen = sum(a.seen, b.seen);
    a.beyond = sum(a.beyond, b.beyond);
    a.outlives |= b.outlives;
  }
}

// Whether what was put together are sizes of one step.
bool is_like(const StepKind& bucket) {
  // mutant: bucket-unlike
  return static_cast<double>(load_of(bucket)) <=
         StepKinds::kMostLoss * static_cast<double>(bucket.load);
}

}  // namespace

Bytes load_of(const StepKind& kind, bool with_crossing) {
  const std::size_t count = kind.requests.size();
  std::vector<Bytes> born(count + 1, 0), died(count + 1, 0);
  const auto lives = [&](std::size_t first, std::size_t last, Bytes bytes) {
    born[first] += bytes;
    died[std::min(last, count)] += bytes;
  };
  for (std::size_t k = 0; k < count; ++k) {
    const StepKind::Request& request = kind.requests[k];
    if (!request.planned() || (request.outlives && !with_crossing)) continue;
    lives(k, request.outlives ? count : k + request.length, request.bytes);
    if (request.outlives) {
      const std::size_t end = request.behind != 0 ? kind.release + request.behind : request.wrapped;
      lives(0, end, request.bytes);
    }
  }
  Bytes alive = 0, most = 0;
  for (std::size_t k = 0; k < count; ++k) {
    alive += born[k] - died[k];
    most = std::max(most, alive);
  }
  return most;
}

std::uint64_t kind_hash(std::uint64_t before, Bytes bytes) noexcept {
  return hash_combine(before, bytes);
}

std::vector<StepKind> steps_of(const Step& cycle) {
  const StepLane& lane = cycle.lanes[cycle.primary];
  std::vector<Bytes> sizes;
  for (const StepRequest& request : cycle.requests) {
    if (request.lane == cycle.primary) sizes.push_back(request.bytes);
  }
  std::vector<StepKind> steps;
  for (std::size_t i = 0; i < lane.marks.size(); ++i) {
    StepKind& step = steps.emplace_back();
    step.lane = lane.key;
    const std::size_t end =
        i + 1 < lane.marks.size() ? lane.marks[i + 1] : lane.marks.front() + sizes.size();
    for (std::size_t tick = lane.marks[i]; tick < end; ++tick) {
      const Bytes bytes = sizes[tick % sizes.size()];
      step.hash = kind_hash(step.hash, bytes);
      step.requests.push_back({.bytes = bytes, .least = bytes});
    }
  }
  return steps;
}

bool StepKinds::are_steps_of(const Step& cycle) const {
  const std::vector<StepKind> steps = steps_of(cycle);
  return std::all_of(kinds_.begin(), kinds_.end(), [&](const StepKind& kind) {
    return kind.lane != cycle.lanes[cycle.primary].key ||
           std::any_of(steps.begin(), steps.end(),
                       [&](const StepKind& step) { return step.hash == kind.hash; });
  });
}

void StepKinds::learn(const Trace& trace) {
  const RunLog log = trace::make_run_log(trace);
  const auto marked = std::max_element(
      log.lanes.begin(), log.lanes.end(),
      [](const LaneLog& a, const LaneLog& b) { return a.marks.size() < b.marks.size(); });
  if (marked == log.lanes.end()) return;
  std::vector<Tick> bounds = bounds_of(*marked);
  if (bounds.size() < 2) return;
  divide(*marked, trace.lanes[static_cast<std::size_t>(marked - log.lanes.begin())].key, bounds);
  for (std::size_t lane = 0; lane < log.lanes.size(); ++lane) {
    if (log.lanes[lane].requests.empty()) continue;
    LaneSteps steps(log.lanes[lane], trace.lanes[lane].key, bounds);
    for (StepKind& kind : steps.kinds()) merge(std::move(kind));
  }
  make_buckets();
  std::erase_if(kinds_, [](const StepKind& kind) { return kind.seen < 2; });
  forget();
}

void StepKinds::divide(const LaneLog& log, std::uint64_t lane, std::vector<Tick>& bounds) {
  std::vector<Bytes> sizes;
  for (const LaneRequest& request : log.requests) sizes.push_back(request.bytes);
  std::vector<std::size_t> begins;
  for (const Tick bound : bounds) begins.push_back(log.position_at(bound));
  const auto step = [&](std::size_t i) {
    return std::span<const Bytes>(sizes).subspan(begins[i], begins[i + 1] - begins[i]);
  };
  std::vector<std::vector<Bytes>> known;
  for (const StepKind& kind : kinds_) {
    known.emplace_back();
    if (kind.lane != lane || kind.bucket()) continue;
    for (const StepKind::Request& request : kind.requests) known.back().push_back(request.bytes);
  }
  std::vector<std::span<const Bytes>> steps(known.begin(), known.end());
  // Before the first mark there may be but the end of a step.
  for (std::size_t i = 1; i + 1 < bounds.size(); ++i) steps.push_back(step(i));
  const StepParts parts(std::move(steps));
  // mutant: kinds-parts
  if (!(divides_ |= parts.tell())) return;

  for (std::size_t i = 0, count = bounds.size(); i + 1 < count; ++i) {
    for (const std::size_t cut : parts.cuts(step(i)))
      bounds.push_back(log.requests[begins[i] + cut - 1].tick + 1);
  }
  std::sort(bounds.begin(), bounds.end());
  for (std::size_t i = kinds_.size(); i-- > 0;) {
    if (!known[i].empty() && !parts.cuts(known[i]).empty())
      kinds_.erase(kinds_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void StepKinds::merge(StepKind&& kind) {
  StepKind* bucket = nullptr;
  for (StepKind& known : kinds_) {
    if (known.lane != kind.lane || known.requests.size() != kind.requests.size()) continue;
    if (known.bucket()) {
      bucket = &known;
    } else if (known.hash == kind.hash && outlive_alike(known.outliving, kind.outliving)) {
      add(known, kind);
      return;
    }
  }
  if (bucket != nullptr) {
    StepKind both = *bucket;
    if (both.load == 0) both.load = load_of(both);
    add_sizes(both, kind);
    add(both, kind);
    if (is_like(both)) {
      *bucket = std::move(both);
      return;
    }
  }
  kinds_.push_back(std::move(kind));
}

void StepKinds::make_buckets() {
  std::unordered_map<std::uint64_t, std::size_t> of_shape;
  const auto shape = [](const StepKind& kind) {
    return hash_combine(kind.lane, kind.requests.size());
  };
  bool any = false;
  for (const StepKind& kind : kinds_)
    any |= kind.bucket() || ++of_shape[shape(kind)] > kMostOfShape;
  const std::size_t most = any ? kMostBesideBucket : kMostOfShape;
  std::unordered_map<std::uint64_t, StepKind> buckets;
  for (const StepKind& kind : kinds_) {
    if (of_shape[shape(kind)] <= most) continue;
    const auto [place, first] = buckets.try_emplace(shape(kind), kind);
    if (first) {
      begin_bucket(place->second);
    } else {
      add_sizes(place->second, kind);
      add(place->second, kind);
    }
  }
  std::erase_if(buckets, [](const auto& bucket) { return !is_like(bucket.second); });
  std::erase_if(kinds_, [&](const StepKind& kind) { return buckets.contains(shape(kind)); });
  for (auto& [name, bucket] : buckets) kinds_.push_back(std::move(bucket));
}

void StepKinds::forget() {
  std::sort(kinds_.begin(), kinds_.end(), [](const StepKind& a, const StepKind& b) {
    return a.seen * a.requests.size() > b.seen * b.requests.size();
  });
  std::size_t requests = 0;
  const auto enough = std::find_if(kinds_.begin(), kinds_.end(), [&](const StepKind& kind) {
    requests += kind.requests.size();
    return requests > kMostRequests;
  });
  kinds_.erase(enough, kinds_.end());
  if (kinds_.size() > kMostKinds) kinds_.resize(kMostKinds);
}

void StepKinds::grow(std::uint64_t lane, std::size_t requests, std::size_t index,
                     Bytes bytes) noexcept {
  for (StepKind& kind : kinds_) {
    if (kind.lane != lane || !kind.bucket() || kind.requests.size() != requests) continue;
    if (index >= requests) continue;
    StepKind::Request& request = kind.requests[index];
    // mutant: bucket-grows
    request.bytes = std::max(request.bytes, bytes);
    request.most = std::max(request.most, request.bytes);
    kind.load = 0;  // of the step that was larger nothing else is known
  }
}

}  // namespace berth
