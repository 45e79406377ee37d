#pragma once

#include "csrc/replay/workload.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

// A recorded run of a few steps made longer, to see what holds for many.
namespace berth::bench {

// The run with its last step, which ends at its last mark, `times` more times. A block that it
// frees and did not ask for is the one that the step before it asked for in the same place.
inline replay::Workload repeat_last_step(const replay::Workload& run, std::size_t times) {
  using replay::Operation;
  std::vector<std::size_t> marks;
  for (std::size_t i = 0; i < run.operations.size(); ++i)
    if (run.operations[i].kind == Operation::Kind::kStep) marks.push_back(i);
  if (marks.size() < 3) return run;
  const std::size_t before = marks[marks.size() - 3] + 1, begin = marks[marks.size() - 2] + 1;
  const std::size_t end = marks.back() + 1;

  // Where in its step a block was asked for, of the last two steps.
  std::map<std::uint64_t, std::size_t> place, place_before;
  std::vector<std::uint64_t> blocks;  // of the last step, by place
  for (std::size_t i = before; i < end; ++i) {
    const Operation& operation = run.operations[i];
    if (operation.kind != Operation::Kind::kAllocate) continue;
    if (i < begin) {
      place_before.emplace(operation.block, place_before.size());
    } else {
      place.emplace(operation.block, place.size());
      blocks.push_back(operation.block);
    }
  }

  replay::Workload result = run;
  result.operations.resize(end);
  for (std::size_t time = 0; time < times; ++time) {
    std::vector<std::uint64_t> own;
    for (std::size_t i = begin; i < end; ++i) {
      Operation operation = run.operations[i];
      if (operation.kind == Operation::Kind::kAllocate) {
        own.push_back(operation.block = result.block_count++);
      } else if (operation.kind != Operation::Kind::kStep) {
        if (const auto here = place.find(operation.block); here != place.end()) {
          operation.block = own[here->second];
        } else if (const auto last = place_before.find(operation.block);
                   last != place_before.end() && last->second < blocks.size()) {
          operation.block = blocks[last->second];
        } else {
          continue;
        }
      }
      result.operations.push_back(operation);
    }
    blocks = std::move(own);
  }
  result.count_operations();
  return result;
}

}  // namespace berth::bench
