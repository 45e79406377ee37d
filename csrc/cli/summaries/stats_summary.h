#pragma once

#include "csrc/cli/core/output.h"

#include <berth/stats.h>

#include <string>
#include <vector>

namespace berth::cli {

// What is said of a run's statistics (BERTH_STATS, berth::torch::stats()): how its requests were
// served, which of them missed and why, and what to do about it.
//
// The statistics stay the JSON object that Stats::to_json() makes: counters that a newer berth
// wrote are shown under their names, what is not there counts as 0.
class StatsSummary {
 public:
  explicit StatsSummary(const Stats& stats);
  // Throws Error(kInput) for a file that holds no statistics.
  [[nodiscard]] static StatsSummary read(const std::string& path);

  // The statistics, with `kind`, `sentences` and `advice`.
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] std::string to_text(const std::string& name) const;

  // How the requests were served, a line each: "as planned   35,100 (97.5 %)".
  [[nodiscard]] std::string outcomes() const;
  // A sentence for each of the most frequent misses, most frequent first.
  [[nodiscard]] std::vector<std::string> sentences() const;
  // What to do, where there is something.
  [[nodiscard]] std::vector<std::string> advice() const;
  // Both, as they are printed; empty where there is neither.
  [[nodiscard]] std::string reasons() const;

 private:
  explicit StatsSummary(Json stats) : stats_(std::move(stats)) {}
  [[nodiscard]] std::uint64_t count(const char* name) const;
  [[nodiscard]] std::uint64_t missed() const;
  [[nodiscard]] std::vector<Json> misses() const;

  Json stats_;
};

}  // namespace berth::cli
