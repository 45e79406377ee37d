#include "csrc/torch/step/algorithms.h"

#include "csrc/core/setup_mutex.h"

#include <berth/warnings.h>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

namespace berth::torch::step {

namespace {

SetupMutex sources_mutex;

std::vector<AlgorithmSource*>& sources() {
  static auto* const all = new std::vector<AlgorithmSource*>;
  return *all;
}

}  // namespace

void offer_algorithms(AlgorithmSource& source) {
  const std::lock_guard lock(sources_mutex);
  auto& all = sources();
  if (std::find(all.begin(), all.end(), &source) == all.end()) all.push_back(&source);
}

void find_algorithms(Program& program, const SearchOptions& options) {
  std::vector<AlgorithmSource*> all;
  {
    const std::lock_guard lock(sources_mutex);
    all = sources();
  }
  for (AlgorithmSource* const source : all) {
    try {
      source->find(program, options);
    } catch (const std::exception& error) {
      warn("step-algorithms",
           fmt::format("a step is planned without a choice of algorithms: {}", error.what()));
    }
  }
}

}  // namespace berth::torch::step
