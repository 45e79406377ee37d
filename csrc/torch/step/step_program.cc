#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/core/follower.h"
#include "csrc/core/table_memory.h"
#include "csrc/runtime/settings.h"
#include "csrc/schedule/use_papers.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/shared/program.h"
#include "csrc/torch/step/attempts.h"
#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/captures.h"
#include "csrc/torch/step/data_shapes.h"
#include "csrc/torch/step/elapsed.h"
#include "csrc/torch/step/ghost.h"
#include "csrc/torch/step/libraries.h"
#include "csrc/torch/step/number_checks.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/other_threads.h"
#include "csrc/torch/step/planning_thread.h"
#include "csrc/torch/step/profilers.h"
#include "csrc/torch/step/program.h"
#include "csrc/torch/step/recorder.h"
#include "csrc/torch/step/roofline_times.h"
#include "csrc/torch/step/scheduling.h"
#include "csrc/torch/step/shortfall.h"
#include "csrc/torch/step/spills.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/tensors.h"
#include "csrc/torch/step/varying_steps.h"
#include "csrc/torch/step/written_step.h"

#include <berth/config.h>
#include <berth/graph.h>
#include <berth/referee.h>
#include <berth/schedule.h>
#include <berth/step_program.h>
#include <berth/warnings.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <deque>
#include <exception>
#include <list>
#include <optional>
#include <unordered_set>
#include <utility>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace berth::torch {

namespace {

using namespace step;

constexpr std::uint32_t kMostTold = 4;     // steps whose spills are reported
constexpr std::size_t kMostRefusals = 64;  // reasons that are reported, each once

// Records that wait for their like: whole ones, and those of which only a hash is kept, so that the
// next one is kept whole before others are.
constexpr std::size_t kMaxCandidates = 16, kMaxHashes = 4096;
constexpr std::string_view kNoneAlike = "no two steps were the same yet: ";
// Steps of which no schedule ran one, after which the program is told why.
constexpr std::size_t kToldUnlike = 16;
// Whether a graph is being captured that the schedule must not be in.
bool must_not_be_captured(const Scheduled& scheduled) {
  if (!scheduled.draws_again) return false;
  c10::Device asked = c10::kCPU;
  for (const RecordedStorage& one : scheduled.program.storages) {
    if (one.device.is_cpu() || one.device == asked) continue;
    asked = one.device;
    if (is_captured(asked)) return true;
  }
  return false;
}

// Whether this thread computes as a new one would: nobody has set how it rounds, or that numbers
// near zero are zero.
bool computes_as_any() {
#if defined(__SSE__)
  constexpr unsigned kNearZero = 0x8040;
  if ((_mm_getcsr() & kNearZero) != 0) return false;
#endif
  return std::fegetround() == FE_TONEAREST;
}

// Between steps operators run as they are, on tensors that may be on the host.
class BetweenSteps final : public OperatorListener {
 public:
  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) override {
    const Passes how = passes(last_of(*stack, op.schema().arguments().size()));
    const OperatorFacts& facts = facts_of(op);
    if (facts.random || std::count(facts.writes.begin(), facts.writes.end(), true) > 0) ++effects_;
    const auto run = how == Passes::kForOthers ? run_in_python : run_kernel_told;
    run(op, keys, stack);
  }
  [[nodiscard]] std::uint64_t point() override { return effects_; }
  [[nodiscard]] bool had_effects(std::uint64_t since) override { return effects_ != since; }

 private:
  std::atomic<std::uint64_t> effects_{0};
};

}  // namespace

class StepProgram::State {
 public:
  explicit State(const StepProgramOptions& options)
      : options_(options), may_wait_(options.plan_wait_seconds) {
    BERTH_CHECK(options.plan_wait_seconds >= 0, kUsage,
                "plan_wait_seconds is {}; a number of seconds from 0 on is wanted",
                options.plan_wait_seconds);
    BERTH_CHECK(options.memory_share >= 0 && options.memory_share <= 1, kUsage,
                "memory_share is {}; a number above 0 and at most 1 is wanted",
                options.memory_share);
    BERTH_CHECK(options.time_budget <= 1000, kUsage,
                "time_budget is {}; a share of at most 1000 is wanted", options.time_budget);
    const int budgets = (options.memory_budget > 0 ? 1 : 0) + (options.memory_share > 0 ? 1 : 0) +
                        (options.time_budget >= 0 ? 1 : 0);
    BERTH_CHECK(budgets <= 1, kUsage,
                "{} budgets are given, of bytes, of a share and of time; at most one is wanted",
                budgets);
    BERTH_CHECK(options.max_programs > 0, kUsage, "max_programs is 0; at least 1 is wanted");
    if (options.host_memory > 0) allow_spills(options.host_memory);
    if (as_written()) return;
    Tap::prepare();
    if (options.other_threads) OtherThreads::see();
    sees_threads_ = options.other_threads;
    use_papers_where_built();
    if (const std::string why = why_not(scheduling()); !why.empty())
      throw Error(ErrorKind::kUsage, why);
    const Config config = Config::from_environment();
    looks_at_bytes_ = config.check == CheckLevel::kFull;
    plan_time_limit_ = config.plan_time_limit_seconds;
    const std::string& file = options.schedule.empty() ? config.schedule : options.schedule;
    if (!config.algorithms.empty())
      algorithms_ = expand_file_name(config.algorithms, this_program(config, {}), -1);
    if (!file.empty())
      given_ = graph::read_schedule(expand_file_name(file, this_program(config, {}), -1));
  }

  void begin() {
    ++stats_.steps;
    spilled_before_ = Spills::get().figures().out;
    Spills::get().watch_shortage();
    expect_mark_by_program();
    if (as_written()) return;
    if (planning_.lost()) plan_lost();
    // Threads of a library in C++ are none that the program has told of.
    if (!sees_threads_ && libraries().start_threads) {
      OtherThreads::see();
      sees_threads_ = true;
    }
    if (is_profiled()) {
      refuse_once("a profiler is on, which sees what the program calls");
      return;
    }
    if (Tap::active()) {
      ++beside_;
      warn("step-program-busy",
           "a step was begun while another one runs in this process: it runs as it is");
      return;
    }
    // What was found out about operators since they were recorded counts from now on.
    if (std::exchange(found_out_, operators_found_out()) != operators_found_out())
      programs_.remove_if([](const Scheduled& one) { return !is_still_true(one.program); });
    if (!attempts_.due()) return;
    if (!programs_.empty()) {
      std::vector<const Scheduled*> others;
      for (const Scheduled& one : programs_)
        if (!must_not_be_captured(one)) others.push_back(&one);
      if (others.empty()) {
        warn(
            "step-captured",
            "a step that is captured into a graph runs as it is: its schedule draws numbers again, "
            "which replays would draw otherwise");
        return;
      }
      began_ = {};
      const bool follow = options_.second_thread && computes_as_any() && !Spills::on();
      memory_.reset();
      const Scheduled& first = *others.front();
      others.erase(others.begin());
      ghost_.emplace(first, std::move(others), follow ? &follower_ : nullptr, &memory_,
                     looks_at_bytes_, LeftBehind(last_candidate(), stats_.steps));
      tap_.emplace(*ghost_);
      elsewhere_.emplace(*ghost_);
    } else {
      recorder_.emplace(stats_.steps, last_candidate(), looks_at_bytes_);
      tap_.emplace(*recorder_);
      elsewhere_.emplace(*recorder_);
      range_.emplace();
    }
  }

  bool end(bool failed) {
    if (beside_ > 0) {
      --beside_;
      return false;
    }
    takes_over_ = false;
    foretold_.clear();
    Spills::get().end_step();
    try {
      end_step(failed);
      tell_of_spills();
      take_plans();
    } catch (...) {
      mark_step_by_program();
      throw;
    }
    if (takes_over_) expect_other_steps(foretold_);
    mark_step_by_program();
    return takes_over_;
  }

  void save_graph(const std::string& path, bool as_written) const {
    BERTH_CHECK(!programs_.empty(), kUsage,
                "no step is known yet: two that are the same must have run");
    const Program& program = programs_.front().program;
    graph::write_graph(path, as_written ? written_graph(program) : planning_graph(program));
  }

  [[nodiscard]] StepProgramStats stats() const {
    StepProgramStats stats = stats_;
    stats.programs = programs_.size();
    const Spills::Figures spills = Spills::get().figures();
    stats.spilled_out = spills.out;
    stats.spilled_in = spills.in;
    stats.spilled_peak = spills.host_peak;
    stats.spill_ns = spills.ns;
    stats.planning = static_cast<std::uint64_t>(std::count_if(
        programs_.begin(), programs_.end(), [](const Scheduled& one) { return one.ticket != 0; }));
    return stats;
  }

 private:
  void end_step(bool failed) {
    range_.reset();
    tap_.reset();
    if (recorder_) {
      elsewhere_.reset();
      StepRecord record = recorder_->take();
      recorder_.reset();
      if (!failed) learn(std::move(record));
    } else if (ghost_) {
      try {
        end_ghost(failed);
      } catch (...) {
        elsewhere_.reset();
        ghost_.reset();
        throw;
      }
      const bool scheduled = !failed && !ghost_->diverged();
      ghost_.reset();
      if (!scheduled) return;
      refine_front();
      shrink_front();
    }
  }

  // What a step that did not fit cost, for the first ones that spilled.
  void tell_of_spills() {
    const Spills::Figures now = Spills::get().figures();
    const Spills::Figures before = std::exchange(spills_, now);
    if (now.out == before.out || told_of_spills_ == kMostTold) return;
    ++told_of_spills_;
    report("step-spill",
           fmt::format("step {} did not fit the device: {} went to the host and {} came back, in "
                       "{:.2f} s",
                       stats_.steps, format_bytes(now.out - before.out),
                       format_bytes(now.in - before.in),
                       1e-9 * static_cast<double>(now.ns - before.ns)));
  }

  // The program that has just run, by the times that it took.
  void refine_front() {
    Scheduled& ran = programs_.front();
    if (ran.ticket != 0) return;
    try {
      std::unique_ptr<Refinement> before;
      std::optional<Program> program = measured_anew(ran, before);
      if (!program) return;
      ran.ticket =
          planning_.plan(*std::move(program), scheduling(ran), std::move(before), beside(&ran));
      wait_for_plans();
    } catch (const std::exception& error) {
      no_times(ran, error.what());
    }
  }

  // The program that has just run, within less where its steps spill.
  void shrink_front() {
    Scheduled& ran = programs_.front();
    if (options_.memory_budget == 0 || given_ || ran.ticket != 0 || ran.meanwhile ||
        !ran.budget_not_met.empty())
      return;
    if (!ran.shortfall.end_step(Spills::get().figures().out - spilled_before_,
                                Spills::get().shortage(), options_.memory_budget))
      return;
    try {
      ran.ticket = planning_.plan(ran.program, scheduling(ran), nullptr, beside(&ran));
      wait_for_plans();
    } catch (const std::exception&) {  // no memory for it: the schedule stays
      ran.shortfall.end_search(false);
    }
  }

  // It has a schedule that is none the worse.
  static void no_times(Scheduled& ran, const std::string& why) {
    ran.refinement.reset();
    warn("step-times",
         fmt::format("a step's costs are those of its record, not of its schedule: {}", why));
  }

  // So long the loop may wait for plans, in all.
  void wait_for_plans() {
    const Elapsed waited;
    planning_.wait(may_wait_);
    may_wait_ = std::max(0.0, may_wait_ - 1e-9 * static_cast<double>(waited.ns()));
  }

  // What has been planned since the last step.
  void take_plans() {
    for (PlanningThread::Planned& one : planning_.take()) {
      const auto of = std::find_if(programs_.begin(), programs_.end(), [&](const Scheduled& other) {
        return other.ticket == one.ticket;
      });
      if (of == programs_.end()) continue;  // known no more
      of->ticket = 0;
      if (!of->meanwhile)
        take_refined(*of, one);
      else if (one.scheduled)
        take_first(*of, *std::move(one.scheduled));
      else
        // Its like are as little to be planned.
        // mutant: step-unplanned
        programs_.erase(of), refuse_once(one.error), attempts_.unplanned();
    }
  }

  // What the programs but this one ask of allocators.
  [[nodiscard]] std::vector<RequestsOn> beside(const Scheduled* program) const {
    std::vector<RequestsOn> result;
    for (const Scheduled& one : programs_)
      if (&one != program) result.insert(result.end(), one.requests.begin(), one.requests.end());
    return result;
  }

  void take_refined(Scheduled& ran, PlanningThread::Planned& found) {
    Shortfall shortfall = ran.shortfall;
    bool taken = false;
    if (shortfall.asked()) {
      taken = found.scheduled && found.scheduled->budget_not_met.empty();
      shortfall.end_search(taken);
      if (taken) ran = *std::move(found.scheduled);
    } else if (!found.scheduled) {
      no_times(ran, found.error);
    } else {
      taken = take_if_better(ran, *std::move(found.scheduled), scheduling(ran));
    }
    ran.shortfall = shortfall;
    if (!taken) return;
    ++stats_.refined;
    takes_over_ = true;
    foretold_ = ran.foretold;
  }

  void take_first(Scheduled& program, Scheduled made) {
    program = std::move(made);
    attempts_.succeeded();
    ++stats_.made;
    takes_over_ = true;
    foretold_ = program.foretold;
    const bool followed_by_other = std::any_of(
        programs_.begin(), programs_.end(),
        [](const Scheduled& one) { return !one.meanwhile && one.schedule_not_taken.empty(); });
    if (!program.schedule_not_taken.empty() && !followed_by_other)
      warn("step-schedule", fmt::format("a step is not run by the schedule that was given: {}",
                                        program.schedule_not_taken));
    if (program.budget_not_met.empty()) return;
    // Steps of other shapes, and plans of one, that need about as much are no news.
    if (program.predicted_peak <= told_not_met_ + told_not_met_ / 16) return;
    told_not_met_ = program.predicted_peak;
    warn("step-budget", fmt::format("a step runs without the memory budget that was set: {}",
                                    program.budget_not_met));
  }

  // This process was forked while the other one planned.
  void plan_lost() {
    for (Scheduled& one : programs_) {
      if (one.ticket == 0) continue;
      if (one.shortfall.asked()) one.shortfall.end_search(false);
      one.ticket =
          one.meanwhile ? planning_.plan(one.program, scheduling(), nullptr, beside(&one)) : 0;
    }
  }

  // To be compared with: nothing is recorded.
  [[nodiscard]] bool as_written() const { return options_.engine == "eager"; }
  [[nodiscard]] SchedulingOptions scheduling() const {
    return {.engine = schedule::step_engine_of(options_.engine),
            .budget = options_.memory_budget,
            .share = options_.memory_share,
            .more_time = options_.time_budget,
            .time_limit_seconds = plan_time_limit_,
            .copy_rate = offload_if_needed() ? 0 : options_.copy_rate,
            .offload_if_needed = offload_if_needed(),
            .host_memory = options_.host_memory,
            .other_bits = options_.other_bits,
            .algorithms = algorithms_,
            .given = given_ ? &*given_ : nullptr};
  }
  [[nodiscard]] bool offload_if_needed() const {
    return options_.copy_rate == StepProgramOptions::kOffloadIfNeeded;
  }
  // The same for a program that has run.
  [[nodiscard]] SchedulingOptions scheduling(const Scheduled& of) const {
    SchedulingOptions result = scheduling();
    result.budget = of.shortfall.budget(result.budget);
    return result;
  }

  [[nodiscard]] const StepRecord* last_candidate() const {
    return candidates_.empty() ? nullptr : &candidates_.back();
  }

  void end_ghost(bool failed) {
    if (failed)
      ghost_->fail();
    else
      ghost_->finish();
    elsewhere_.reset();
    if (failed) return;
    if (ghost_->recovered()) {
      ++stats_.recovered;
      warn("step-memory",
           "memory was exhausted in the schedule of a step: it was run again as it was recorded");
    }
    if (ghost_->diverged()) {
      ++stats_.diverged;
      stats_.last_divergence = ghost_->divergence();
      // A step that other threads joined in is no new one.
      if (!ghost_->called_elsewhere()) {
        StepRecord record = ghost_->take_record();
        record.step = stats_.steps;
        learn(std::move(record));
      } else {
        attempts_.failed();
      }
      return;
    }
    attempts_.succeeded();
    if (!candidates_.empty()) note_left(candidates_.back(), stats_.steps, ghost_->take_left());
    ++stats_.scheduled;
    stats_.step_ns = began_.ns();
    stats_.schedule_ns = ghost_->schedule_ns();
    stats_.ran_beside = ghost_->ran_beside();
    const Scheduled& ran = ghost_->scheduled();
    stats_.operators = ran.program.calls.size();
    stats_.predicted_peak = ran.predicted_peak;
    stats_.resident = ran.resident;
    stats_.recorded_peak = ran.recorded_peak;
    stats_.predicted_ns = ran.predicted_ns;
    stats_.recorded_ns = ran.recorded_ns;
    stats_.bound_ns = ran.bound_ns;
    stats_.recomputed = ran.recomputed;
    stats_.alternatives = ran.alternatives;
    stats_.chosen = ran.chosen;
    stats_.offloaded_bytes = ran.offloaded_bytes;
    stats_.host_peak = ran.host_peak;
    stats_.barriers = ran.barriers;
    stats_.barrier_operators = ran.barrier_operators;
    stats_.budget_not_met = ran.budget_not_met;
    stats_.schedule_not_taken = ran.schedule_not_taken;
    // The one that came last is the first to be tried.
    const auto current =
        std::find_if(programs_.begin(), programs_.end(),
                     [&](const Scheduled& one) { return &one == &ghost_->scheduled(); });
    programs_.splice(programs_.begin(), programs_, current);
  }

  void refuse(const std::string& why) {
    refuse_once(why);
    attempts_.refused();
  }

  void refuse_once(const std::string& why) {
    stats_.last_refusal = why;
    if (told_refusals_.size() < kMostRefusals && told_refusals_.insert(why).second)
      warn("step-refused",
           fmt::format("a step runs as it is, since berth cannot schedule it: {}", why));
    ++stats_.refused;
  }

  void tell_unlike(const std::string& why) {
    if (stats_.scheduled > 0 || ++waited_ != kToldUnlike) return;
    warn("step-unlike",
         programs_.empty()
             ? fmt::format("steps run as written, since no two of {} were the same: {}", waited_,
                           why)
             : fmt::format("steps run as written, since {} differed from all that berth knows: {}",
                           waited_, stats_.last_divergence));
  }

  void wait_for_its_like(StepRecord record) {
    std::string why;
    // Where programs are known, why the step left them says more.
    if (!candidates_.empty() && !same_calls(candidates_.back(), record, &why) &&
        stats_.scheduled == 0 && programs_.empty())
      stats_.last_divergence = fmt::format("{}{}", kNoneAlike, why);
    if (hashes_.size() == kMaxHashes) hashes_.clear();
    record.came_before = !hashes_.insert(hash_of(record)).second;
    tell_unlike(why);
    candidates_.push_back(std::move(record));
    if (candidates_.size() > kMaxCandidates) {
      const auto first_new = std::find_if(candidates_.begin(), candidates_.end(),
                                          [](const StepRecord& one) { return !one.came_before; });
      candidates_.erase(first_new == candidates_.end() ? candidates_.begin() : first_new);
    }
    attempts_.failed();
  }

  // A record of the step that this one is, if any: with the same calls, or with the same but for
  // shapes that data decide, which vary in it.
  std::optional<StepRecord> take_its_like(const StepRecord& record) {
    const auto take = [this](std::deque<StepRecord>::iterator one) {
      StepRecord taken = std::move(*one);
      candidates_.erase(one);
      return taken;
    };
    for (auto one = candidates_.begin(); one != candidates_.end(); ++one) {
      if (!same_calls(*one, record)) continue;
      StepRecord taken = take(one);
      if (taken.varying == 0) varying_.note_equal(taken);
      return taken;
    }
    if (auto joined = varying_.join(record, [this](const StepRecord& old) { forget(old); }))
      return joined;
    for (auto one = candidates_.begin(); one != candidates_.end(); ++one) {
      if (!let_shapes_vary(*one, record)) continue;
      varying_.add(*one);
      return take(one);
    }
    return std::nullopt;
  }

  // Programs of a record that has become another one.
  void forget(const StepRecord& old) {
    programs_.remove_if([&](const Scheduled& one) {
      const bool known = is_program_of(one.program, old);
      if (known && one.ticket != 0) planning_.forget(one.ticket);
      return known;
    });
  }

  void learn(StepRecord record) {
    if (!candidates_.empty()) note_left(candidates_.back(), record.step, record.left);
    if (!record.refusal.empty()) {
      refuse(record.refusal);
      return;
    }
    std::optional<StepRecord> first = take_its_like(record);
    if (!first) {
      wait_for_its_like(std::move(record));
      return;
    }
    if (stats_.last_divergence.starts_with(kNoneAlike)) stats_.last_divergence.clear();
    // One that set no generator knows too little of steps that do. One whose numbers are of other
    // kinds stays: steps of both may come.
    programs_.remove_if([&](const Scheduled& one) {
      return has_calls_of(one.program, record) &&
             std::equal(record.calls.begin(), record.calls.end(), one.program.calls.begin(),
                        same_kinds_of_numbers) &&
             std::equal(record.storages.begin(), record.storages.end(),
                        one.program.storages.begin(), one.program.storages.end(), same_storage);
    });
    try {
      Program program = make_program(*std::move(first), record);
      time_by_roofline(program);
      find_ways(program, scheduling());
      programs_.push_front(schedule_meanwhile(program, scheduling()));
      programs_.front().meanwhile = true;
      programs_.front().ticket =
          planning_.plan(std::move(program), scheduling(), nullptr, beside(&programs_.front()));
    } catch (const std::exception& error) {  // the step that was run is none the worse
      refuse(error.what());
      return;
    }
    takes_over_ = true;
    wait_for_plans();
    if (programs_.size() > options_.max_programs) programs_.pop_back();
  }

  StepProgramOptions options_;
  std::optional<graph::Schedule> given_;
  std::string algorithms_;                              // the file of what was measured of them
  bool looks_at_bytes_ = false, sees_threads_ = false;  // the first: while steps are recorded
  StepProgramStats stats_;
  Spills::Figures spills_ = Spills::get().figures();  // behind the last step
  Bytes spilled_before_ = 0;                          // this step
  std::uint32_t told_of_spills_ = 0;
  Bytes told_not_met_ = 0;  // the largest peak of a step beyond the budget that was told
  double may_wait_, plan_time_limit_ = 0;  // for plans, and of a search: seconds
  bool takes_over_ = false;                // another schedule than before, behind this step
  std::vector<ForetoldOn> foretold_;       // of that schedule
  std::list<Scheduled> programs_;          // the one that came last first
  std::deque<StepRecord> candidates_;
  VaryingSteps varying_;                      // of programs in which data decide shapes
  std::unordered_set<std::uint64_t> hashes_;  // of all that waited
  std::size_t waited_ = 0;                    // steps for their like, before a schedule ran one
  std::uint64_t found_out_ = look_at_operators_anew();
  std::uint32_t beside_ = 0;  // steps that were begun beside another one, and have not ended
  Attempts attempts_;
  std::unordered_set<std::string> told_refusals_;
  Follower follower_;
  TableMemory memory_;  // of the ghost
  std::optional<Recorder> recorder_;
  std::optional<Ghost> ghost_;
  std::optional<Tap> tap_;
  std::optional<OtherThreads> elsewhere_;
  std::optional<WrittenStep> range_;
  Elapsed began_;
  PlanningThread planning_;  // reads what stands above
};

StepProgram::StepProgram(const StepProgramOptions& options)
    : state_(std::make_unique<State>(options)) {}
StepProgram::~StepProgram() = default;
StepProgram::StepProgram(StepProgram&&) noexcept = default;
StepProgram& StepProgram::operator=(StepProgram&&) noexcept = default;

StepProgramStats StepProgram::stats() const { return state_->stats(); }

void read_bytes(const at::Tensor& tensor) { ask_for_bytes(kReadBytes, tensor); }
void share_bytes(const at::Tensor& tensor) { ask_for_bytes(kShareBytes, tensor); }

void allow_spills(std::uint64_t host_memory) {
  BERTH_CHECK(host_memory > 0, kUsage, "host_memory is 0; a number of bytes is wanted");
  static auto* const between = new BetweenSteps;  // told to the end of the process
  OtherThreads::see();
  Spills::get().allow(host_memory);
  Tap::stay(*between);
}

std::uint64_t known_to_spills(int device) {
  const auto number = static_cast<c10::DeviceIndex>(device);
  return Spills::get().known(device < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, number));
}

void watch_threads() { OtherThreads::see(); }
void watch_thread() noexcept { OtherThreads::see_composites(); }

void pure(std::string_view name) {
  BERTH_CHECK(name.find("::") != std::string_view::npos, kUsage,
              "'{}' is declared pure; the name of an operator is wanted, such as my::op", name);
  declare_pure(name);
}

void StepProgram::save_graph(const std::string& path, bool as_written) const {
  state_->save_graph(path, as_written);
}

void StepProgram::begin() { state_->begin(); }
bool StepProgram::end(bool failed) { return state_->end(failed); }

StepProgram::Step::Step(StepProgram& program)
    : program_(&program), exceptions_(std::uncaught_exceptions()) {
  program.begin();
}

StepProgram::Step::~Step() noexcept(false) {
  (void)program_->end(std::uncaught_exceptions() > exceptions_);
}

}  // namespace berth::torch
