#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::test {

// One operation of a program: a request, or the free of an earlier one.
struct Operation {
  Bytes bytes = 0;        // of a request; 0 for a free
  std::size_t frees = 0;  // index of the request in the step
};

// A step as training makes it: `layers` activations forward, freed in reverse on the way back, each
// with a scratch block beside it.
inline std::vector<Operation> training_step(std::size_t layers, Bytes unit = 4096) {
  std::vector<Operation> step;
  std::vector<std::size_t> activations;
  std::size_t requests = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const std::size_t scratch = requests++;
    step.push_back({unit * (1 + layer % 3), 0});
    activations.push_back(requests++);
    step.push_back({unit * (2 + layer % 5), 0});
    step.push_back({0, scratch});
  }
  for (std::size_t layer = layers; layer-- > 0;) {
    const std::size_t gradient = requests++;
    step.push_back({unit * (2 + layer % 5) + 100, 0});
    step.push_back({0, activations[layer]});
    step.push_back({0, gradient});
  }
  return step;
}

// Runs steps on anything that has allocate(bytes) and free(pointer).
template <class Memory>
void run_step(const std::vector<Operation>& step, Memory&& memory) {
  std::vector<void*> blocks;
  for (const Operation& operation : step) {
    if (operation.bytes != 0) {
      blocks.push_back(memory.allocate(operation.bytes));
    } else {
      memory.free(blocks[operation.frees]);
    }
  }
}

}  // namespace berth::test
