#pragma once

#include "csrc/cli/core/output.h"
#include "csrc/cli/summaries/step_summary.h"
#include "csrc/trace/step.h"
#include "csrc/trace/trace.h"

#include <optional>
#include <string>
#include <vector>

namespace berth::cli {

// Bytes that one module, operator, phase or scope holds.
struct Holder {
  std::string name;  // empty: not known
  Bytes bytes = 0;
  std::size_t blocks = 0;
};

// A block that is live at the peak, and who asked for it.
struct PeakBlock {
  trace::BlockId id = 0;
  Bytes requested = 0;
  Bytes bytes = 0;  // rounded
  trace::Tick birth = 0;
  std::optional<trace::Tick> end;
  std::string module, op, phase, scope;
};

// What a trace says about its run. Bytes are rounded up to the trace's alignment.
//
// The peak is the largest sum of live bytes, its tick that of the request that reached it. A
// block's operator is the innermost one that was running and does more than allocate; its phase is
// the open phase range, else forward or backward as its operator is. Residents (of the step found)
// are counted apart and in none of the lists.
struct TraceSummary {
  std::size_t entries = 0, requests = 0, frees = 0, lanes = 0, threads = 0, marks = 0;
  Bytes cut_bytes = 0, alignment = 0;
  trace::Program program;

  Bytes peak = 0;
  trace::Tick peak_tick = 0;
  std::size_t peak_step = 0;  // marks before it
  Bytes resident_bytes = 0;   // at the peak
  std::size_t resident_blocks = 0;
  std::vector<Holder> by_module, by_operator, by_phase, by_scope;  // largest first
  std::vector<PeakBlock> largest;                                  // ten

  std::optional<Step> step;
  std::optional<StepSummary> coverage;  // of the step
  std::string why_no_step;

  [[nodiscard]] Json to_json() const;
  [[nodiscard]] std::string to_text(const std::string& path) const;
  // Parts of both.
  [[nodiscard]] Json holders_to_json() const;
  [[nodiscard]] std::string holders_to_text() const;
  [[nodiscard]] std::string largest_to_text() const;
};

[[nodiscard]] TraceSummary summarize(const Trace& trace);

}  // namespace berth::cli
