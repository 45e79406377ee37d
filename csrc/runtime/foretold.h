#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/runtime/seen_kinds.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace berth {

// What one kind of step asks of an allocator between two marks, in order, on one lane.
struct StepRequests {
  struct Event {
    Bytes bytes = 0;            // of a request; 0: a free
    std::uint32_t request = 0;  // whose block is freed, by the number of the request in its step
    bool of_last = false;       // the step before made that request
  };
  std::vector<Event> events;
};

// A plan of steps that are known before the run makes them, as those of a schedule are.
struct Foretold {
  std::shared_ptr<const PlanLookup> plan;
  std::vector<KnownKind> kinds;  // that it has
};

// Plans steps of these kinds. What a step leaves behind and no other step frees is the pool's.
// `program` and `alignment` are the allocator's. Null where no plan fits that holds little more
// than lives. Takes O(events), and `seconds` for the search. Throws std::bad_alloc, Error(kUsage).
[[nodiscard]] std::shared_ptr<const Foretold> foretell(std::span<const StepRequests> kinds,
                                                       const trace::Program& program,
                                                       Bytes alignment, double seconds);

}  // namespace berth
