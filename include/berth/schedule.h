#pragma once

#include <berth/bytes.h>
#include <berth/graph.h>
#include <berth/referee.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Planners of steps. order_operators() finds an order of operators that needs little memory, with a
// proven bound. plan_step() plans a graph within a memory budget: order, recomputation,
// alternatives, offload to the host, and the addresses of all buffers.
namespace berth {

inline constexpr std::uint32_t kNoMaker = ~std::uint32_t{0};

// A result of one operator that others read. It is alive from its maker's run to its last reader's,
// both included. Without readers it is alive while its maker runs, without a maker from the
// beginning on.
struct OrderValue {
  Bytes bytes = 0;
  std::uint32_t maker = kNoMaker;           // index of an operator
  std::vector<std::uint32_t> readers = {};  // of other operators; named twice counts once
};

// Operators to be ordered. A maker comes before its readers; `control` has further pairs. Several
// writes to the same bytes are one value: its maker is the first writer, and all later writers are
// readers. Control edges keep these writers, and the readers between them, in turn.
struct StepOperators {
  std::vector<Bytes> workspaces = {};  // one an operator: bytes that it needs while it runs
  std::vector<OrderValue> values = {};
  // Pairs of operators, (earlier, later).
  std::vector<std::pair<std::uint32_t, std::uint32_t>> control = {};
  Bytes resident = 0;  // alive all the time
};

struct OrderProgress {
  double seconds = 0;
  Bytes peak = 0;  // best so far
  Bytes bound = 0;
  std::string engine;  // that found it
};

// Options of every planner of a schedule.
struct PlannerOptions {
  std::string engine = "auto";     // a name that the planner lists
  double time_limit_seconds = 10;  // infinity: none
  // The most tries of a search, which each planner counts in its own way; 0: the time alone limits
  // it. With an iteration budget and no time limit the result depends on the seed alone.
  std::uint64_t iteration_budget = 0;
  std::uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;  // set by any thread: the best so far is returned
};

// Engines are those of order_engines(): "auto" runs them one after the other until the gap is 0.
// The iteration budget limits moves of annealing, executed sets of the exact search, and nodes of
// an integer program's tree, each by itself.
struct OrderOptions : PlannerOptions {
  std::function<void(const OrderProgress&)> progress = {};  // from the calling thread
  // A known order, or empty: the result is never worse.
  std::vector<std::uint32_t> given = {};
};

struct OrderResult {
  std::vector<std::uint32_t> order;  // operators, first to last
  Bytes peak = 0, bound = 0;         // no order's peak is below the bound
  Bytes given_peak = 0;              // of OrderOptions::given, else of the order by number
  bool proven_optimal = false;
  std::string engine;  // that found it
  double seconds = 0;
  std::uint64_t moves = 0, flows = 0, sets = 0;  // sets: by "olla" the nodes of its tree

  [[nodiscard]] double gap() const noexcept {
    return bound == 0 ? 0.0 : static_cast<double>(peak) / static_cast<double>(bound) - 1.0;
  }
};

// More operators are refused: their ancestors are a table of 128 MiB.
inline constexpr std::size_t kMostOrdered = std::size_t{1} << 15;

// Finds an order with a low peak, and a bound of the least peak. The peak is the most bytes alive
// while one operator runs, residents included. Always returns a legal order. It is never worse than
// the given one and the best constructive one that the time was enough for. Re-entrant. To find the
// least is NP-hard (register sufficiency, Garey & Johnson 1979, PO1); graphs of neural networks
// mostly end with proof.
//
// Throws Error(kUsage) that names the operator or value for an index out of range, a sum of sizes
// beyond kMaxBytes, and a cycle. Also for an unknown engine, a given order that is no order of the
// operators, and more than kMostOrdered operators.
[[nodiscard]] OrderResult order_operators(const StepOperators& operators,
                                          const OrderOptions& options = {});

// Names for OrderOptions::engine: "auto" first, then "given", "constructive", "descent", "anneal"
// and "exact". After use_olla() (<berth/schedule_ilp.h>) also "olla", for few operators.
[[nodiscard]] const std::vector<std::string>& order_engines();

}  // namespace berth

namespace berth::schedule {

// The arenas of a schedule, on the device and on the host, and a bound of their size.
struct Addresses {
  Bytes arena_bytes = 0;  // the highest end of all buffers that are placed; may exceed the capacity
  Bytes live_peak = 0;    // the most bytes of it alive at one time
  Bytes bound = 0;        // no placement needs less
  Bytes host_bytes = 0;   // of the host's arena; 0: nothing is offloaded
  Bytes host_peak = 0;    // the most bytes on the host at one time
  std::string engine;     // that found the device's arena
  double seconds = 0;

  [[nodiscard]] double gap() const noexcept {
    return bound == 0 ? 0.0 : static_cast<double>(arena_bytes) / static_cast<double>(bound) - 1.0;
  }
  [[nodiscard]] double fragmentation() const noexcept {
    return arena_bytes == 0
               ? 0.0
               : static_cast<double>(arena_bytes - live_peak) / static_cast<double>(arena_bytes);
  }
};

struct StepProgress {
  double seconds = 0;
  std::uint64_t ns = 0, ns_bound = 0;  // of the best step so far that fits; 0: none does yet
  Bytes peak = 0;
  std::string engine;  // that found it
};

// Engines are those of step_engines(). "auto" orders operators, recomputes and, where there are
// rates, offloads to the host. "order" does the first alone, "recompute" the second, "offload" the
// third; all start from the same orders. Each search has the whole budget of iterations.
//
// "release" keeps each value until its last use, in the recorded order. The others are planners of
// papers, for comparison, on the recorded order too; they are there once use_papers() was called
// (<berth/papers.h>, a library of its own). "chen", "checkmate", "knapsack" (of PyTorch's compiler)
// and "monet" recompute. "vdnn" and "dymem" offload, by rules without a budget: their plan fits or
// does not. "checkmate" needs use_checkmate() as well (<berth/schedule_ilp.h>).
struct StepOptions : PlannerOptions {
  Bytes budget = 0;  // of everything on the device, residents included
  // How fast the device copies, 1 to 10^15 bytes a second each way; nothing: it does not.
  std::optional<graph::CopyRates> rates = {};
  std::function<void(const StepProgress&)> progress = {};  // from the calling thread
  // True: the schedule gets addresses on the device, and on the host for offload. Its arena must
  // then fit the budget.
  bool addresses = false;
  // Known schedules of this graph: the result is never slower than one of them that fits.
  std::vector<graph::Schedule> given = {};
};

struct StepResult {
  std::optional<graph::Schedule> schedule;  // the fastest that fits; nothing: none was found
  std::optional<Addresses> addresses;       // of the schedule, if StepOptions::addresses is true
  graph::Verdict verdict;                   // the referee's account of the schedule
  // Peak and time of the step as recorded, without recomputation, each operator by its fastest
  // alternative.
  Bytes base_peak = 0;
  std::uint64_t base_ns = 0;
  // Of the best order without recomputation, if the engine searches for one.
  std::optional<Bytes> order_peak;
  // No schedule fits less: the bytes that the largest operator needs. Without rates of copies also
  // the bytes that later operators need and that no operator can recompute.
  Bytes least_budget = 0;
  std::string largest;         // that operator
  std::uint64_t ns_bound = 0;  // no schedule is faster
  bool proven_optimal = false;
  std::string why_not;      // where there is no schedule
  Bytes missing_bytes = 0;  // by which the budget is below least_budget
  double seconds = 0;

  [[nodiscard]] double gap() const noexcept {
    return ns_bound == 0 ? 0.0
                         : static_cast<double>(verdict.ns) / static_cast<double>(ns_bound) - 1.0;
  }
};

// Plans a step within a memory budget so that it takes little time. The plan has the order of the
// operators, their alternatives, and which results to keep, recompute or offload. The
// referee has replayed each schedule that is returned. The search begins with an order that needs
// little memory. Recomputation has Chen et al. 2016 (arXiv:1604.06174) as its baseline, offload has
// vDNN (Rhu et al. 2016). To find the best of each is NP-hard.
//
// Re-entrant; runs on the calling thread alone. Throws Error(kInput) for a graph with a
// violation(), Error(kUsage) for an unknown engine and rates out of range. If no schedule fits,
// that is no error: why_not has the reason.
[[nodiscard]] StepResult plan_step(const graph::Graph& graph, const StepOptions& options);

// "auto" first, then "order", "recompute", "offload", and the others that StepOptions names.
[[nodiscard]] std::vector<std::string> step_engines();

// A schedule for each budget, least budget first. A larger budget may also use the schedules of the
// smaller ones, so more memory never costs time. The time limit holds for all budgets together.
[[nodiscard]] std::vector<StepResult> plan_budgets(const graph::Graph& graph,
                                                   const std::vector<Bytes>& budgets,
                                                   const StepOptions& options);

// The policy of step programs, `berth schedule` and dry runs: which plans they make.

// plan_step(), and a longer search if no schedule fits in its time. "auto" then searches five times
// as long. With rates it first searches as long for a schedule without offload, which has fewer
// choices. There is no longer search if the budget is below StepResult::least_budget.
[[nodiscard]] StepResult plan_within(const graph::Graph& graph, const StepOptions& options);

// The fastest plan within the budget that also offloads residents while no operator uses them.
// `movable` has a value for each storage: true if it may be offloaded. Several searches share the
// time; each leaves another part of the budget to the step's own values. A resident that is
// reloaded first begins and ends on the host. Throws Error(kUsage) without rates.
[[nodiscard]] StepResult plan_with_residents_away(const graph::Graph& graph,
                                                  const StepOptions& options,
                                                  const std::vector<bool>& movable);

// The fastest plan within the budget that is found with at most `host` bytes on the host at one
// time. It recomputes so much that no more than these are missing, and offloads the rest. That are
// values of the step, and the residents that `movable` names by storage, if it is not empty.
// StepOptions::given is not used. Throws Error(kUsage) without rates.
[[nodiscard]] StepResult plan_within_host(const graph::Graph& graph, const StepOptions& options,
                                          const std::vector<bool>& movable, Bytes host);

// A plan for a program whose residents may be on the host while no operator uses them: the faster
// one of plan_step() and, with rates, plan_with_residents_away(). If both find nothing, it is that
// of plan_within(). If that finds nothing either, the program itself has to find room where memory
// is out (spills), unless `outside` is empty. It is the most residents and inputs that one call
// takes. The step may then take all of the budget but these. The schedule counts residents as if
// they stayed, so its peak is above the budget. If a search finds nothing there, the step gets as
// much as an easy search needs, or the least memory that "auto" finds.
[[nodiscard]] StepResult plan_beside_spills(const graph::Graph& graph, const StepOptions& options,
                                            const std::vector<bool>& movable,
                                            std::optional<Bytes> outside);
// The most residents and inputs that one operator of the graph takes.
[[nodiscard]] Bytes most_from_outside(const graph::Graph& graph);

// The least memory in which nothing is recomputed or offloaded, each operator as recorded. With
// `faster_ways` the fastest alternatives that leave the peak as it is. Nothing where it was
// cancelled. StepOptions::budget, rates and engine are not used.
[[nodiscard]] std::optional<graph::Schedule> plan_unbudgeted(const graph::Graph& graph,
                                                             const StepOptions& options,
                                                             bool faster_ways);

// Finds schedules that need little memory for their time, by halving the range of budgets between
// the largest operator and the fastest schedule. Keeps what it has found, so that further questions
// cost less. StepOptions::budget is not used. The time limit is that of one question's searches:
// half of it for the fastest schedule, and half for each halving. There are at most six, or nine
// with residents that may be on the host.
class LeastMemory {
 public:
  // `graph` outlives it. With rates, residents may be on the host while no operator uses them, if
  // `movable` of their storage is true: plan_with_residents_away() continues the halving from
  // plan_step()'s schedule. Throws Error(kUsage) where `movable` is neither empty nor as long as
  // the storages.
  LeastMemory(const graph::Graph& graph, StepOptions options, std::vector<bool> movable = {});

  static constexpr std::uint64_t kAnyTime = ~std::uint64_t{0};
  // The fastest schedule, within any budget. Null where there was no time for any, or it was
  // cancelled. The result stays until the next question.
  [[nodiscard]] const StepResult* fastest();
  // The schedule with the least peak of those that take at most `most_ns`. If none is within it,
  // the fastest that was found. Null and valid as above.
  [[nodiscard]] const StepResult* find(std::uint64_t most_ns = kAnyTime);

 private:
  [[nodiscard]] const StepResult* best(std::uint64_t most_ns) const;
  // Halves the range from `low` to the best peak so often, by `plan(options)`.
  template <typename Plan>
  void halve(std::uint64_t most_ns, Bytes low, int times, const Plan& plan,
             std::vector<Bytes>& failed);

  const graph::Graph& graph_;
  StepOptions options_;
  std::vector<bool> movable_;      // empty: nothing is
  std::vector<StepResult> found_;  // the fastest first
  // Budgets that no schedule was found for; with residents on the host.
  std::vector<Bytes> failed_, failed_away_;
};

// The engine with this name. "olla" is a synonym of "order", "berth" of "auto"; any other name is
// returned as it is.
[[nodiscard]] std::string step_engine_of(const std::string& name);

// The reason why the engine cannot plan a step, in words; empty if it can. Copies need rates,
// recomputation needs a budget.
[[nodiscard]] std::string why_not(const std::string& engine, bool has_budget, bool has_rates);

}  // namespace berth::schedule
