#pragma once

#include "csrc/graph/json.h"

#include <string>
#include <string_view>
#include <vector>

namespace berth::graph {

// A form of graphs that others write, which a library adds (csrc/papers/importers). It is text, or
// an object of JSON, or both; null for what it is not.
struct OtherForm {
  std::string name;  // for messages
  bool (*is_text)(std::string_view beginning) = nullptr;
  Graph (*from_text)(std::string_view text) = nullptr;
  bool (*is_json)(const Json& root) = nullptr;
  Graph (*from_json)(const Json& root) = nullptr;
};

// From now on read_graph() reads it. A name that is there already is ignored. Any thread.
void add_form(const OtherForm& form);
// In the order in which they were added.
[[nodiscard]] std::vector<OtherForm> other_forms();

}  // namespace berth::graph
