#include "csrc/replay/perturbation.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace berth::replay {
namespace {

using Kind = Operation::Kind;

// The first operation that may be changed: a plan must have been learned to be departed from.
std::size_t first_to_change(const Workload& workload) {
  constexpr std::uint64_t kLearning = 3;
  if (workload.steps <= kLearning) return workload.operations.size() / 2;
  std::uint64_t steps = 0;
  std::size_t i = 0;
  while (steps < kLearning) steps += workload.operations[i++].kind == Kind::kStep ? 1 : 0;
  return i;
}

}  // namespace

Workload perturb(const Workload& workload, const Perturbation& perturbation, std::uint64_t seed) {
  constexpr std::uint64_t kSoon = 16;  // operations that an inserted block lives
  Workload result = workload;
  result.operations.clear();
  std::mt19937_64 random(seed);
  const auto happens = [&](double rate) {
    // The draws of one kind are the same whatever the other rates are.
    const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
    return draw < rate;
  };

  std::vector<std::size_t> requests;  // positions
  std::vector<std::size_t> first_use(workload.block_count, workload.operations.size());
  for (std::size_t i = 0; i < workload.operations.size(); ++i) {
    const Operation& operation = workload.operations[i];
    if (operation.kind == Kind::kAllocate) requests.push_back(i);
    if (operation.kind == Kind::kFree || operation.kind == Kind::kUse)
      first_use[operation.block] = std::min(first_use[operation.block], i);
  }

  std::vector<Operation> operations = workload.operations;
  std::vector<bool> dropped(workload.block_count, false);
  std::vector<bool> inserts(operations.size(), false);
  const std::size_t first = first_to_change(workload);
  for (std::size_t k = 0; k < requests.size(); ++k) {
    if (requests[k] < first) continue;
    Operation& here = operations[requests[k]];
    const bool swap = happens(perturbation.swap);
    const bool drop = happens(perturbation.drop);
    const bool resize = happens(perturbation.resize);
    inserts[requests[k]] = happens(perturbation.insert);
    const double factor = 0.5 + 1.5 * static_cast<double>(random() >> 11) * 0x1p-53;
    if (swap && k + 1 < requests.size()) {
      Operation& next = operations[requests[k + 1]];
      // A block that is used before the next request cannot be asked for later.
      if (first_use[here.block] > requests[k + 1]) std::swap(here, next);
    }
    if (resize)
      here.size = std::max<Bytes>(1, static_cast<Bytes>(static_cast<double>(here.size) * factor));
    if (drop) dropped[here.block] = true;
  }

  std::multimap<std::uint64_t, std::uint64_t> ends;  // at which operation an inserted block goes
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < operations.size(); ++i, ++at) {
    while (!ends.empty() && ends.begin()->first <= at) {
      result.operations.push_back({Kind::kFree, 0, ends.begin()->second, 0});
      ends.erase(ends.begin());
    }
    const Operation& operation = operations[i];
    if (inserts[i]) {
      const Operation& like = operations[requests[random() % requests.size()]];
      result.operations.push_back({Kind::kAllocate, operation.lane, result.block_count, like.size});
      ends.emplace(at + 1 + random() % kSoon, result.block_count++);
    }
    const bool has_block = operation.kind != Kind::kStep && operation.kind != Kind::kEmptyCache;
    if (has_block && dropped[operation.block]) continue;
    result.operations.push_back(operation);
  }
  for (const auto& [when, block] : ends) result.operations.push_back({Kind::kFree, 0, block, 0});
  result.count_operations();
  return result;
}

}  // namespace berth::replay
