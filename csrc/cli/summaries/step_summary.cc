#include "csrc/cli/summaries/step_summary.h"

#include <fmt/format.h>

#include <algorithm>

namespace berth::cli {
namespace {

// A plan of less than this share of a run is worth a warning.
constexpr double kLittle = 0.5;

std::string name_of(const StepCoverage::Lane& lane) {
  return fmt::format("lane {} (thread {}, {})", lane.key, lane.thread,
                     format_number_of(lane.marks, "mark"));
}

}  // namespace

std::string StepSummary::whose() const {
  return fmt::format("{}, seen {} in a row", name_of(coverage_.lanes.at(coverage_.primary)),
                     format_number_of(repeats_, "time"));
}

std::string StepSummary::covers() const {
  std::uint64_t requests = 0;
  Bytes bytes = 0;
  for (const StepCoverage::Lane& lane : coverage_.lanes) {
    requests += lane.requests;
    bytes += lane.bytes;
  }
  return fmt::format("{} of {}, {} of {}", format_percent(coverage_.share_of_requests()),
                     format_number_of(requests, "request"),
                     format_percent(coverage_.share_of_bytes()), format_bytes(bytes));
}

std::optional<std::string> StepSummary::warning() const {
  const bool few_requests = coverage_.share_of_requests() < kLittle;
  if (!few_requests && coverage_.share_of_bytes() >= kLittle) return std::nullopt;
  const auto left_out = [&](const StepCoverage::Lane& lane) {
    return few_requests ? lane.requests - lane.covered_requests : lane.bytes - lane.covered_bytes;
  };
  const auto most =
      std::max_element(coverage_.lanes.begin(), coverage_.lanes.end(),
                       [&](const auto& a, const auto& b) { return left_out(a) < left_out(b); });
  const std::string kept =
      most->in_step
          ? fmt::format("only {} and {} of them lie in repeats of the step",
                        format_count(most->covered_requests), format_bytes(most->covered_bytes))
          : "they do not repeat with the step";
  return fmt::format("the step of {} covers only {}: {} makes {} of {}, and {}", whose(), covers(),
                     name_of(*most), format_number_of(most->requests, "request"),
                     format_bytes(most->bytes), kept);
}

void StepSummary::add_to(Json& json) const {
  const StepCoverage::Lane& lane = coverage_.lanes.at(coverage_.primary);
  const auto text = warning();
  json["lane"] = lane.key;
  json["thread"] = lane.thread;
  json["covered_requests"] = coverage_.share_of_requests();
  json["covered_bytes"] = coverage_.share_of_bytes();
  json["warning"] = text ? Json(*text) : Json(nullptr);
}

}  // namespace berth::cli
