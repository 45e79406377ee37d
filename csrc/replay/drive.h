#pragma once

#include "csrc/replay/workload.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace berth::replay {

// How a drive went.
struct DriveResult {
  bool complete = true;                    // false: a request was refused
  std::optional<double> ns_per_operation;  // median over stretches of 1,024 operations
};

// Replays operations on `server` one after the other. `pointers` has one null entry a block. A
// server has
//   void* allocate(const Operation&)              null: refused, the drive ends unless it is
//   optional void free(void* pointer) void use(void* pointer, const Operation&) void step() not
//   timed void empty_cache()                            not timed; may be missing
// The median leaves out stretches that other work fell into, such as planning.
template <class Server>
DriveResult drive(std::span<const Operation> operations, std::span<void*> pointers,
                  Server& server) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kStretch = 1024;
  std::vector<double> stretches;
  stretches.reserve(operations.size() / kStretch + 1);
  std::size_t in_stretch = 0;
  Clock::duration spent{};
  DriveResult result;
  Clock::time_point begin = Clock::now();
  const auto end_stretch = [&](Clock::time_point now) {
    if (in_stretch == 0) return;
    const std::chrono::duration<double, std::nano> time = spent + (now - begin);
    stretches.push_back(time.count() / static_cast<double>(in_stretch));
    in_stretch = 0;
    spent = {};
  };
  for (const Operation& operation : operations) {
    void*& pointer = pointers[operation.block];
    switch (operation.kind) {
      case Operation::Kind::kAllocate:
        pointer = server.allocate(operation);
        if (pointer == nullptr && !operation.optional) [[unlikely]] {
          result.complete = false;
          return result;
        }
        ++in_stretch;
        break;
      case Operation::Kind::kFree:
        if (pointer != nullptr) server.free(pointer);
        pointer = nullptr;
        ++in_stretch;
        break;
      case Operation::Kind::kUse:
        if (pointer != nullptr) server.use(pointer, operation);
        break;
      case Operation::Kind::kStep:
        spent += Clock::now() - begin;
        server.step(operation);
        begin = Clock::now();
        break;
      case Operation::Kind::kEmptyCache:
        if constexpr (requires { server.empty_cache(); }) {
          spent += Clock::now() - begin;
          server.empty_cache();
          begin = Clock::now();
        }
        break;
    }
    if (in_stretch == kStretch) {
      end_stretch(Clock::now());
      begin = Clock::now();
    }
  }
  if (stretches.empty()) end_stretch(Clock::now());  // a short run is one stretch
  if (!stretches.empty()) {
    const auto middle = stretches.begin() + static_cast<std::ptrdiff_t>(stretches.size() / 2);
    std::nth_element(stretches.begin(), middle, stretches.end());
    result.ns_per_operation = *middle;
  }
  return result;
}

}  // namespace berth::replay
