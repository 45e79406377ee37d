#include "csrc/torch/recording/block_roles.h"

#include "tests/catch.h"

using berth::torch::BlockRoles;
using berth::trace::RoleKind;

namespace {
constexpr BlockRoles::Operator kForward{.differentiated = true, .derived = false};
constexpr BlockRoles::Operator kUpdate{.differentiated = false, .derived = true};
constexpr BlockRoles::Operator kPlain{};
}  // namespace

TEST_CASE("A leaf that requires a gradient is a parameter and told once", "[roles]") {
  BlockRoles roles;
  REQUIRE(roles.parameter(1) == RoleKind::kParameter);
  REQUIRE(roles.parameter(1) == std::nullopt);
}

TEST_CASE("What enters a differentiated operator from outside is an input", "[roles]") {
  BlockRoles roles;
  REQUIRE(roles.argument(1, kForward, false, false) == RoleKind::kInput);
  REQUIRE(roles.argument(1, kForward, false, false) == std::nullopt);
}

TEST_CASE("Results of differentiated operators are activations also where they need no gradient",
          "[roles]") {
  BlockRoles roles;
  REQUIRE(roles.result(1, kForward) == RoleKind::kActivation);
  REQUIRE(roles.argument(1, kForward, false, false) == std::nullopt);
}

TEST_CASE("A block written from gradients is optimizer state once it outlives the next backward",
          "[roles]") {
  BlockRoles roles;
  roles.begin_backward();
  REQUIRE(roles.gradient(9) == RoleKind::kGradient);
  REQUIRE(roles.derives(9));
  REQUIRE(roles.argument(1, kUpdate, false, true) == std::nullopt);
  REQUIRE(roles.derives(1));
  roles.begin_backward();
  REQUIRE(roles.argument(1, kUpdate, false, true) == RoleKind::kOptimizer);
}

TEST_CASE("A temporary of the optimizer gets no role", "[roles]") {
  BlockRoles roles;
  roles.begin_backward();
  REQUIRE(roles.result(1, kUpdate) == std::nullopt);
  REQUIRE(roles.argument(1, kUpdate, false, false) == std::nullopt);
}

TEST_CASE("Operators that derive from nothing and are not differentiated give no roles",
          "[roles]") {
  BlockRoles roles;
  REQUIRE(roles.result(1, kPlain) == std::nullopt);
  REQUIRE(roles.argument(2, kPlain, false, true) == std::nullopt);
  REQUIRE(roles.size() == 0);
}

TEST_CASE("A stronger rule corrects a role and a weaker one does not", "[roles]") {
  BlockRoles roles;
  REQUIRE(roles.argument(1, kForward, false, false) == RoleKind::kInput);
  REQUIRE(roles.parameter(1) == RoleKind::kParameter);
  REQUIRE(roles.gradient(1) == std::nullopt);
}

TEST_CASE("What an optimizer says of a block is told unless a stronger rule found more",
          "[roles]") {
  BlockRoles roles;
  REQUIRE(roles.told(1, RoleKind::kOptimizer) == RoleKind::kOptimizer);
  REQUIRE(roles.told(1, RoleKind::kParameter) == RoleKind::kParameter);
  REQUIRE(roles.told(1, RoleKind::kParameter) == std::nullopt);
  REQUIRE(roles.told(1, RoleKind::kOptimizer) == std::nullopt);
}

TEST_CASE("Blocks that no operator takes any more are forgotten", "[roles]") {
  BlockRoles roles;
  for (berth::trace::BlockId id = 1; id <= 1000; ++id) {
    (void)roles.result(id, kForward);
    roles.begin_backward();
    REQUIRE(roles.size() <= 4);
  }
}
