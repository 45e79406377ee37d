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

// A log of DTR is told by its first line; it is no one JSON value.
[[nodiscard]] bool is_dtr_log(std::string_view text);
[[nodiscard]] Graph import_dtr(std::string_view text);

// PipeDream's graph.txt, told by its first line, and the object that import_pipedream() reads.
[[nodiscard]] bool is_pipedream_text(std::string_view text);
[[nodiscard]] Json pipedream_from_text(std::string_view text);

// The forms of others, `root` being the file's object.
[[nodiscard]] Graph import_partitioning(const Json& root);
[[nodiscard]] Graph import_moccasin(const Json& root);
[[nodiscard]] Graph import_pipedream(const Json& root);
[[nodiscard]] Graph import_monet(const Json& root);

}  // namespace berth::graph
