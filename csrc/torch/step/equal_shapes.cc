#include "csrc/torch/step/equal_shapes.h"

#include "csrc/torch/step/streams.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

namespace berth::torch::step {

namespace {

using Sizes = std::set<std::int64_t>;

// Numbers of rows that many tensors have for other reasons.
constexpr std::int64_t kLeast = 2;

class Spreading {
 public:
  Spreading(StepRecord& record, const ShapedByData& by_data)
      : record_(record), by_data_(by_data), of_(record.storages.size()) {
    for (const Call& call : record.calls)
      for (const Operand& one : call.operands)
        if (one.storage != kNoStorage && is_fixed(record.storages[one.storage]))
          fixed_.insert(one.sizes.begin(), one.sizes.end());
  }

  bool spread() {
    for (std::uint32_t n = 0; n < record_.calls.size(); ++n) {
      Call& call = record_.calls[n];
      const Sizes taken = take(call);
      const bool given = give(n, taken);
      if (taken.empty() && !given) continue;
      if (call.by_body) return false;
      call.varies = true;
      call.copied.clear();
      make_barrier(record_, n);
    }
    for (StorageNumber n = 0; n < of_.size(); ++n) record_.storages[n].varies |= !of_[n].empty();
    return true;
  }

 private:
  static bool is_fixed(const RecordedStorage& one) {
    return one.maker == RecordedStorage::kFromOutside && !one.made_within && !one.varies;
  }

  // The sizes by data that the call takes.
  Sizes take(Call& call) {
    Sizes taken;
    bool any = false;
    for (Operand& one : call.operands) {
      if (one.storage == kNoStorage) continue;
      any = true;
      for (std::size_t d = 0; d < one.sizes.size(); ++d) {
        const std::int64_t size = one.sizes[d];
        // Gradients of sums are one number as often as a shape says that autograd has kept.
        const bool repeats = one.strides[d] == 0;
        if (!(repeats ? all_ : of_[one.storage]).contains(size)) continue;
        taken.insert(size);
        one.varies = true;
      }
    }
    if (any) return taken;
    // What makes room takes its sizes as numbers.
    for (const Argument& one : call.arguments)
      if (one.form == Form::kValue && one.value.isIntList())
        for (const std::int64_t size : one.value.toIntVector())
          if (all_.contains(size)) taken.insert(size);
    return taken;
  }

  // Whether results vary that did not, by data or by what the call takes.
  bool give(std::uint32_t number, const Sizes& taken) {
    Call& call = record_.calls[number];
    const auto known = by_data_.find(&call.op.schema());
    bool given = false;
    for (std::size_t n = 0; n < call.result_tensors.size(); ++n) {
      ResultTensor& made = call.result_tensors[n];
      Operand& one = made.operand;
      if (made.argument != ResultTensor::kNew || one.storage == kNoStorage || one.varies ||
          record_.storages[one.storage].maker != number)
        continue;
      Sizes sizes;
      for (std::size_t d = 0; d < one.sizes.size(); ++d) {
        bool by_data = taken.contains(one.sizes[d]);
        // mutant: data-shapes-chance
        if (known != by_data_.end() && d < 64)
          if (const auto bits = known->second.find(n); bits != known->second.end())
            by_data |= (bits->second >> d & 1U) != 0;
        if (by_data && one.sizes[d] >= kLeast && !fixed_.contains(one.sizes[d]))
          sizes.insert(one.sizes[d]);
      }
      if (sizes.empty()) continue;
      given = one.varies = true;
      of_[one.storage].insert(sizes.begin(), sizes.end());
      all_.insert(sizes.begin(), sizes.end());
    }
    return given;
  }

  StepRecord& record_;
  const ShapedByData& by_data_;
  Sizes fixed_, all_;
  std::vector<Sizes> of_;  // by storage: its sizes that data decide
};

}  // namespace

bool let_equal_shapes_vary(StepRecord& record, const ShapedByData& by_data) {
  return by_data.empty() || Spreading(record, by_data).spread();
}

}  // namespace berth::torch::step
