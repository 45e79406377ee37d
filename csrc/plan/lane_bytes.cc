#include "csrc/plan/lane_bytes.h"

#include "csrc/plan/offset_table.h"

#include <algorithm>

namespace berth {

std::vector<LaneBytes> bytes_of_lanes(const Plan& plan) {
  // Of all slots at one offset the largest stands for them: offsets are few, slots are many.
  std::vector<OffsetTable> offsets(plan.lane_keys.size(), OffsetTable(plan.alignment));
  std::vector<std::vector<LaneBytes>> lanes(plan.lane_keys.size());
  for (const Sequence& sequence : plan.sequences) {
    std::vector<LaneBytes>& lane = lanes[sequence.lane];
    for (const Slot& slot : sequence.slots) {
      if (!slot.planned()) continue;
      const ByteRange bytes{slot.offset, slot.offset + slot.size};
      const std::uint32_t at =
          offsets[sequence.lane].insert(slot.offset, static_cast<std::uint32_t>(lane.size()));
      if (at == lane.size()) {
        lane.push_back({bytes, sequence.lane});
      } else {
        lane[at].bytes.last = std::max(lane[at].bytes.last, bytes.last);
      }
    }
  }
  const auto by_address = [](const LaneBytes& a, const LaneBytes& b) {
    return a.bytes.first < b.bytes.first;
  };
  std::vector<LaneBytes> result;
  for (std::vector<LaneBytes>& lane : lanes) {
    std::sort(lane.begin(), lane.end(), by_address);
    const std::size_t begin = result.size();
    for (const LaneBytes& next : lane) {
      if (result.size() > begin && next.bytes.first <= result.back().bytes.last) {
        result.back().bytes.last = std::max(result.back().bytes.last, next.bytes.last);
      } else {
        result.push_back(next);
      }
    }
  }
  std::sort(result.begin(), result.end(), by_address);
  return result;
}

std::vector<ByteRange> shared_bytes(const std::vector<LaneBytes>& lanes) {
  // What lies before `used` was used once, at least, by lanes that begin before the present one.
  std::vector<ByteRange> shared;
  Bytes used = 0;
  for (const LaneBytes& lane : lanes) {
    const ByteRange both{lane.bytes.first, std::min(lane.bytes.last, used)};
    if (both.first < both.last) {
      if (!shared.empty() && both.first <= shared.back().last) {
        shared.back().last = std::max(shared.back().last, both.last);
      } else {
        shared.push_back(both);
      }
    }
    used = std::max(used, lane.bytes.last);
  }
  return shared;
}

}  // namespace berth
