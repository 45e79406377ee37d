#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/schedule/joint/working_set.h"

#include <berth/schedule.h>

#include <algorithm>
#include <utility>

namespace berth::schedule {
namespace {

constexpr int kHalvings = 6, kHalvingsAway = 3;

}  // namespace

LeastMemory::LeastMemory(const graph::Graph& graph, StepOptions options, std::vector<bool> movable)
    : graph_(graph), options_(std::move(options)), movable_(std::move(movable)) {
  BERTH_CHECK(movable_.empty() || movable_.size() == graph.storages.size(), kUsage,
              "movable names {} storages, the graph has {}", movable_.size(),
              graph.storages.size());
  options_.time_limit_seconds /= 2;
  if (!options_.rates) movable_.clear();
}

const StepResult* LeastMemory::best(std::uint64_t most_ns) const {
  const StepResult* best = &found_.front();
  for (const StepResult& one : found_)
    if (one.verdict.ns <= most_ns && one.verdict.peak < best->verdict.peak) best = &one;
  return best;
}

const StepResult* LeastMemory::fastest() {
  if (found_.empty()) {
    StepOptions planning = options_;
    planning.budget = kMaxBytes;
    StepResult fastest = plan_step(graph_, planning);
    if (!fastest.schedule) return nullptr;
    found_.push_back(std::move(fastest));
  }
  return &found_.front();
}

const StepResult* LeastMemory::find(std::uint64_t most_ns) {
  if (fastest() == nullptr) return nullptr;
  // What is known already narrows the range.
  Bytes low = found_.front().least_budget;
  for (const StepResult& one : found_)
    if (one.verdict.ns > most_ns) low = std::max(low, one.verdict.peak + 1);
  halve(
      most_ns, low, kHalvings,
      [&](const StepOptions& planning) { return plan_step(graph_, planning); }, failed_);
  if (!movable_.empty())
    halve(
        most_ns, least_budget(graph_, movable_).bytes, kHalvingsAway,
        [&](const StepOptions& planning) {
          return plan_with_residents_away(graph_, planning, movable_);
        },
        failed_away_);
  return best(most_ns);
}

template <typename Plan>
void LeastMemory::halve(std::uint64_t most_ns, Bytes low, int times, const Plan& plan,
                        std::vector<Bytes>& failed) {
  StepOptions planning = options_;
  for (const Bytes budget : failed) low = std::max(low, budget + 1);
  for (int n = 0; n < times; ++n) {
    if (options_.cancel != nullptr && *options_.cancel) return;
    const Bytes high = best(most_ns)->verdict.peak;
    if (low >= high) return;
    planning.budget = low + (high - low) / 2;
    planning.given = options_.given;  // to begin with
    for (const StepResult& one : found_) planning.given.push_back(*one.schedule);
    StepResult within = plan(planning);
    if (!within.schedule) failed.push_back(planning.budget);
    if (!within.schedule || within.verdict.ns > most_ns) low = planning.budget + 1;
    if (within.schedule) found_.push_back(std::move(within));
  }
}

}  // namespace berth::schedule
