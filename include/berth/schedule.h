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

// Planners of steps. The order of operators: who makes and reads which bytes in, an order that
// needs little memory and a proven bound out. A step within a budget: its graph in, what to run
// when, to keep, to make again and to copy out, with the addresses of all of it.
namespace berth {

inline constexpr std::uint32_t kNoMaker = ~std::uint32_t{0};

// What an operator makes and others read. Alive from its maker's run to its last reader's, both
// included; without readers while its maker runs; without a maker from the beginning to its last
// reader's run.
struct OrderValue {
  Bytes bytes = 0;
  std::uint32_t maker = kNoMaker;           // index of an operator
  std::vector<std::uint32_t> readers = {};  // of other operators; named twice counts once
};

// What is to be ordered. Values give the order of their makers and readers; `control` gives more.
// Several writes to the same bytes are one value, whose maker is the first and whose readers are
// all later writers, too; control edges keep these and the readers between them in turn.
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

// What every planner of a schedule takes.
struct PlannerOptions {
  std::string engine = "auto";     // a name that the planner lists
  double time_limit_seconds = 10;  // infinity: none
  // What a search tries, which each planner counts in its own way; 0: as much as there is time for.
  // With a budget and no time limit the result depends on the seed alone.
  std::uint64_t iteration_budget = 0;
  std::uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;  // set by any thread: the best so far is returned
};

// Engines are those of order_engines(): "auto" runs them one after the other until the gap is 0.
// The budget is one of moves of annealing, of executed sets of the exact search, and of nodes of an
// integer program's tree, each.
struct OrderOptions : PlannerOptions {
  std::function<void(const OrderProgress&)> progress = {};  // from the calling thread
  // An order that is there already, or empty: the result is never worse.
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

// Finds an order whose peak is low, with a bound that says how far from the least it can be. The
// peak is the most that is alive while one operator runs, residents included. Always returns a
// legal order, never worse than the given one and the best constructive one that the time was
// enough for. Re-entrant. To find the least is NP-hard (register sufficiency, Garey & Johnson 1979,
// PO1); graphs of neural networks mostly end with proof.
//
// Throws Error(kUsage) that names the operator or value for an index that is out of range, a sum of
// sizes beyond kMaxBytes, and a cycle; and for an unknown engine, a given order that is none, and
// more than kMostOrdered operators.
[[nodiscard]] OrderResult order_operators(const StepOperators& operators,
                                          const OrderOptions& options = {});

// Names for OrderOptions::engine: "auto" first, then "given", "constructive", "descent", "anneal",
// "exact" and "olla", which is there once use_olla() was called (<berth/schedule_ilp.h>), for few
// operators.
[[nodiscard]] const std::vector<std::string>& order_engines();

}  // namespace berth

namespace berth::schedule {

// Where the bytes of a schedule lie: arenas of the device and of the host, and what no placement
// is below.
struct Addresses {
  Bytes arena_bytes = 0;  // the highest end of all that is placed; may be above the capacity
  Bytes live_peak = 0;    // most that is alive of it at one time
  Bytes bound = 0;        // no placement needs less
  Bytes host_bytes = 0;   // of the host's arena: 0 where nothing is copied
  Bytes host_peak = 0;    // most that is on the host at one time
  std::string engine;     // that found the device's
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

// Engines are those of step_engines(): "auto" orders, keeps, makes again and, where there are
// rates, copies; "order" does the first alone, "retain" and "copies" one of the others, from the
// same orders. The budget of iterations is one of each search.
//
// What others do with the step in the order in which it was recorded, to compare: "release" keeps
// all until its last use; "chen", "checkmate", "knapsack" (of PyTorch's compiler) and "monet" make
// again; "vdnn" and "dymem" copy, by rules that know no budget: their plan fits or does not.
// "checkmate" is there once use_checkmate() was called (<berth/schedule_ilp.h>).
struct StepOptions : PlannerOptions {
  Bytes budget = 0;  // of everything on the device, residents included
  // How fast the device copies, 1 to 10^15 bytes a second each way; nothing: it does not.
  std::optional<graph::CopyRates> rates = {};
  std::function<void(const StepProgress&)> progress = {};  // from the calling thread
  // Whether the schedule gets addresses, and its arena must fit the budget, too; what is copied has
  // its place on the host then.
  bool addresses = false;
  // Schedules of this graph that are there already: the result is never slower than one that fits.
  std::vector<graph::Schedule> given = {};
};

struct StepResult {
  std::optional<graph::Schedule> schedule;  // the fastest that fits; nothing: none was found
  std::optional<Addresses> addresses;       // of it, where they were wanted
  graph::Verdict verdict;                   // the referee's, of that one
  // The step as it was recorded, nothing made again, each operator in its fastest way.
  Bytes base_peak = 0;
  std::uint64_t base_ns = 0;
  std::optional<Bytes>
      order_peak;              // of the best order, nothing made again, where one was looked for
  Bytes least_budget = 0;      // nothing fits less: what the largest operator needs
  std::string largest;         // that operator
  std::uint64_t ns_bound = 0;  // no schedule is faster
  bool proven_optimal = false;
  std::string why_not;      // where there is no schedule
  Bytes missing_bytes = 0;  // where the budget is below least_budget: by how much
  double seconds = 0;

  [[nodiscard]] double gap() const noexcept {
    return ns_bound == 0 ? 0.0
                         : static_cast<double>(verdict.ns) / static_cast<double>(ns_bound) - 1.0;
  }
};

// Plans a step within a budget: in which order to run its operators, what to keep, to make again
// and to copy out and back, in which way to run each, so that it takes little time. What it returns
// the referee has replayed. An order that needs little memory comes first, then what to keep (Chen
// et al. 2016, arXiv:1604.06174, is the baseline of that) and what to copy (vDNN: Rhu et al. 2016);
// the best of each is NP-hard to find.
//
// Re-entrant; runs on the calling thread alone. Throws Error(kInput) for what is no graph,
// Error(kUsage) for an unknown engine and rates out of range. That nothing fits is an answer:
// why_not.
[[nodiscard]] StepResult plan_step(const graph::Graph& graph, const StepOptions& options);

// "auto" first, then "order", "retain", "copies", and the others that StepOptions names.
[[nodiscard]] const std::vector<std::string>& step_engines();

// A schedule for each budget, least first: each is also offered to the larger ones, so that more
// memory never costs time. The time limit is that of all together.
[[nodiscard]] std::vector<StepResult> plan_budgets(const graph::Graph& graph,
                                                   const std::vector<Bytes>& budgets,
                                                   const StepOptions& options);

}  // namespace berth::schedule
