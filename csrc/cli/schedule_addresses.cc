#include "csrc/cli/schedule_addresses.h"

#include "csrc/cli/core/output.h"
#include "csrc/core/check.h"
#include "csrc/schedule/joint/flatten.h"

#include <fmt/format.h>

namespace berth::cli {

schedule::Addresses add_addresses(const graph::Graph& graph, graph::Schedule& schedule,
                                  const SearchOptions& search, const std::atomic<bool>& cancel) {
  ProgressLine line;
  schedule::AddressOptions options;
  options.seed = search.seed;
  options.iteration_budget = search.iterations;
  options.time_limit_seconds = search.seconds_left(options.time_limit_seconds);
  options.cancel = &cancel;
  if (line.shown())
    options.progress = [&line](const PlaceProgress& now) {
      line.show(fmt::format("placing: arena {}, bound {}, {:.1f} s",
                            format_bytes(now.high_water_mark), format_bytes(now.lower_bound),
                            now.seconds));
    };
  schedule::Addresses addresses = schedule::place_flattened(graph, schedule, options);
  const graph::Verdict verdict = graph::replay(graph, schedule);
  BERTH_CHECK(verdict.violation.empty() && verdict.arena == addresses.arena_bytes, kUsage,
              "berth has a fault: it does not write its schedule. The referee reports an arena of "
              "{} bytes and '{}', the planner {} bytes",
              verdict.arena, verdict.violation, addresses.arena_bytes);
  return addresses;
}

std::string format_addresses(const schedule::Addresses& addresses) {
  return fmt::format("{}, fragmentation {}", format_exactly(addresses.arena_bytes),
                     format_percent(addresses.fragmentation()));
}

}  // namespace berth::cli
