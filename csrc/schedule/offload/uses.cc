#include "csrc/schedule/offload/uses.h"

#include <algorithm>

namespace berth::schedule::offload {

Index first_use_after(const Problem& problem, Value v) {
  const std::vector<Index>& readers = problem.values[v].readers;
  const auto found = std::lower_bound(readers.begin(), readers.end(), problem.border);
  return found == readers.end() ? kNobody : *found;
}

bool is_input_of(const Problem& problem, Value v, OperatorKind kind) {
  const std::vector<Index>& readers = problem.values[v].readers;
  return std::any_of(readers.begin(), readers.end(), [&](Index reader) {
    return reader < problem.border && problem.operators[reader].kind == kind;
  });
}

}  // namespace berth::schedule::offload
