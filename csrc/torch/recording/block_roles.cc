#include "csrc/torch/recording/block_roles.h"

namespace berth::torch {

using trace::BlockId;
using trace::RoleKind;

namespace {

int strength(RoleKind role) {
  switch (role) {
    case RoleKind::kParameter:
      return 4;
    case RoleKind::kGradient:
      return 3;
    case RoleKind::kOptimizer:
      return 2;
    case RoleKind::kUnknown:
      return 0;
    default:
      return 1;
  }
}

}  // namespace

void BlockRoles::begin_backward() {
  ++pass_;
  // Blocks that no operator took over a whole pass are gone, or will be found out again.
  std::erase_if(blocks_, [&](const auto& entry) { return entry.second.last_pass + 2 < pass_; });
}

BlockRoles::SeenBlock& BlockRoles::see(BlockId block) {
  const auto [found, first] = blocks_.try_emplace(block);
  if (first) found->second.first_pass = pass_;
  found->second.last_pass = pass_;
  return found->second;
}

BlockRoles::News BlockRoles::set(SeenBlock& block, RoleKind role) {
  if (strength(role) <= strength(block.role)) return std::nullopt;
  block.role = role;
  return role;
}

BlockRoles::News BlockRoles::parameter(BlockId block) {
  return set(see(block), RoleKind::kParameter);
}

BlockRoles::News BlockRoles::gradient(BlockId block) {
  return set(see(block), RoleKind::kGradient);
}

BlockRoles::News BlockRoles::told(BlockId block, RoleKind role) { return set(see(block), role); }

bool BlockRoles::derives(BlockId block) const {
  const auto found = blocks_.find(block);
  return found != blocks_.end() &&
         (found->second.candidate || found->second.role == RoleKind::kParameter ||
          found->second.role == RoleKind::kGradient || found->second.role == RoleKind::kOptimizer);
}

BlockRoles::News BlockRoles::argument(BlockId block, const Operator& op, bool requires_gradient,
                                      bool written) {
  if (!op.differentiated && !op.derived) return std::nullopt;
  SeenBlock& seen = see(block);
  if (op.differentiated)
    return !requires_gradient && seen.role == RoleKind::kUnknown ? set(seen, RoleKind::kInput)
                                                                 : std::nullopt;
  if (written && seen.role == RoleKind::kUnknown && !seen.candidate) {
    seen.candidate = true;
    seen.first_pass = pass_;
  }
  return seen.candidate && seen.first_pass < pass_ ? set(seen, RoleKind::kOptimizer) : std::nullopt;
}

BlockRoles::News BlockRoles::result(BlockId block, const Operator& op) {
  if (!op.differentiated && !op.derived) return std::nullopt;
  SeenBlock& seen = see(block);
  if (op.differentiated)
    return seen.role == RoleKind::kUnknown ? set(seen, RoleKind::kActivation) : std::nullopt;
  if (seen.role == RoleKind::kUnknown && !seen.candidate) {
    seen.candidate = true;
    seen.first_pass = pass_;
  }
  return std::nullopt;
}

}  // namespace berth::torch
