#include "csrc/replay/through_caching_model.h"

#include <fmt/format.h>

namespace berth::replay {

const std::vector<std::string>& model_allocators() {
  static const std::vector<std::string> kNames = {"caching-model", "expandable-model"};
  return kNames;
}

Result through_caching_model(const Workload& workload, const CachingModel::Options& options,
                             const std::function<void(std::size_t, const CachingModel&)>& seen) {
  Result result;
  CachingModel model(options);
  std::vector<CachingModel::Block*> blocks(workload.block_count, nullptr);
  StepResult step;
  MemoryCallCounts before;
  for (std::size_t i = 0; i < workload.operations.size(); ++i) {
    const Operation& operation = workload.operations[i];
    switch (operation.kind) {
      case Operation::Kind::kAllocate: {
        CachingModel::Block*& block = blocks[operation.block];
        block = model.allocate(operation.size, operation.lane);
        if (block == nullptr && !operation.optional) {
          result.out_of_memory = true;
          result.problem = fmt::format("out of memory: {} asked, {} reserved of at most {}",
                                       format_bytes(operation.size), format_bytes(model.reserved()),
                                       format_bytes(options.limit));
        }
        ++step.requests;
        break;
      }
      case Operation::Kind::kFree:
        if (blocks[operation.block] != nullptr) model.free(blocks[operation.block]);
        blocks[operation.block] = nullptr;
        break;
      case Operation::Kind::kUse:
        if (blocks[operation.block] != nullptr) model.use(blocks[operation.block], operation.lane);
        break;
      case Operation::Kind::kEmptyCache:
        model.empty_cache();
        break;
      case Operation::Kind::kStep:
        step.live = model.allocated();
        step.reserved = model.reserved();
        step.memory_calls = model.memory_calls() - before;
        before = model.memory_calls();
        result.steps.push_back(step);
        step = {};
        break;
    }
    if (result.out_of_memory) break;
    if (seen) seen(i, model);
  }
  result.reserved_peak = model.reserved_peak();
  result.driver_calls = model.driver_calls();
  result.memory_calls = model.memory_calls();
  result.retries = model.retries();
  return result;
}

Result through_caching_model(const Workload& workload, bool expandable, Bytes limit) {
  CachingModel::Options options;
  options.expandable = expandable;
  options.limit = limit;
  if (limit != 0) options.device_bytes = limit;
  return through_caching_model(workload, options);
}

}  // namespace berth::replay
