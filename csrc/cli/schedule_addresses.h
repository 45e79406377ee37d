#pragma once

#include "csrc/cli/core/search_options.h"
#include "csrc/schedule/joint/addresses.h"

#include <atomic>
#include <string>

namespace berth::cli {

// Gives a schedule that is about to be written its addresses, by the leave of the referee: Error
// where he sees another arena. Shows its progress on a terminal. The engine of `search` is not for
// it, its limits and seed are.
schedule::Addresses add_addresses(const graph::Graph& graph, graph::Schedule& schedule,
                                  const SearchOptions& search, const std::atomic<bool>& cancel);

// Arena and fragmentation in words.
[[nodiscard]] std::string format_addresses(const schedule::Addresses& addresses);

}  // namespace berth::cli
