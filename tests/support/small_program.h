#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace berth::test {

// Programs as PyTorch runs them, in small: steps that train or evaluate a network of equal layers,
// whose gradients may live from one step into later ones.
class Program {
 public:
  struct Shape {
    std::size_t layers = 10;
    Bytes batch = 32;
    bool zero_first = true;    // gradients are freed as the step begins; else as it ends
    bool accumulates = false;  // into gradients that are there already
    bool optimizes = true;     // ends with the optimizer's update
    std::size_t network = 0;   // whose gradients they are
  };
  // A request, or a free, by name. A name is one block at a time.
  struct Operation {
    Bytes bytes = 0;  // 0: free
    std::uint64_t name = 0;
    bool frees_at_once = false;
  };
  using Step = std::vector<Operation>;

  static Step training(const Shape& shape) {
    Step step;
    if (shape.zero_first) zero(shape, step);
    forward(shape, true, step);
    for (std::size_t layer = shape.layers; layer-- > 0;) {
      step.push_back({.bytes = activation(shape, layer) + 64, .name = kUpstream + layer});
      step.push_back({.bytes = weight(layer), .name = kComputed + layer});
      if (!shape.accumulates) {
        // Stolen: the block that was computed is the gradient.
        step.back().name = gradient(shape, layer);
      } else {
        step.push_back({.name = kComputed + layer});
      }
      step.push_back({.name = kActivation + layer});
      if (layer + 1 < shape.layers) step.push_back({.name = kUpstream + layer + 1});
    }
    step.push_back({.name = kUpstream});
    if (shape.optimizes) {
      for (std::size_t layer = 0; layer < shape.layers; ++layer)
        step.push_back({.bytes = weight(layer), .frees_at_once = true});
      if (!shape.zero_first) zero(shape, step);
    }
    return step;
  }
  static Step evaluation(const Shape& shape) {
    Step step;
    forward(shape, false, step);
    return step;
  }

  template <class Memory>
  void run(const Step& step, Memory& memory) {
    for (const Operation& operation : step) {
      if (operation.bytes != 0) {
        void* const block = memory.allocate(operation.bytes, 0);
        if (operation.frees_at_once) {
          memory.free(block);
        } else {
          release(operation.name, memory);
          live_[operation.name] = block;
        }
      } else {
        release(operation.name, memory);
      }
    }
  }

 private:
  static constexpr std::uint64_t kActivation = 1 << 20, kUpstream = 2 << 20, kComputed = 3 << 20,
                                 kGradient = 4 << 20;
  static Bytes activation(const Shape& shape, std::size_t layer) {
    return shape.batch * 256 * (1 + layer % 5);
  }
  static Bytes weight(std::size_t layer) { return 4096 * (1 + layer % 7); }
  static std::uint64_t gradient(const Shape& shape, std::size_t layer) {
    return kGradient + (shape.network << 16) + layer;
  }
  static void zero(const Shape& shape, Step& step) {
    for (std::size_t layer = 0; layer < shape.layers; ++layer)
      step.push_back({.name = gradient(shape, layer)});
  }
  static void forward(const Shape& shape, bool keeps, Step& step) {
    for (std::size_t layer = 0; layer < shape.layers; ++layer) {
      step.push_back({.bytes = activation(shape, layer) / 2, .frees_at_once = true});
      step.push_back({.bytes = activation(shape, layer), .name = kActivation + layer});
      if (!keeps && layer > 0) step.push_back({.name = kActivation + layer - 1});
    }
    if (!keeps) step.push_back({.name = kActivation + shape.layers - 1});
  }
  template <class Memory>
  void release(std::uint64_t name, Memory& memory) {
    const auto block = live_.find(name);
    if (block == live_.end()) return;
    memory.free(block->second);
    live_.erase(block);
  }

  std::map<std::uint64_t, void*> live_;
};

}  // namespace berth::test
