#pragma once

#include "csrc/torch/cuda/private_pool.h"
#include "csrc/torch/cuda/reports.h"
#include "csrc/torch/cuda/stream_lanes.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <vector>

namespace berth::torch {

// Adds what torch.cuda.memory_snapshot() shows of a pool: a segment for each stretch of its memory,
// and in it its blocks and what is between them.
void add_segments(const PrivatePool& pool, int device, const StreamLanes& lanes,
                  const Reports& reports,
                  std::vector<c10::CachingDeviceAllocator::SegmentInfo>* segments);

}  // namespace berth::torch
