#pragma once

#include "csrc/torch/step/program.h"

#include <ATen/core/stack.h>

#include <string>

// Other algorithms of a library for a call, with other workspaces and times. They are measured once
// for a program, and the planners choose.
namespace berth::torch::step {

// One other algorithm. Immutable, apart from caches of its own. Runs on the executor's thread.
class LibraryAlgorithm {
 public:
  virtual ~LibraryAlgorithm() = default;
  // Replaces the call's arguments on top of the stack by its results, as the operator would, in the
  // current streams, below autograd. False where the library cannot after all: the stack is as it
  // was. Throws where memory is exhausted.
  [[nodiscard]] virtual bool run(const Call& call, c10::Stack* stack) const = 0;
};

struct SearchOptions {
  // Whether algorithms may give other bits than the operator.
  bool other_bits = false;
  // What the search may take on the device beside what lives between two steps. Within it, no
  // search raises the peak of the step.
  Bytes room = 0;
  // Where what is found is kept for later processes; empty: for this one only.
  std::string file = {};
};

// A library that knows alternatives. Lives for ever.
class AlgorithmSource {
 public:
  virtual ~AlgorithmSource() = default;
  // Fills Call::alternatives of the calls that it knows, fastest first; leaves alone those that it
  // does not. No step runs meanwhile. Throws nothing but what memory exhausted throws.
  virtual void find(Program& program, const SearchOptions& options) = 0;
};

// From now on programs are shown to the source. Once each. Thread-safe.
void offer_algorithms(AlgorithmSource& source);

// Asks the sources. What fails there is as if there were no alternative.
void find_algorithms(Program& program, const SearchOptions& options);

}  // namespace berth::torch::step
