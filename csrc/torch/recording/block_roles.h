#pragma once

#include "csrc/trace/trace.h"

#include <optional>
#include <unordered_map>

namespace berth::torch {

// Finds out what a block is for from how operators use it. Knows nothing of libtorch.
//
//   parameter   a leaf of the autograd graph that requires a gradient
//   gradient    what such a leaf's .grad holds: given by an operator inside AccumulateGrad
//   input       enters a differentiated operator without being made by one: batches, targets,
//               masks, the running statistics of a norm
//   activation  result of a differentiated operator in forward
//   optimizer   made or written from parameters and gradients where no gradient is taken, and still
//               in use after the next backward pass: momenta, moving averages
//
// Sharded parameters are no leaves of what runs on a device: their optimizer says which they are
// (`told`).
//
// Everything else stays unknown: temporaries of backward and of the optimizer, and the workspaces
// inside one operator, which the trace shows by their lifetimes. A role is told as soon as it is
// certain, which may be after the block's first use, and again only when a stronger rule (in the
// order parameter, gradient, optimizer, others) finds another.
//
// Not thread-safe: the caller's lock covers it. O(1) a call; keeps the blocks of two passes.
class BlockRoles {
 public:
  // What one operator says of all its tensors.
  struct Operator {
    bool differentiated = false;  // in forward, gradients on, an argument requires one
    bool derived = false;         // gradients off, an argument stems from parameters or gradients
  };

  // A backward pass begins where none was running.
  void begin_backward();

  // The role of `block` where it is news.
  using News = std::optional<trace::RoleKind>;
  [[nodiscard]] News parameter(trace::BlockId block);
  [[nodiscard]] News gradient(trace::BlockId block);
  // Somebody knows it.
  [[nodiscard]] News told(trace::BlockId block, trace::RoleKind role);
  // Whether an operator with gradients off that takes `block` derives from parameters or gradients.
  [[nodiscard]] bool derives(trace::BlockId block) const;
  // An argument of an operator outside of backward that is no parameter.
  [[nodiscard]] News argument(trace::BlockId block, const Operator& op, bool requires_gradient,
                              bool written);
  // A result of an operator outside of backward.
  [[nodiscard]] News result(trace::BlockId block, const Operator& op);

  [[nodiscard]] std::size_t size() const noexcept { return blocks_.size(); }

 private:
  struct SeenBlock {
    trace::RoleKind role = trace::RoleKind::kUnknown;
    bool candidate = false;  // may be optimizer state
    std::uint64_t first_pass = 0, last_pass = 0;
  };
  SeenBlock& see(trace::BlockId block);
  News set(SeenBlock& block, trace::RoleKind role);

  std::unordered_map<trace::BlockId, SeenBlock> blocks_;
  std::uint64_t pass_ = 0;  // backward passes so far
};

}  // namespace berth::torch
