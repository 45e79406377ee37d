#include "csrc/runtime/learning.h"

#include "csrc/runtime/plan_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace berth {
namespace {

// A plan is learned again when this share of a step's requests missed, in so many steps in a row.
constexpr double kMissShare = 0.01;
constexpr unsigned kMissingSteps = 3;
// A step of which more missed is another than the plan has.
constexpr double kLittleShare = 0.1;
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
// A bucket grows so often at once; then after 2, 4, 8, .. steps, until none was needed for a while.
constexpr unsigned kFreeGrowths = 4;
constexpr std::uint64_t kFewGrowths = 256;
// Steps in which a plan of the folder is found, if there is one.
constexpr std::uint64_t kFindingSteps = 8;
// No plan is set aside where the limit leaves less than this part of what lives beside that.
constexpr Bytes kPartForTrials = 16;

}  // namespace

Learning::Learning(Options options, Arena& arena, PageStore& store, Stats& counters)
    : options_(std::move(options)),
      arena_(arena),
      store_(store),
      counters_(counters),
      planner_(options_.planner) {}

// --- Searches -----------------------------------------------------------------------------------

void Learning::start() noexcept {
  learner_.start();
  note_errands();
}

void Learning::look_among(std::vector<PlanFolder::Found> plans) {
  finder_ = std::make_shared<PlanFinder>(std::move(plans));
  note_errands();
}

// Planned in place, it is there when this returns.
void Learning::search(Search search) {
  learner_.searching(search.kind);
  ++counters_.plan_searches;
  search.limits = {most_arena_bytes(counters_.live_peak), options_.room_for_arena(false)};
  if (!planner_.in_place()) {
    search_ = std::move(search);
    return;
  }
  Learner::Excerpt excerpt;
  learner_.excerpt(search.from, excerpt);
  planner_.submit(std::move(excerpt), search.kind, search.limits, std::move(search.growth));
}

void Learning::run_waiting_errands(SpinMutex& mutex) noexcept {
  RunRecord waste;  // frees its chunks when the lock is free
  std::shared_ptr<PlanFinder> finder;
  std::unique_lock lock(mutex, std::defer_lock);
  try {
    lock.lock();
    if (finder_ && finder_->over()) {
      finder = std::move(finder_);
    } else if (may_read()) {
      finder = finder_;
      reading_ = true;  // and so what it found stays as it is
      lock.unlock();
      planner_.read(*finder->found());
      lock.lock();
    }
    std::optional<Search> search = std::exchange(search_, std::nullopt);
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
      planner_.submit(std::move(excerpt), search->kind, search->limits, std::move(search->growth));
      lock.lock();
    }
    // Its thread is there already: that takes no time.
    if (const auto keep = std::exchange(to_keep_, std::nullopt))
      *keep ? planner_.keep(*keep) : planner_.withdraw();
  } catch (const std::exception&) {  // no memory, no thread
    if (!lock.owns_lock()) lock.lock();
    ++counters_.plan_failures;
    learner_.in_vain();
    if (std::exchange(reading_, false)) finder->stop();
  }
  note_errands();
}

// Whether steps are not marked, or not any more.
bool Learning::unmarked(std::uint64_t requests) const noexcept {
  return marks_ == 0 ||
         requests - requests_at_mark_ > kUnmarkedRequests + kUnmarkedSteps * longest_step_;
}

void Learning::step_ended(LaneKey lane, std::uint64_t requests, Notes& notes) {
  const std::uint64_t made = requests - std::exchange(requests_at_mark_, requests);
  if (marks_++ != 0) longest_step_ = std::max(longest_step_, made);
  if (looks()) finder_->mark();
  watch_finder(requests, notes);
  end_window(requests, notes);
  if (learner_.listens()) {
    const std::optional<Learner::Find> find = learner_.mark(lane, fit_);
    if (find && planner_idle()) search({find->from, find->search});
  }
  if (growth_after_ > 0) --growth_after_;
  if (options_.learns && arena_.wants_growth() && planner_idle() && !given_ && growth_after_ == 0) {
    // Steps that grow and grow (a cache, a batch) are not planned anew at each.
    growths_ = marks_ - grown_at_ > kFewGrowths ? 0 : growths_ + 1;
    grown_at_ = marks_;
    growth_after_ = growths_ <= kFreeGrowths
                        ? 0
                        : std::uint64_t{1} << std::min(growths_ - kFreeGrowths, kMostDoublings);
    search({learner_.record().end(), Learner::Search::kKinds, arena_.take_growth()});
  }
  // Which step of the plan's ended, how many requests it made may tell.
  if (planner_.ready() && !trial_.away() && adopt(notes)) arena_.note_requests(lane, made);
  watch_searches(requests, notes);
  note_errands();
}

bool Learning::other_steps_come() {
  if (!options_.learns || given_) return false;
  search_.reset();
  planner_.forget();
  learner_.begin_anew();
  refused_ = {};
  end_trial();
  cycle_ = false;
  missing_steps_ = relearns_ = looks_ = growths_ = 0;
  relearn_after_ = look_after_ = growth_after_ = 0;
  note_errands();
  return true;
}

void Learning::missed(std::uint64_t requests, Notes& notes) {
  if (!options_.learns && !given_ && !refused_.plan && !finder_) return;
  watch_finder(requests, notes);
  const bool no_marks = unmarked(requests);
  if (learner_.worth_searching() && (no_marks || !learner_.marks_may_help()) && planner_idle())
    search({learner_.record().begin(), Learner::Search::kByPeriod});
  if (no_marks) {
    if (planner_.ready() && !trial_.away()) adopt(notes);
    const std::uint64_t window = given_ ? kRequestsPerGivenWindow : kRequestsPerWindow;
    if (requests - window_requests_ >= std::max(window, 2 * arena_.slot_count()))
      end_window(requests, notes);
  }
  watch_searches(requests, notes);
  note_errands();
}

// --- Plans --------------------------------------------------------------------------------------

// Switches to the plan that the planner made. Blocks still alive stay where they are.
bool Learning::adopt(Notes& notes) {
  const std::optional<Planner::Result> result = planner_.take();
  if (!result) return false;
  if (result->read) {
    return adopt_read(result->plan, notes);
  }
  if (!result->plan) {
    learner_.in_vain();
    return false;
  }
  return serve_learned(result->plan, result->kinds, result->cycle, notes);
}

bool Learning::serve_learned(const std::shared_ptr<const PlanLookup>& plan,
                             std::span<const KnownKind> kinds, bool cycle, Notes& notes) {
  learner_.plan_taken(kinds, cycle);
  if (!serve_beside_pool(plan, notes)) return false;
  learner_.plan_serves();
  cycle_ = cycle;
  looks_ = 0;
  ++counters_.plans_learned;
  given_ = false;
  if (finder_) finder_->stop();
  return true;
}

void Learning::serve_foretold(const Foretold& foretold, Notes& notes) {
  (void)serve_learned(foretold.plan, foretold.kinds, false, notes);
}

// Serves the plan that the planner read from the folder, if it could.
bool Learning::adopt_read(std::shared_ptr<const PlanLookup> plan, Notes& notes) {
  reading_ = false;
  if (!looks()) return false;
  if (!plan) {
    finder_->refuse_found();
    return false;
  }
  (void)options_.make_room(*plan);  // it serves wherever its arena can be had
  if (!serve_given(std::move(plan), notes)) return false;
  ++counters_.plans_found;
  return true;
}

bool Learning::serve(const std::shared_ptr<const PlanLookup>& plan, Notes& notes) {
  const Status status = arena_.activate(plan, Arena::Pages::kAsUsed);
  if (!status.ok()) {
    refused(
        plan, [&] { return store_.describe(status); }, notes);
    return false;
  }
  if (refused_.plan != plan) refused_ = {};
  end_trial();
  missing_steps_ = 0;
  return true;
}

// The same for a plan of steps that the pool has served: it must not cost memory. Where blocks that
// cross the mark keep a smaller arena, the pool serves one step, so that they end.
bool Learning::serve_beside_pool(const std::shared_ptr<const PlanLookup>& plan, Notes& notes) {
  using Room = Options::Room;
  const std::shared_ptr<const PlanLookup> former = std::exchange(refused_.former, nullptr);
  const Room room = options_.make_room(*plan);
  if (room == Room::kMade) return serve(plan, notes);
  ++counters_.plans_declined;
  note_refused(plan);
  if (former) {
    // mutant: plain-former
    serve_former(former);
    drain_after_ = kRelearnAfter << std::min(drains_++, kMostDoublings);
  } else if (room == Room::kInUse && arena_.plan() && drain_after_ == 0) {
    refused_.former = arena_.plan();
    refused_.wait = 1;
    // mutant: plain-emptied
    arena_.deactivate();
  }
  return false;
}

// It fits where it was.
void Learning::serve_former(const std::shared_ptr<const PlanLookup>& plan) {
  (void)arena_.activate(plan, Arena::Pages::kAsUsed);
}

bool Learning::serve_given(std::shared_ptr<const PlanLookup> plan, Notes& notes) {
  if (!serve(plan, notes)) return false;
  learner_.stop();
  plan_given();
  return true;
}

void Learning::plan_given() noexcept {
  end_trial();
  given_ = true;
  said_misfit_ = false;
  misfits_ = 0;
  if (finder_) finder_->stop();
}

void Learning::note_refused(const std::shared_ptr<const PlanLookup>& plan) noexcept {
  if (refused_.plan != plan) {
    refused_ = {.plan = plan};
    // Other steps may have another arena.
    // mutant: learn-refused
    if (options_.learns && !arena_.plan()) learner_.watch();
  }
  refused_.wait = kTryAgainAfter << std::min(refused_.times++, kMostDoublings);
  note_errands();
}

// Asks again for an arena that was refused, where it may be there now.
void Learning::try_again(Notes& notes) {
  if (auto plan = arena_.take_given_up(); plan && !arena_.plan()) refused_ = {.plan = plan};
  if (!refused_.plan || arena_.plan() == refused_.plan) return;
  if (refused_.wait > 0) --refused_.wait;
  if (refused_.wait > 0) return;
  if (options_.has_room(*refused_.plan)) {
    serve_beside_pool(std::shared_ptr(refused_.plan), notes);
  } else {
    refused_.wait = kTryAgainAfter << std::min(refused_.times++, kMostDoublings);
  }
}

// A plan that was given before anything lived, or whose run has grown since, is judged as one that
// is learned: before memory runs out.
bool Learning::give_way_to_limit() {
  const std::shared_ptr<const PlanLookup> plan = arena_.plan();
  // mutant: room-kept
  if (!may_need_less(*plan) || plan->plan().arena_bytes <= options_.room_for_arena(true))
    return false;
  end_trial();
  arena_.deactivate();
  ++counters_.plans_declined;
  note_refused(plan);
  return true;
}

// --- How well the plan fits ---------------------------------------------------------------------

void Learning::end_window(std::uint64_t requests, Notes& notes) {
  const std::uint64_t made = requests - window_requests_;
  const std::uint64_t hits = counters_.hits + counters_.hits_bucket - window_hits_;
  const std::uint64_t all_astray =
      counters_.misses_size + counters_.misses_busy + counters_.misses_lane + counters_.lent;
  const std::uint64_t astray = all_astray - window_astray_;
  window_requests_ = requests;
  window_hits_ = counters_.hits + counters_.hits_bucket;
  window_astray_ = all_astray;
  if (made == 0) return;
  if (hits != 0 && arena_.plan() == refused_.plan) refused_ = {};
  if (drain_after_ > 0) --drain_after_;
  compare_with_pool(hits != 0, notes);
  if (trial_.away()) return;
  // mutant: learn-try-again
  try_again(notes);
  if (!arena_.plan() || give_way_to_limit()) return;
  // A change of steps is seen from the misses now.
  if (hits != 0 && learner_.listens() && !learner_.records()) learner_.stop();
  watch_fit(made, hits, notes);
  if (options_.learns) watch_misses(made, hits, astray);
}

// A plan that changes more of what is mapped than the pool alone is set aside. Near a limit it
// stays: there it finds room where the pool alone does not.
void Learning::compare_with_pool(bool hit, Notes& notes) {
  const DeviceProperties& properties = store_.properties();
  if (!properties.aliases || !properties.asynchronous) return;
  using Turn = Trial::Turn;
  const bool near_limit = store_.is_near_limit(counters_.live_peak, kPartForTrials);
  // mutant: trial-near-limit
  const bool may_turn = planner_idle() && !looks() && !near_limit;
  const Trial::Step step{.changes = store_.changes(),
                         .plan = arena_.plan().get(),
                         .hit = hit,
                         .handles = arena_.committed() / store_.handle_bytes(),
                         .may_turn = may_turn};
  switch (trial_.step_ended(step)) {
    case Turn::kGoOn:
      return;
    case Turn::kToPool:
      ++counters_.plans_set_aside;
      set_aside_ = arena_.plan();
      learner_.stop();
      arena_.deactivate();
      (void)arena_.give_back();  // else the pool would stitch its pages for ever
      keep_no_worse(nullptr);
      return;
    case Turn::kToPlan:
      if (const auto plan = std::exchange(set_aside_, nullptr);
          plan && serve_beside_pool(plan, notes))
        keep_no_worse(plan);
      return;
  }
}

// Who reads a plan later begins with it: one that is set aside does not stay on disk.
void Learning::keep_no_worse(std::shared_ptr<const PlanLookup> plan) noexcept {
  if (!given_ && planner_free()) to_keep_ = std::move(plan);
}

// Another plan serves than the one that was set aside, or none is learned.
void Learning::end_trial() noexcept {
  if (trial_.away()) trial_ = Trial(store_.changes());
  set_aside_.reset();
}

// Looks for other kinds of steps when one missed, and learns again when the plan no longer
// describes those that it has.
void Learning::watch_misses(std::uint64_t requests, std::uint64_t hits, std::uint64_t astray) {
  if (relearn_after_ > 0) --relearn_after_;
  if (look_after_ > 0) --look_after_;
  const double few = std::max(2.0, kMissShare * static_cast<double>(requests));
  const bool astray_at_all = static_cast<double>(astray) > few;
  const auto unplanned = static_cast<double>(arena_.unplanned_slots());
  const double missed = static_cast<double>(requests) - static_cast<double>(hits) - unplanned;
  fit_ = missed > kLittleShare * static_cast<double>(requests) ? Learner::Fit::kLittle
         : astray_at_all                                       ? Learner::Fit::kMost
                                                               : Learner::Fit::kAll;
  missing_steps_ = missed > few ? missing_steps_ + 1 : 0;
  if (missing_steps_ >= kMissingSteps && relearn_after_ == 0 && !learner_.records()) {
    missing_steps_ = 0;
    relearn_after_ = kRelearnAfter << std::min(relearns_++, kMostDoublings);
    learner_.start();
    // mutant: kinds-turns
  } else if (astray_at_all && cycle_ && planner_idle()) {
    // Its steps come in other turns: each of them is known.
    cycle_ = false;
    learner_.look_for_kinds();
    search({learner_.record().end(), Learner::Search::kKinds});
  } else if (astray_at_all && !learner_.records() && look_after_ == 0 && marks_ != 0) {
    look_after_ = looks_ == 0 ? 0 : kRelearnAfter << std::min(looks_ - 1, kMostDoublings);
    // mutant: kinds-looked-for
    ++looks_;
    learner_.look_for_kinds();
  }
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
          fmt::format("first, request {} of the step: {} came, the plan expects {}",
                      first->index + 1, format_bytes(first->came), format_bytes(first->expected));
    return fmt::format(
        "the plan served {} of the last {} requests ({} %), the program makes others: {}; record "
        "and plan this program again (`berth record`, `berth plan`), or let it learn "
        "(BERTH_MODE=learn)",
        misfit_hits_, misfit_requests_, 100 * misfit_hits_ / misfit_requests_, difference);
  });
}

// Says so, once, where none of a folder's plans is this program's and it learns none.
void Learning::watch_finder(std::uint64_t requests, Notes& notes) {
  if (!looks() || reading_ || options_.learns || said_misfit_) return;
  if (marks_ < kFindingSteps && (marks_ != 0 || requests < kUnmarkedRequests)) return;
  said_misfit_ = true;
  notes.add("plan-misfit", [&] {
    return fmt::format(
        "none of {} plans of this program in '{}' begins as its steps do: let it learn there once "
        "(BERTH_MODE=learn), or record and plan it (`berth record`, `berth plan -o` the folder)",
        finder_->plan_count(), options_.planner.folder->path());
  });
}

// Says so, once, where nothing of a long run repeats, or what repeats is too long.
void Learning::watch_searches(std::uint64_t requests, Notes& notes) {
  if (learner_.too_long() != 0 && !said_too_long_ && counters_.plans_learned == 0) {
    said_too_long_ = true;
    notes.add("step-too-long", [&] {
      return fmt::format(
          "steps repeat after {} requests. That is too long to be learned: a step may have {} "
          "requests, frees and uses on other streams. The pool serves all requests. Mark smaller "
          "parts of the step (berth::mark_step() after each micro-batch), or record and plan the "
          "program (`berth record`, `berth plan`)",
          learner_.too_long(), Learner::kLongestStep);
    });
  }
  if (!learner_.finds_no_period() || said_no_period_ || counters_.plans_learned != 0) return;
  said_no_period_ = true;
  notes.add("no-period", [&] {
    return fmt::format(
        "found no step that repeats in {} requests and {} marked steps. The pool serves all "
        "requests, and searches become rare. Mark the end of each round of the loop "
        "(berth::mark_step()), and pad or group inputs to fewer shapes. A step of more than {} "
        "requests and frees is too long to be found",
        requests, marks_, Learner::kLongestStep);
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
