#pragma once

#include "csrc/replay/workload.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// A recorded run with one request changed, to see what one change costs once the run was learned.
namespace berth::test {

using replay::Operation;
using replay::Workload;
using Kind = Operation::Kind;

struct Change {
  const char* name;
  // Changes the request at operation `place`; false where that cannot be.
  bool (*apply)(Workload& workload, std::size_t place);
};

inline std::size_t next_of_kind(const Workload& workload, std::size_t after, Kind kind) {
  std::size_t i = after + 1;
  while (i < workload.operations.size() && workload.operations[i].kind != kind) ++i;
  return i;
}

inline bool insert_request(Workload& workload, std::size_t place, Bytes size) {
  constexpr std::size_t kLives = 8;  // operations
  std::vector<Operation>& operations = workload.operations;
  const auto at = [&](std::size_t i) {
    return operations.begin() + static_cast<std::ptrdiff_t>(i);
  };
  const std::uint64_t block = workload.block_count++;
  operations.insert(at(std::min(place + kLives, operations.size())), {Kind::kFree, 0, block, 0});
  operations.insert(at(place), {Kind::kAllocate, operations[place].lane, block, size});
  return true;
}

inline bool insert_known(Workload& workload, std::size_t place) {
  const std::size_t other = next_of_kind(workload, place, Kind::kAllocate);
  return other < workload.operations.size() &&
         insert_request(workload, place, workload.operations[other].size);
}

inline bool insert_foreign(Workload& workload, std::size_t place) {
  return insert_request(workload, place, 12'345);
}

inline bool drop(Workload& workload, std::size_t place) {
  const std::uint64_t block = workload.operations[place].block;
  std::erase_if(workload.operations,
                [&](const Operation& o) { return o.kind != Kind::kStep && o.block == block; });
  return true;
}

inline bool resize(Workload& workload, std::size_t place) {
  workload.operations[place].size += workload.operations[place].size / 3 + 1;
  return true;
}

inline bool swap_with_next(Workload& workload, std::size_t place) {
  const std::size_t next = next_of_kind(workload, place, Kind::kAllocate);
  if (next >= workload.operations.size()) return false;
  std::vector<Operation>& operations = workload.operations;
  for (std::size_t i = place + 1; i < next; ++i) {
    if (operations[i].kind == Kind::kStep || operations[i].block == operations[place].block)
      return false;
  }
  std::swap(operations[place], operations[next]);
  return true;
}

inline constexpr Change kChanges[] = {{"insert", insert_known},
                                      {"insert new", insert_foreign},
                                      {"drop", drop},
                                      {"resize", resize},
                                      {"swap", swap_with_next}};

// The requests after so many marks: a run is learned by the third.
inline std::vector<std::size_t> places_to_change(const Workload& workload,
                                                 std::size_t learned = 3) {
  std::vector<std::size_t> places;
  std::size_t marks = 0;
  for (std::size_t i = 0; i < workload.operations.size(); ++i) {
    marks += workload.operations[i].kind == Kind::kStep ? 1 : 0;
    if (marks >= learned && workload.operations[i].kind == Kind::kAllocate) places.push_back(i);
  }
  return places;
}

}  // namespace berth::test
