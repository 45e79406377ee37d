#pragma once

namespace berth::torch {

// Listens to libtorch's user ranges (record_function, Python's optimizers) from now on, for the
// life of the process: the end of an "Optimizer.step#..." range is a step mark unless the program
// marks steps itself, and in mode record every range goes into the trace. Costs some tens of
// nanoseconds a range, and operators nothing. Once for all backends, also those that
// come later; a second call does nothing.
void observe_ranges();

}  // namespace berth::torch
