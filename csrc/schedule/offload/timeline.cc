#include "csrc/schedule/offload/timeline.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <utility>

namespace berth::schedule::offload {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kForever = ~std::uint64_t{0};
constexpr std::uint64_t kMostTotal = std::uint64_t{1} << 61;

}  // namespace

void Timeline::Engine::clear() {
  queue.clear();
  head = 0;
  running = last = kNobody;
}

void Timeline::Engine::begin(Value value, Bytes bytes, std::uint64_t now, std::uint64_t rate) {
  running = value;
  left = Wide{bytes} * kSecond;
  since = now;
  speed = rate;
  end = now + static_cast<std::uint64_t>((left + speed - 1) / speed);
}

void Timeline::Engine::set_speed(std::uint64_t now, std::uint64_t rate) {
  if (idle() || rate == speed) return;
  const Wide done = Wide{now - since} * speed;
  left = done < left ? left - done : 0;
  since = now;
  speed = rate;
  end = now + static_cast<std::uint64_t>((left + speed - 1) / speed);
}

Timeline::Timeline(const Problem& problem, const Machine& machine)
    : problem_(problem), machine_(machine) {
  check(machine);
  std::uint64_t total = 0;
  const auto add = [&total](std::uint64_t ns) {
    BERTH_CHECK(total <= kMostTotal && ns <= kMostTotal - total, kInput,
                "all copies one after the other take more than {} ns at {} ns so far", kMostTotal,
                total);
    total += ns;
  };
  for (const Problem::ValueOf& value : problem.values) {
    if (!value.movable) continue;
    add(copy_ns(value.bytes, machine.out.loaded));
    add(copy_ns(value.bytes, machine.in.loaded));
  }
}

// By trigger, and for one trigger by first use.
void Timeline::order_reloads(const OffloadPlan& plan) {
  first_reload_.assign(execution_.runs.size() + 1, 0);
  by_need_.clear();
  for (Index run = problem_.border; run < execution_.runs.size(); ++run)
    for (const Value v : problem_.operators[execution_.runs[run].op].reads) {
      if (execution_.fate[v] != Fate::kOffload || execution_.first_after[v] != run) continue;
      const Index trigger = plan.choices[v].trigger;
      const Index at = trigger < execution_.run_of.size() ? execution_.run_of[trigger] : kNobody;
      BERTH_CHECK(
          at <= run && at >= execution_.last_before[v], kUsage,
          "the reload of value {} is triggered by operator {}, legal are those from the last "
          "use before the border (operator {}) to the first use after it (operator {})",
          v, trigger, execution_.runs[execution_.last_before[v]].op, execution_.runs[run].op);
      by_need_.push_back(v);
      ++first_reload_[at + 1];
    }
  for (std::size_t k = 1; k < first_reload_.size(); ++k) first_reload_[k] += first_reload_[k - 1];
  reloads_.resize(by_need_.size());
  for (auto v = by_need_.rbegin(); v != by_need_.rend(); ++v)
    reloads_[--first_reload_[execution_.run_of[plan.choices[*v].trigger] + 1]] = *v;
  // Each end was brought down to its beginning: shift them back.
  first_reload_.erase(first_reload_.begin());
  first_reload_.push_back(static_cast<Index>(reloads_.size()));
}

void Timeline::start_copies() {
  const auto begin = [this](Engine& engine, std::vector<CopyTime>& times,
                            const Machine::Rate& rate) {
    const Value v = engine.queue[engine.head++];
    engine.begin(v, problem_.values[v].bytes, clock_, rate.alone);
    CopyTime& time = times[v];
    if (time.start != clock_) {
      time.cause = CopyTime::Cause::kEngine;
      time.before = engine.last;
    }
    time.start = clock_;
  };
  if (out_.idle() && out_.head < out_.queue.size()) {
    begin(out_, out_times_, machine_.out);
    host_ += problem_.values[out_.running].bytes;
    host_peak_ = std::max(host_peak_, host_);
  }
  // mutant: copies-source
  if (in_.idle() && in_.head < in_.queue.size() && out_at_[in_.queue[in_.head]] == Place::kDone) {
    begin(in_, in_times_, machine_.in);
    CopyTime& time = in_times_[in_.running];
    if (time.cause == CopyTime::Cause::kEngine && out_times_[in_.running].end == clock_)
      time.cause = CopyTime::Cause::kSource;
  }
  const bool both = !out_.idle() && !in_.idle();
  // mutant: copies-duplex
  out_.set_speed(clock_, both ? machine_.out.loaded : machine_.out.alone);
  in_.set_speed(clock_, both ? machine_.in.loaded : machine_.in.alone);
}

// Plays the next end of a copy; false where there is none up to `until`.
bool Timeline::step_engines(std::uint64_t until) {
  const std::uint64_t next =
      std::min(out_.idle() ? kForever : out_.end, in_.idle() ? kForever : in_.end);
  if (next == kForever || next > until) return false;
  clock_ = next;
  if (!out_.idle() && out_.end == next) {
    const Value v = out_.last = std::exchange(out_.running, kNobody);
    out_times_[v].end = next;
    out_at_[v] = Place::kDone;
    if (out_of_use_[v]) {
      live_ -= problem_.values[v].bytes;
      --leaving_;
    }
  }
  if (!in_.idle() && in_.end == next) {
    const Value v = in_.last = std::exchange(in_.running, kNobody);
    in_times_[v].end = next;
    in_at_[v] = Place::kDone;
    host_ -= problem_.values[v].bytes;
  }
  start_copies();
  return true;
}

void Timeline::advance(std::uint64_t until) {
  while (step_engines(until)) {
  }
  clock_ = std::max(clock_, until);
}

void Timeline::wait_for_reloads(Index run, std::uint64_t& now) {
  for (const Value v : problem_.operators[execution_.runs[run].op].reads) {
    if (run < problem_.border || execution_.fate[v] != Fate::kOffload) continue;
    while (in_at_[v] != Place::kDone) step_engines(kForever);
    if (in_times_[v].end <= now) continue;
    now = in_times_[v].end;
    runs_[run].cause = RunTime::Cause::kReload;
    runs_[run].awaited = v;
  }
}

// Waits until there is room for that much, and takes it.
void Timeline::take_room(Index run, Bytes wanted, std::uint64_t& now) {
  advance(now);
  // mutant: copies-room
  while (machine_.budget != 0 && live_ + wanted > machine_.budget && leaving_ != 0) {
    step_engines(kForever);
    now = clock_;
    runs_[run].cause = RunTime::Cause::kRoom;
    runs_[run].awaited = out_.last;
  }
  live_ += wanted;
  outcome_.device_peak = std::max(outcome_.device_peak, live_);
  if (machine_.budget != 0 && live_ > machine_.budget)
    outcome_.excess = std::max(outcome_.excess, live_ - machine_.budget);
}

// Of the reloads that an operator triggers: its own, which it reads itself, or the others.
Bytes Timeline::reload_bytes(Index run, bool own) const {
  Bytes bytes = 0;
  for (Index k = first_reload_[run]; k < first_reload_[run + 1]; ++k)
    if ((execution_.first_after[reloads_[k]] == run) == own)
      bytes += problem_.values[reloads_[k]].bytes;
  return bytes;
}

void Timeline::queue_reloads(Index run, bool own) {
  for (Index k = first_reload_[run]; k < first_reload_[run + 1]; ++k) {
    const Value v = reloads_[k];
    if ((execution_.first_after[v] == run) != own) continue;
    in_times_[v] = {.start = clock_, .end = 0, .cause = CopyTime::Cause::kOperator, .run = run};
    // Its own begin when the one before has ended, or when there is room.
    if (own && runs_[run].cause == RunTime::Cause::kRoom) {
      in_times_[v].cause = CopyTime::Cause::kRoom;
      in_times_[v].before = runs_[run].awaited;
    } else if (own) {
      in_times_[v].run = run - 1;
    }
    in_at_[v] = Place::kQueued;
    in_.queue.push_back(v);
  }
  start_copies();
}

void Timeline::wait_for_engine(const Engine& engine, Index run, std::uint64_t& now) {
  while (!engine.empty()) {
    step_engines(kForever);
    now = clock_;
    if (run >= runs_.size()) continue;
    runs_[run].cause = RunTime::Cause::kDrain;
    runs_[run].awaited = engine.last;
  }
}

void Timeline::queue_out(Index run, bool at_end, const std::vector<Value>& values) {
  const Index op = execution_.runs[run].op;
  for (const Value v : values) {
    if (execution_.fate[v] != Fate::kOffload || execution_.last_before[v] != run) continue;
    const bool behind = machine_.out_behind_reader || problem_.values[v].maker == op ||
                        problem_.values[v].written == op;
    if (behind != at_end) continue;
    out_times_[v] = {.start = clock_, .end = 0, .cause = CopyTime::Cause::kOperator, .run = run};
    out_at_[v] = Place::kQueued;
    out_.queue.push_back(v);
  }
}

void Timeline::end_uses(Index run) {
  const auto& [op, again] = execution_.runs[run];
  const auto end_use = [&](Value v) {
    const Bytes bytes = problem_.values[v].bytes;
    if (execution_.last_use[v] == run) {
      live_ -= bytes;
    } else if (execution_.last_before[v] == run && execution_.fate[v] != Fate::kKeep) {
      // mutant: copies-early
      out_of_use_[v] = execution_.fate[v] == Fate::kOffload;
      if (!out_of_use_[v] || out_at_[v] == Place::kDone)
        live_ -= bytes;
      else
        ++leaving_;
    }
  };
  for (const Value v : problem_.operators[op].reads) end_use(v);
  for (const Value v : problem_.operators[op].makes) {
    if (!again || execution_.fate[v] == Fate::kRecompute)
      end_use(v);
    else
      live_ -= problem_.values[v].bytes;  // there already, or not used any more: made for nothing
  }
}

Outcome Timeline::play(const OffloadPlan& plan) {
  execution_.expand(problem_, plan);
  order_reloads(plan);
  out_.clear();
  in_.clear();
  clock_ = 0;
  host_ = host_peak_ = 0;
  leaving_ = 0;
  outcome_ = {};
  const std::size_t values = problem_.values.size();
  runs_.assign(execution_.runs.size(), {});
  out_times_.resize(values);
  in_times_.resize(values);
  out_at_.assign(values, Place::kNever);
  in_at_.assign(values, Place::kNever);
  out_of_use_.assign(values, false);
  live_ = problem_.constant;
  for (Value v = 0; v < values; ++v)
    if (problem_.values[v].maker == kNobody && execution_.last_use[v] != kNobody)
      live_ += problem_.values[v].bytes;
  outcome_.device_peak = live_;
  if (machine_.budget != 0 && live_ > machine_.budget) outcome_.excess = live_ - machine_.budget;

  std::uint64_t now = 0;
  for (Index run = 0; run < runs_.size(); ++run) {
    const auto& [op, again] = execution_.runs[run];
    const Problem::OperatorOf& one = problem_.operators[op];
    RunTime& time = runs_[run];
    const std::uint64_t before = run == 0 ? 0 : runs_[run - 1].end;
    if (plan.waits == OffloadPlan::Waits::kBorder && run == problem_.border)
      wait_for_engine(out_, run, now);
    if (const Bytes own = reload_bytes(run, true); own != 0) {
      take_room(run, own, now);
      queue_reloads(run, true);
    }
    wait_for_reloads(run, now);
    Bytes wanted = one.workspace + reload_bytes(run, false);
    for (const Value v : one.makes) wanted += problem_.values[v].bytes;
    take_room(run, wanted, now);
    time.op = op;
    time.again = again;
    time.start = now;
    time.end = now + one.ns;
    time.stall = now - before;
    time.live = live_;
    outcome_.stall_ns += time.stall;
    if (!again && op < problem_.border) queue_out(run, false, one.reads);
    queue_reloads(run, false);
    now = time.end;
    advance(now);
    // mutant: copies-workspace
    live_ -= one.workspace;
    if (!again && op < problem_.border) {
      queue_out(run, true, one.reads);
      queue_out(run, true, one.makes);
    }
    end_uses(run);
    start_copies();
    if (plan.waits != OffloadPlan::Waits::kEachOperator) continue;
    wait_for_engine(out_, run + 1, now);
    wait_for_engine(in_, run + 1, now);
  }
  outcome_.ns = runs_.empty() ? 0 : runs_.back().end;
  return outcome_;
}

std::vector<ChainLink> Timeline::chain() const {
  using Kind = ChainLink::Kind;
  std::vector<ChainLink> links;
  if (runs_.empty()) return links;
  ChainLink link{Kind::kRun, static_cast<Index>(runs_.size() - 1)};
  while (true) {
    links.push_back(link);
    if (link.kind == Kind::kRun) {
      const RunTime& run = runs_[link.index];
      if (run.cause == RunTime::Cause::kPrevious) {
        if (link.index == 0) break;
        --link.index;
        continue;
      }
      const bool reload =
          in_at_[run.awaited] == Place::kDone && in_times_[run.awaited].end == run.start;
      link = {reload ? Kind::kIn : Kind::kOut, run.awaited};
      continue;
    }
    const CopyTime& copy = (link.kind == Kind::kIn ? in_times_ : out_times_)[link.index];
    if (copy.cause == CopyTime::Cause::kOperator)
      link = {Kind::kRun, copy.run};
    else if (copy.cause == CopyTime::Cause::kSource)
      link.kind = Kind::kOut;
    else if (copy.cause == CopyTime::Cause::kRoom)
      link = {Kind::kOut, copy.before};
    else
      link.index = copy.before;
  }
  std::reverse(links.begin(), links.end());
  return links;
}

double Timeline::overlap() const {
  std::vector<std::uint64_t> busy(runs_.size() + 1, 0);  // before each run
  for (std::size_t k = 0; k < runs_.size(); ++k)
    busy[k + 1] = busy[k] + runs_[k].end - runs_[k].start;
  const auto busy_until = [&](std::uint64_t at) {
    const auto next =
        std::upper_bound(runs_.begin(), runs_.end(), at,
                         [](std::uint64_t time, const RunTime& run) { return time < run.start; });
    if (next == runs_.begin()) return std::uint64_t{0};
    const auto k = static_cast<std::size_t>(next - runs_.begin()) - 1;
    return busy[k] + std::min(at, runs_[k].end) - runs_[k].start;
  };
  std::uint64_t copied = 0, beside = 0;
  const auto add = [&](const CopyTime& copy) {
    copied += copy.end - copy.start;
    beside += busy_until(copy.end) - busy_until(copy.start);
  };
  for (Value v = 0; v < out_at_.size(); ++v) {
    if (out_at_[v] == Place::kDone) add(out_times_[v]);
    if (in_at_[v] == Place::kDone) add(in_times_[v]);
  }
  return copied == 0 ? 1 : static_cast<double>(beside) / static_cast<double>(copied);
}

Report Timeline::report() const {
  Report report;
  report.outcome = outcome_;
  report.runs = runs_;
  report.out.resize(out_at_.size());
  report.in.resize(in_at_.size());
  for (Value v = 0; v < out_at_.size(); ++v) {
    if (out_at_[v] == Place::kDone) {
      report.out[v] = out_times_[v];
      report.out_bytes += problem_.values[v].bytes;
    }
    if (in_at_[v] == Place::kDone) {
      report.in[v] = in_times_[v];
      report.in_bytes += problem_.values[v].bytes;
    }
  }
  for (const RunTime& run : runs_) {
    report.compute_ns += run.end - run.start;
    if (run.again) report.again_ns += run.end - run.start;
  }
  report.host_peak = host_peak_;
  report.overlap = overlap();
  report.chain = chain();
  return report;
}

}  // namespace berth::schedule::offload
