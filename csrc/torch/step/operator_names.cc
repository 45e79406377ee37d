#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/record.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace berth::torch::step {

namespace {

// What a program did where one of berth's own operators is called: no user knows these.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kWords = {{
    {kReadBytes, "a read of a tensor's bytes"},
    {kShareBytes, "numpy() or the like"},
    {kGivePointer, "data_ptr() or DLPack"},
    {kResizeStorage, "UntypedStorage.resize_()"},
    {kReadGenerators, "a read of a generator's state"},
    {kSeedGenerators, "a seed of a generator"},
    {kOrderStreams, "an event or a stream"},
    {"berth::wait_for_device", "a wait for a stream or a device"},
    {"berth::use_bytes", "what a compiled graph or NCCL takes"},
    {"berth::run_within", "a compiled graph or NCCL"},
    {"berth::call_function", "a function of an extension module"},
}};

}  // namespace

std::string name_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + '.' + name.overload_name;
}

std::string words_of(const c10::OperatorHandle& op) {
  const auto* const known = std::find_if(kWords.begin(), kWords.end(), [&](const auto& one) {
    return one.first == op.operator_name().name;
  });
  return known == kWords.end() ? name_of(op) : std::string(known->second);
}

}  // namespace berth::torch::step
