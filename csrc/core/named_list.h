#pragma once

#include "csrc/core/setup_mutex.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace berth {

// What libraries add by name as they are linked, in that order. Thread-safe.
template <class Named>
class NamedList {
 public:
  void add(const Named& one) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(all_, one.name, &Named::name) == all_.end()) all_.push_back(one);
  }
  [[nodiscard]] std::vector<Named> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable SetupMutex mutex_;
  std::vector<Named> all_;
};

}  // namespace berth
