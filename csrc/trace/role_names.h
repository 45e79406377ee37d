#pragma once

#include <berth/role.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace berth::trace {

// The words for roles in graphs' JSON, in tables and on pages, by RoleKind.
inline constexpr std::array<std::string_view, 7> kRoleNames = {
    "unknown", "parameter", "gradient", "optimizer", "activation", "workspace", "input"};

// The word of a table, in which an unknown role is left out.
[[nodiscard]] inline std::string_view name_of(RoleKind role) noexcept {
  return role == RoleKind::kUnknown ? std::string_view()
                                    : kRoleNames[static_cast<std::size_t>(role)];
}

}  // namespace berth::trace
