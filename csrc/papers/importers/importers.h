#pragma once

#include "csrc/graph/json.h"

#include <string_view>

// Readers of the forms of graphs that others write.
namespace berth::graph {

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

// From now on read_graph() reads all of these. Any thread, any number of times.
void add_forms_of_papers();

}  // namespace berth::graph
