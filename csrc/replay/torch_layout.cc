#include "csrc/replay/torch_layout.h"

#include "csrc/replay/caching_model.h"

namespace berth::replay {

Layout torch_layout(const Workload& workload) {
  CachingModel model({});
  Layout layout;
  layout.addresses.assign(workload.block_count, Layout::kNowhere);
  layout.reserved.assign(workload.block_count, 0);
  std::vector<CachingModel::Block*> blocks(workload.block_count, nullptr);
  for (const Operation& operation : workload.operations) {
    const std::uint64_t block = operation.block;
    switch (operation.kind) {
      case Operation::Kind::kAllocate:
        blocks[block] = model.allocate(operation.size, operation.lane);
        layout.addresses[block] = CachingModel::address(blocks[block]);
        layout.reserved[block] = model.reserved();
        break;
      case Operation::Kind::kFree:
        model.free(blocks[block]);
        break;
      case Operation::Kind::kUse:
        model.use(blocks[block], operation.lane);
        break;
      case Operation::Kind::kEmptyCache:
        model.empty_cache();
        break;
      case Operation::Kind::kStep:
        break;
    }
  }
  layout.reserved_peak = model.reserved_peak();
  return layout;
}

}  // namespace berth::replay
