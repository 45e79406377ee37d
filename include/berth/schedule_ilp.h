#pragma once

namespace berth {

// Makes the engine `olla` known to what orders operators: order as OLLA's integer program (Steiner
// et al. 2022), solved by HiGHS. It lives in a library of its own, berth::schedule_ilp, so that no
// program carries a solver that it does not ask for; without this call the engine is an error that
// says so.
//
// HiGHS itself is loaded at the first integer program; where it is missing, the error says what to
// install. Any thread, any number of times.
void use_olla();

}  // namespace berth
