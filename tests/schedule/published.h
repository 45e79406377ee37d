#pragma once

#include "csrc/trace/gzip.h"
#include "tests/catch.h"

#include <berth/graph.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace berth::test {

// Graphs that others published. data/README.md has their sources and licences.

// One that is kept here, e.g. "pipedream/vgg16". Requires zlib (BERTH_TEST_ZLIB).
inline graph::Graph kept_graph(const std::string& name) {
  const std::string path = BERTH_SCHEDULE_DATA "/" + name + ".json.gz";
  const std::vector<std::byte> text = gunzip(path, Bytes{16} << 20);
  return graph::parse_graph({reinterpret_cast<const char*>(text.data()), text.size()}, path);
}

// The folder of those that are not, by its name below the folder that BERTH_TEST_GRAPHS names.
// Nothing where it is missing; the output then says that the test was skipped.
inline std::optional<std::filesystem::path> fetched_graphs(const std::string& folder) {
  const char* const all = std::getenv("BERTH_TEST_GRAPHS");
  if (all != nullptr) {
    const std::filesystem::path path = std::filesystem::path(all) / folder;
    if (std::filesystem::is_directory(path)) return path;
  }
  WARN("skipped: no published graphs: set BERTH_TEST_GRAPHS (tests/schedule/data/README.md)");
  return std::nullopt;
}

}  // namespace berth::test
