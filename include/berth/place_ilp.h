#pragma once

namespace berth {

// Makes the engines `ilp` and `ilp_pyramid` of <berth/place.h> known to place_buffers(): placement
// as an integer program, solved by HiGHS. It lives in a library of its own, berth::place_ilp, so
// that no program carries a solver that it does not ask for; without this call these engines are
// an error that says so.
//
// HiGHS itself is loaded at the first integer program; where it is missing, place_buffers() says
// what to install. Any thread, any number of times.
void use_ilp();

}  // namespace berth
