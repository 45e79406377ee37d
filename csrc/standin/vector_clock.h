#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::standin {

// A moment of one component (a stream): its `value`-th operation.
struct Epoch {
  std::size_t component = 0;
  std::uint64_t value = 0;
};

// Which operation of each component is known to be over: what happens before the holder of the
// clock. After Lamport 1978 and Mattern 1989. Components that nobody heard of count as 0.
class VectorClock {
 public:
  [[nodiscard]] bool covers(Epoch epoch) const { return epoch.value <= at(epoch.component); }

  [[nodiscard]] std::uint64_t at(std::size_t component) const {
    return component < values_.size() ? values_[component] : 0;
  }

  void raise(Epoch epoch) {
    if (values_.size() <= epoch.component) values_.resize(epoch.component + 1);
    values_[epoch.component] = std::max(values_[epoch.component], epoch.value);
  }

  void join(const VectorClock& other) {
    if (values_.size() < other.values_.size()) values_.resize(other.values_.size());
    for (std::size_t i = 0; i < other.values_.size(); ++i)
      values_[i] = std::max(values_[i], other.values_[i]);
  }

 private:
  std::vector<std::uint64_t> values_;
};

}  // namespace berth::standin
