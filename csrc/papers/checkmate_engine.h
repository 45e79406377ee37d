#pragma once

#include "csrc/schedule/recomputation/model.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

// The door to Checkmate's linear program, which is a library of its own (csrc/papers/oracle): who
// links that calls use_checkmate(), and nobody else carries the solver.
namespace berth::schedule {

struct CheckmateOptions {
  double seconds = 60;  // of the solver, for each program
  // Operators and values times blocks of stages: where there are more, more stages share a block.
  std::size_t most_cells = 12'000;
};

struct CheckmateResult {
  std::size_t blocks = 0, stages = 0;  // as many of the first as of the second: nothing was joined
  std::size_t columns = 0, rows = 0;
  unsigned programs = 0, solved = 0;  // the others ran out of time or have no solution
};

// Checkmate's approximation (Jain et al. 2020, section 5.1), the named baseline: its integer
// program with fractions allowed, then two-phase rounding. Values of which more than half is kept
// are kept; what must run for that follows by rule. As there, the program gets less than the budget
// so that what rounding adds finds room: 10 %, and 0, 20 and 30 %. Each plan goes to `visit`, which
// prices it: it may be over the budget.
//
// The program is theirs for the stage form: R (runs in a stage), S (kept when it begins), FREE with
// their single row a pair, U (memory after a run), with one stage for each operator of the backward
// part and one for the whole forward part, which runs once; workspaces are counted. Where that is
// too large, consecutive stages share R and S: what one of them makes is there until the last. The
// smallest values, 0.5 % of the budget together, are always kept.
struct CheckmateEngine {
  // Why it cannot be asked here: what is missing and how to get it. Nothing where it can.
  const std::optional<std::string>& (*unavailable)();
  // For problems by the rules kExact. Throws Error(kUsage) where it is unavailable.
  CheckmateResult (*plans)(const StageProblem& problem, const CheckmateOptions& options,
                           const std::function<void(const Recomputation&)>& visit);
};

// From now on the engine `checkmate` is this, which stays for ever. Any thread, any number of
// times.
void set_checkmate_engine(const CheckmateEngine& engine) noexcept;

// The one that was set, else one whose unavailable() says how to get it.
[[nodiscard]] const CheckmateEngine& checkmate_engine() noexcept;

}  // namespace berth::schedule
