#pragma once

namespace berth {

// Make engines known that are integer programs, solved by HiGHS. They live in a library of its own,
// berth::schedule_ilp, so that no program carries a solver that it does not ask for; without these
// calls the engines are errors that say so.
//
// HiGHS itself is loaded at the first program; where it is missing, the error says what to install.
// Any thread, any number of times.

// `olla`, to what orders operators: order as OLLA's integer program (Steiner et al. 2022).
void use_olla();

// `checkmate`, to what plans steps: Checkmate's program (Jain et al. 2020) with fractions allowed,
// rounded.
void use_checkmate();

}  // namespace berth
