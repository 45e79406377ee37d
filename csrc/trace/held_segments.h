#pragma once

#include "csrc/trace/trace.h"

#include <algorithm>
#include <variant>

namespace berth {

// The bytes that the run's own allocator holds from the device, by the segments of its trace. A
// recording may lack the reservation of a segment that it releases: then nothing is held. O(1) an
// entry.
struct HeldSegments {
  Bytes now = 0, peak = 0;
  bool any = false;  // whether the trace has segments

  void see(const trace::Entry& entry) {
    const auto* const segment = std::get_if<trace::Segment>(&entry.event);
    if (segment == nullptr) return;
    any = true;
    now = segment->reserve ? now + segment->bytes : now - std::min(now, segment->bytes);
    peak = std::max(peak, now);
  }
};

}  // namespace berth
