#include "csrc/runtime/learning.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace berth {
namespace {

// A plan is learned again when this share of a step's requests missed, in so many steps in a row.
constexpr double kMissShare = 0.01;
constexpr unsigned kMissingSteps = 3;
// A given plan that serves less than this share of a step, in so many steps in a row, is not this
// program's.
constexpr double kFitShare = 0.5;
constexpr unsigned kMisfitSteps = 3;
// Without marks, so many requests stand for a step; and fewer where a plan may not fit.
constexpr std::uint64_t kRequestsPerWindow = 4096, kRequestsPerGivenWindow = 1024;
// Marks come no more when so many requests came without one, and several times the longest step.
constexpr std::uint64_t kUnmarkedRequests = 16384, kUnmarkedSteps = 8;
// Steps to wait before what failed is tried again, doubled each time.
constexpr std::uint64_t kRelearnAfter = 8, kTryAgainAfter = 4;
constexpr unsigned kMostDoublings = 10;

}  // namespace

Learning::Learning(Options options, Arena& arena, Device& device, Stats& counters)
    : options_(std::move(options)),
      arena_(arena),
      device_(device),
      counters_(counters),
      planner_(options_.planner) {}

// --- Searches -----------------------------------------------------------------------------------

void Learning::start() noexcept {
  learner_.start();
  note_errands();
}

// Planned in place, it is there when this returns.
void Learning::search(Search search) {
  learner_.searching(search.kind);
  ++counters_.plan_searches;
  if (!planner_.in_place()) {
    search_ = search;
    return;
  }
  Learner::Excerpt excerpt;
  learner_.excerpt(search.from, excerpt);
  planner_.submit(std::move(excerpt), search.kind);
}

void Learning::run_waiting_errands(SpinMutex& mutex) noexcept {
  RunRecord waste;  // frees its chunks when the lock is free
  std::unique_lock lock(mutex, std::defer_lock);
  try {
    lock.lock();
    const std::optional<Search> search = std::exchange(search_, std::nullopt);
    if (learner_.has_waste()) waste = learner_.take_waste();
    while (learner_.wants_chunk()) {
      lock.unlock();
      std::shared_ptr<RunRecord::Chunk> chunk = RunRecord::make_chunk();
      lock.lock();
      if (chunk == nullptr) break;
      learner_.supply(chunk);
    }
    if (search) {
      lock.unlock();
      Learner::Excerpt excerpt;
      lock.lock();
      learner_.excerpt(search->from, excerpt);
      lock.unlock();
      planner_.submit(std::move(excerpt), search->kind);
      lock.lock();
    }
  } catch (const std::exception&) {  // no memory, no thread
    if (!lock.owns_lock()) lock.lock();
    ++counters_.plan_failures;
    learner_.in_vain();
  }
  note_errands();
}

// Whether steps are not marked, or not any more.
bool Learning::unmarked(std::uint64_t requests) const noexcept {
  return marks_ == 0 ||
         requests - requests_at_mark_ > kUnmarkedRequests + kUnmarkedSteps * longest_step_;
}

void Learning::step_ended(LaneKey lane, std::uint64_t requests, Notes& notes) {
  if (marks_++ != 0) longest_step_ = std::max(longest_step_, requests - requests_at_mark_);
  requests_at_mark_ = requests;
  end_window(requests, notes);
  if (learner_.listens()) {
    const std::optional<std::uint64_t> from = learner_.mark(lane);
    if (from && planner_idle()) search({*from, Learner::Search::kAtMarks});
  }
  if (planner_.ready()) adopt(notes);
  note_errands();
}

void Learning::missed(std::uint64_t requests, Notes& notes) {
  if (!options_.learns && !given_ && !refused_.plan) return;
  const bool no_marks = unmarked(requests);
  if (learner_.worth_searching() && (no_marks || !learner_.marks_may_help()) && planner_idle())
    search({learner_.record().begin(), Learner::Search::kByPeriod});
  if (no_marks) {
    if (planner_.ready()) adopt(notes);
    const std::uint64_t window = given_ ? kRequestsPerGivenWindow : kRequestsPerWindow;
    if (requests - window_requests_ >= std::max(window, 2 * arena_.slot_count()))
      end_window(requests, notes);
  }
  note_errands();
}

// --- Plans --------------------------------------------------------------------------------------

// Switches to the plan that the planner made. Blocks still alive stay where they are.
void Learning::adopt(Notes& notes) {
  const std::optional<Planner::Result> result = planner_.take();
  if (!result) return;
  if (!result->plan) {
    learner_.in_vain();
    return;
  }
  if (!serve(result->plan, notes)) return;
  ++counters_.plans_learned;
  given_ = false;
}

bool Learning::serve(const std::shared_ptr<const PlanLookup>& plan, Notes& notes) {
  const Status status = arena_.activate(plan, Arena::Commit::kAtStepStart);
  if (!status.ok()) {
    refused(
        plan, [&] { return device_.describe(status); }, notes);
    return false;
  }
  if (refused_.plan != plan) {
    refused_ = {};
    learner_.stop();
  }
  missing_steps_ = 0;
  return true;
}

bool Learning::serve_given(std::shared_ptr<const PlanLookup> plan, Notes& notes) {
  if (!serve(plan, notes)) return false;
  plan_given();
  return true;
}

void Learning::plan_given() noexcept {
  given_ = true;
  said_misfit_ = false;
  misfits_ = 0;
}

void Learning::note_refused(const std::shared_ptr<const PlanLookup>& plan) noexcept {
  ++counters_.plan_failures;
  if (refused_.plan != plan) {
    refused_ = {.plan = plan};
    // Other steps may have another arena.
    if (options_.learns && !arena_.plan()) learner_.watch();
  }
  refused_.wait = kTryAgainAfter << std::min(refused_.times++, kMostDoublings);
  note_errands();
}

// Asks again for an arena that was refused, where it may be there now.
void Learning::try_again(Notes& notes) {
  if (!refused_.plan || arena_.plan() == refused_.plan) return;
  if (refused_.wait > 0) --refused_.wait;
  if (refused_.wait > 0) return;
  if (options_.has_room(*refused_.plan)) {
    serve(std::shared_ptr(refused_.plan), notes);
  } else {
    refused_.wait = kTryAgainAfter << std::min(refused_.times++, kMostDoublings);
  }
}

// --- How well the plan fits ---------------------------------------------------------------------

void Learning::end_window(std::uint64_t requests, Notes& notes) {
  const std::uint64_t made = requests - window_requests_;
  const std::uint64_t hits = counters_.hits - window_hits_;
  window_requests_ = requests;
  window_hits_ = counters_.hits;
  if (made == 0) return;
  if (hits != 0 && arena_.plan() == refused_.plan) refused_ = {};
  try_again(notes);
  if (!arena_.plan()) return;
  // A change of steps is seen from the misses now.
  if (hits != 0 && learner_.listens() && !learner_.records()) learner_.stop();
  watch_fit(made, hits, notes);
  if (options_.learns) watch_misses(made, hits);
}

// Learns again when the plan no longer describes the steps.
void Learning::watch_misses(std::uint64_t requests, std::uint64_t hits) {
  if (learner_.records()) return;
  if (relearn_after_ > 0) {
    --relearn_after_;
    return;
  }
  const auto unplanned = static_cast<double>(arena_.unplanned_slots());
  const double missed = static_cast<double>(requests) - static_cast<double>(hits) - unplanned;
  missing_steps_ =
      missed > std::max(2.0, kMissShare * static_cast<double>(requests)) ? missing_steps_ + 1 : 0;
  if (missing_steps_ < kMissingSteps) return;
  missing_steps_ = 0;
  relearn_after_ = kRelearnAfter << std::min(relearns_++, kMostDoublings);
  learner_.start();
}

// Says so, once, where a plan that was given hardly serves the program.
void Learning::watch_fit(std::uint64_t requests, std::uint64_t hits, Notes& notes) {
  if (!given_ || said_misfit_ || options_.learns || marks_ == 1) return;  // 1: the program's start
  const std::uint64_t slots = arena_.slot_count();
  const double planned = static_cast<double>(slots - arena_.unplanned_slots()) /
                         static_cast<double>(std::max<std::uint64_t>(slots, 1));
  if (static_cast<double>(hits) >= kFitShare * planned * static_cast<double>(requests)) {
    misfits_ = 0;
    misfit_requests_ = misfit_hits_ = 0;
    return;
  }
  misfit_requests_ += requests;
  misfit_hits_ += hits;
  if (++misfits_ < kMisfitSteps) return;
  said_misfit_ = true;
  notes.add("plan-misfit", [&] {
    std::string difference = "its lanes never came to the plan's requests";
    if (const std::optional<Arena::Surprise>& first = arena_.first_surprise())
      difference =
          fmt::format("first, request {} of the step: {} came, the plan expects {}", first->index,
                      format_bytes(first->came), format_bytes(first->expected));
    return fmt::format(
        "the plan served {} of the last {} requests ({} %), the program makes others: {}; record "
        "and plan this program again (`berth record`, `berth plan`), or let it learn "
        "(BERTH_MODE=learn)",
        misfit_hits_, misfit_requests_, 100 * misfit_hits_ / misfit_requests_, difference);
  });
}

// --- End ----------------------------------------------------------------------------------------

void Learning::stop_planner() noexcept { planner_.stop(); }

void Learning::stop() noexcept {
  learner_.stop();
  search_.reset();
  note_errands();
}

}  // namespace berth
