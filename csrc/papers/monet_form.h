#pragma once

#include "csrc/schedule/recomputation/from_graph.h"

#include <vector>

namespace berth::schedule {

// A recorded step as MONeT sees it (Shah et al. 2021; rules kMonet), the named baseline: one result
// an operator, local sets rebuilt from reads, what the closing operator reads counted beside what
// is kept. Any search over it is a search of MONeT's plans; what they come to in truth is said by
// the exact form, and by the referee.
//
// Results of one operator are one value; where the bytes of some are written over and others are
// not, the others are a further result that runs with it, as masks are in MONeT.
struct MonetForm {
  StageProblem problem;
  std::vector<std::vector<StageValue>> members;  // by value of it: values of the exact form
};

[[nodiscard]] MonetForm monet_form(const StageProblem& exact);

// The same plan in the exact form: what is kept until its last use and no longer.
[[nodiscard]] Recomputation exact_plan(const StageProblem& exact, const MonetForm& form,
                                       const Recomputation& plan);

}  // namespace berth::schedule
