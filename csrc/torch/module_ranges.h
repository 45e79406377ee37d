#pragma once

namespace berth::torch {

// Asks Python's interpreter, where this process has one with torch in it, to put a range around
// each call of a module's forward, named by its place in the model ("layers.3.mlp"). Once for the
// process, for its life; the interpreter's main thread does it, soon. Until then each call asks
// again, a bounded number of times. Never waits for the interpreter. Costs 5 us a call of a module
// with Python's hooks. Inside of compiled code there are no ranges.
void name_modules() noexcept;

}  // namespace berth::torch
