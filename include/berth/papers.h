#pragma once

namespace berth {

// Adds the planners of papers, and the forms of graphs that their authors published.
//
// Planners become engines of schedule::plan_step(), and take the step's order as it is. The library
// is berth::papers. Any thread, any number of times.
//
// "chen" is Chen et al. 2016, "monet" Shah et al. 2021, "vdnn" Rhu et al. 2016, "dymem" Dymem.
// "knapsack" is the partitioner of PyTorch's compiler. "checkmate" is Jain et al. 2020: it also
// needs use_checkmate() (<berth/schedule_ilp.h>).
//
// read_graph() then reads graphs of dnn-partitioning, logs of DTR, MONeT, Moccasin and PipeDream.
void use_papers();

}  // namespace berth
