#include "csrc/torch/cuda/cudnn/convolution_choice.h"

#include "csrc/core/bytes.h"
#include "csrc/core/setup_mutex.h"
#include "csrc/graph/algorithm_cache.h"
#include "csrc/torch/cuda/cudnn/convolution_call.h"
#include "csrc/torch/cuda/cudnn/convolution_trial.h"
#include "csrc/torch/step/algorithms.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace berth::torch::cudnn {

namespace {

using graph::AlgorithmCache;
using graph::AlgorithmProfile;
using step::Call;
using step::Program;

class Convolutions final : public step::AlgorithmSource {
 public:
  void find(Program& program, const step::SearchOptions& options) override {
    const Calls* const calls = Calls::find();
    if (calls == nullptr || !at::globalContext().userEnabledCuDNN()) return;
    AlgorithmCache& cache = caches_.try_emplace(options.file, options.file).first->second;
    // Of the same convolution one, so that its plans are built once.
    std::map<std::string, std::vector<step::CallAlternative>> found;
    for (Call& call : program.calls) {
      const std::optional<c10::Device> device = device_of(program, call);
      if (!device) continue;
      const std::optional<ConvolutionCall> of =
          convolution_call(call, {at::globalContext().deterministicCuDNN() ||
                                      at::globalContext().deterministicAlgorithms(),
                                  at::globalContext().allowTF32CuDNN(at::Float32Op::CONV)});
      if (!of) continue;
      const c10::DeviceGuard on(*device);
      const std::string key =
          fmt::format("{}|cuDNN {}|{}", device_name(*device), calls->version, of->text());
      const AlgorithmProfile* profile = cache.find(key);
      if (profile == nullptr) {
        std::optional<AlgorithmProfile> measured =
            measure_algorithms(*calls, call, *of, *device, options.room);
        if (!measured) continue;
        cache.add(key, *measured);
        profile = cache.find(key);
      }
      const auto [alternatives, fresh] = found.try_emplace(key);
      if (fresh)
        for (const graph::Algorithm& one : profile->algorithms)
          if (one.same_bits || options.other_bits)
            alternatives->second.push_back(
                {one.name, one.ns, one.workspace, algorithm_of(*calls, *of, one)});
      call.alternatives = better_alternatives(call, alternatives->second, profile->ns);
    }
    cache.save();
  }

 private:
  // The one that all its tensors are on, where it is a GPU.
  static std::optional<c10::Device> device_of(const Program& program, const Call& call) {
    std::optional<c10::Device> device;
    for (const step::Operand& one : call.operands) {
      if (one.storage == step::kNoStorage) continue;
      const c10::Device here = program.storages[one.storage].device;
      if (!here.is_cuda() || (device && *device != here)) return std::nullopt;
      device = here;
    }
    return device;
  }

  // Those that take less time or less memory than the operator itself and than each other, fastest
  // first. Times are in relation to the operator's own, which the step's record knows better.
  static std::vector<step::CallAlternative> better_alternatives(
      const Call& call, std::vector<step::CallAlternative> alternatives,
      std::uint64_t as_written_ns) {
    for (step::CallAlternative& one : alternatives) {
      const std::uint64_t saved = as_written_ns - std::min(as_written_ns, one.ns);
      const std::uint64_t added = one.ns - std::min(one.ns, as_written_ns);
      one.ns = call.ns - std::min(call.ns, saved) + added;
    }
    std::sort(alternatives.begin(), alternatives.end(),
              [](const step::CallAlternative& a, const step::CallAlternative& b) {
                return a.ns != b.ns ? a.ns < b.ns : a.workspace < b.workspace;
              });
    Bytes least = kMaxBytes;
    std::erase_if(alternatives, [&](const step::CallAlternative& one) {
      const bool beaten =
          one.workspace >= least || (one.ns >= call.ns && one.workspace >= call.workspace);
      least = std::min(least, one.workspace);
      return beaten;
    });
    return alternatives;
  }

  std::map<std::string, AlgorithmCache> caches_;  // by file
};

SetupMutex offering;

}  // namespace

void offer_convolutions() {
  const std::lock_guard lock(offering);
  static auto* const convolutions = new Convolutions;
  step::offer_algorithms(*convolutions);
}

}  // namespace berth::torch::cudnn
