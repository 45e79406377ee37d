#include "csrc/cli/core/search_options.h"

#include <fmt/format.h>

namespace berth::cli {

void add_search_options(CLI::App& app, SearchOptions& options,
                        const std::vector<std::string>& engines, const std::string& found) {
  app.add_option(
         "--time-limit", options.time_limit,
         "Seconds for the whole command; the best result so far then counts [10, or none with "
         "--iterations]")
      ->check(is_time_limit)
      ->type_name("SECONDS");
  app.add_option("--iterations", options.iterations,
                 fmt::format("Tries of the search; with it equal seeds give equal {}s", found))
      ->check(is_whole_number)
      ->type_name("N");
  app.add_option("--seed", options.seed, "Seed of the search")
      ->check(is_whole_number)
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--engine", options.engine,
                 fmt::format("The search: {}", fmt::join(engines, ", ")))
      ->check(CLI::IsMember(engines).description(""))
      ->type_name("NAME")
      ->capture_default_str();
}

}  // namespace berth::cli
