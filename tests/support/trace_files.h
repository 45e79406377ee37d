#pragma once

#include "csrc/core/file.h"
#include "csrc/trace/csv_forms.h"
#include "csrc/trace/gzip.h"
#include "csrc/trace/trace.h"
#include "csrc/trace/write.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

// Traces written as CSV, as nobody but tests does.
namespace berth::test {

// The events form. Other entries than requests, frees and step marks have no place in it.
inline std::string format_events(const Trace& trace) {
  std::string text = fmt::format("{}\n", csv::kEventsHeader);
  const auto out = std::back_inserter(text);
  std::unordered_map<trace::BlockId, std::uint64_t> stream_of;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      const std::uint64_t stream = trace.lanes[request->lane].key;
      stream_of.emplace(request->id, stream);
      fmt::format_to(out, "alloc,{},{},{}\n", request->id - 1, request->bytes, stream);
    } else if (const auto* free = std::get_if<trace::Free>(&entry.event)) {
      const auto it = stream_of.find(free->id);
      if (it != stream_of.end()) {
        fmt::format_to(out, "free,{},,{}\n", free->id - 1, it->second);
      } else if (free->id == 0 || free->id > kMaxBytes) {  // no number of the form
        fmt::format_to(out, "free_old,,,\n");
      } else {
        fmt::format_to(out, "free_old,{},,\n", free->id - 1);
      }
    } else if (const auto* mark = std::get_if<trace::StepMark>(&entry.event)) {
      fmt::format_to(out, "step,,,{}\n", trace.lanes[mark->lane].key);
    }
  }
  return text;
}

// Packed with gzip where the path ends in ".gz".
inline void write_events_csv(const std::string& path, const Trace& trace) {
  const std::string text = format_events(trace);
  const auto data = std::as_bytes(std::span(text));
  path.ends_with(".gz") ? write_gzip(path, data) : write_file_atomically(path, data);
}

}  // namespace berth::test
