#pragma once

namespace berth {

// Adds the planners of papers as engines of schedule::plan_step(). They are in a library of their
// own, berth::papers, and take the step's order as it is. Any thread, any number of times.
//
// "chen" is Chen et al. 2016, "monet" Shah et al. 2021, "vdnn" Rhu et al. 2016, "dymem" Dymem.
// "knapsack" is the partitioner of PyTorch's compiler. "checkmate" is Jain et al. 2020: it also
// needs use_checkmate() (<berth/schedule_ilp.h>).
void use_papers();

}  // namespace berth
