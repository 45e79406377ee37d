#pragma once

namespace berth::torch {

// In a dry run of so many steps (BERTH_STANDIN_STEPS) a step that the program marked itself has
// ended: after the last one the program ends, as exit(0) would end it; one in Python as sys.exit()
// would, in its main thread, soon. Elsewhere nothing. Steps of optimizers in Python are counted by
// `module_ranges`.
void count_marked_step() noexcept;

}  // namespace berth::torch
