#include "csrc/cli/workload.h"

#include "csrc/cli/spelling.h"
#include "csrc/core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>
#include <variant>

namespace berth::cli {
namespace {

using Kind = Operation::Kind;

// Counts what the operations hold.
void count(Workload& workload) {
  workload.requests = workload.frees = workload.steps = 0;
  for (const Operation& operation : workload.operations) {
    workload.requests += operation.kind == Kind::kAllocate ? 1 : 0;
    workload.frees += operation.kind == Kind::kFree ? 1 : 0;
    workload.steps += operation.kind == Kind::kStep ? 1 : 0;
  }
}

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

Bytes Workload::live_peak(Bytes unit) const {
  std::vector<Bytes> sizes(block_count, 0);
  Bytes live = 0, peak = 0;
  for (const Operation& operation : operations) {
    if (operation.kind == Kind::kAllocate) {
      sizes[operation.block] = align_up(operation.size, unit);
      live += sizes[operation.block];
      peak = std::max(peak, live);
    } else if (operation.kind == Kind::kFree) {
      live -= sizes[operation.block];
    }
  }
  return peak;
}

Workload make_workload(const Trace& trace) {
  Workload workload;
  workload.alignment = trace.alignment;
  for (const trace::Lane& lane : trace.lanes) workload.lane_keys.push_back(lane.key);
  if (workload.lane_keys.empty()) workload.lane_keys.push_back(0);
  std::unordered_map<trace::BlockId, std::uint64_t> live;
  Bytes total = 0;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      if (request->bytes == 0) continue;
      const auto sum = checked_add(total, request->bytes);
      BERTH_CHECK(sum.has_value(), kInput, "tick {}: the sum of requests exceeds {} bytes",
                  entry.tick, kMaxBytes);
      total = *sum;
      live[request->id] = workload.block_count;
      workload.operations.push_back(
          {Kind::kAllocate, request->lane, workload.block_count++, request->bytes});
    } else if (const auto* free = std::get_if<trace::Free>(&entry.event)) {
      const auto it = live.find(free->id);
      if (it == live.end()) continue;
      workload.operations.push_back({Kind::kFree, 0, it->second, 0});
      live.erase(it);
    } else if (const auto* use = std::get_if<trace::Use>(&entry.event)) {
      const auto it = live.find(use->id);
      if (it != live.end()) workload.operations.push_back({Kind::kUse, use->lane, it->second, 0});
    } else if (const auto* mark = std::get_if<trace::StepMark>(&entry.event)) {
      workload.operations.push_back({Kind::kStep, mark->lane, 0, 0});
    }
  }
  count(workload);
  return workload;
}

void add_perturbation(Perturbation& perturbation, const std::string& text) {
  const std::map<std::string, double Perturbation::*> kinds = {
      {"insert", &Perturbation::insert},
      {"drop", &Perturbation::drop},
      {"resize", &Perturbation::resize},
      {"swap", &Perturbation::swap},
  };
  std::vector<std::string> names;
  for (const auto& [name, member] : kinds) names.push_back(name);
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  throw_if_unknown("perturbation", kind, names);
  double rate = -1;
  if (colon != std::string::npos) {
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, rate);
    if (error != std::errc{} || stop != end) rate = -1;
  }
  BERTH_CHECK(rate >= 0 && rate <= 1, kUsage,
              "perturbation '{}' has no rate from 0 to 1: write it as {}:0.01", text, kind);
  perturbation.*kinds.at(kind) = rate;
}

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
    if (operation.kind != Kind::kStep && dropped[operation.block]) continue;
    result.operations.push_back(operation);
  }
  for (const auto& [when, block] : ends) result.operations.push_back({Kind::kFree, 0, block, 0});
  count(result);
  return result;
}

}  // namespace berth::cli
