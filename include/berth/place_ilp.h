#pragma once

namespace berth {

// Makes the engines `ilp` and `ilp_pyramid` of <berth/place.h> known to place_buffers(): placement
// as an integer program, solved by HiGHS. It is in a library of its own, berth::place_ilp, so that
// only programs that need a solver link one. Without this call these engines are an error that
// names it.
//
// HiGHS itself is loaded at the first integer program. Where it is missing, the error of
// place_buffers() names what to install. Any thread, any number of times.
void use_ilp();

}  // namespace berth
