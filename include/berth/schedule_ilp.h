#pragma once

namespace berth {

// Make engines known that are integer programs, solved by HiGHS. They are in a library of its own,
// berth::schedule_ilp, so that only programs that need a solver link one. Without these calls the
// engines are errors that name them.
//
// HiGHS itself is loaded at the first program. Where it is missing, the error names what to
// install. Any thread, any number of times.

// `olla`, for order_operators(): order as OLLA's integer program (Steiner et al. 2022).
void use_olla();

// `checkmate`, for plan_step(): Checkmate's program (Jain et al. 2020), relaxed to fractions and
// rounded.
void use_checkmate();

}  // namespace berth
