#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

// What reads graphs from JSON has in common. Errors are Error(kInput) without the file's name.
namespace berth::graph {

using Json = nlohmann::json;

// Refuses brackets that are nested deeper than any graph's, before anything is built: a million of
// them would be a million calls deep.
void check_depth(std::string_view text);
// A member that must be there.
[[nodiscard]] const Json& member(const Json& object, const char* name, const std::string& whose);
// A whole number in [0, limit]; floating point where it is whole.
[[nodiscard]] std::uint64_t whole(const Json& value, std::uint64_t limit, const std::string& whose);
// A size from a number of bytes, whole or not: rounded up.
[[nodiscard]] Bytes size_from(const Json& value, const std::string& whose);

}  // namespace berth::graph
