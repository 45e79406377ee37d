#pragma once

namespace berth::torch {

// Asks Python's interpreter, where this process has one with torch in it, to put a range around
// each call of a module's forward, named by its place in the model ("layers.3.mlp"), and to tell
// after each step of an optimizer which blocks are its parameters, gradients and state. Once for
// the process, for its life; the interpreter's main thread does it, soon. Until then each call asks
// again, a bounded number of times. Never waits for the interpreter. Costs 5 us a call of a module
// with Python's hooks, and 1 us a parameter and step. Inside of compiled code there are no ranges.
//
// In a dry run (BERTH_STANDIN_STEPS) it ends the program after so many steps, too.
void name_modules() noexcept;

}  // namespace berth::torch
