#pragma once

#include "csrc/trace/chunk_encoder.h"
#include "csrc/trace/trace.h"

#include <algorithm>

namespace berth::test {

// Whether two entries are the same in everything that is stored.
inline bool equal(const trace::Entry& a, const trace::Entry& b) {
  trace_file::ChunkEncoder encoder;
  const auto bytes_of = [&](const trace::Entry& entry) {
    encoder.add(entry);
    const auto table = encoder.finish();
    return std::vector<std::byte>(table.begin(), table.end());
  };
  return bytes_of(a) == bytes_of(b);
}

inline bool equal(const Trace& a, const Trace& b) {
  const auto same = [](const auto& x, const auto& y) { return equal(x, y); };
  const auto same_lane = [](const trace::Lane& x, const trace::Lane& y) { return x.key == y.key; };
  return a.program == b.program && a.alignment == b.alignment && a.strings == b.strings &&
         a.shapes == b.shapes && std::ranges::equal(a.lanes, b.lanes, same_lane) &&
         std::ranges::equal(a.entries, b.entries, same);
}

}  // namespace berth::test
