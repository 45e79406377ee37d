#include "csrc/torch/step/roofline_times.h"

#include "csrc/core/check.h"
#include "csrc/graph/roofline.h"

#include <ATen/EmptyTensor.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace berth::torch::step {
namespace {

// "FLOPS,FLOPS OF 16-BIT NUMBERS,BYTES", each a second.
std::optional<graph::Roofline> roofline_of_environment() {
  const char* const text = std::getenv("BERTH_STANDIN_ROOFLINE");
  if (text == nullptr || *text == '\0') return std::nullopt;
  graph::Roofline device;
  const int read = std::sscanf(text, "%lf,%lf,%lf", &device.flops_per_second,
                               &device.half_flops_per_second, &device.bytes_per_second);
  BERTH_CHECK(read == 3 && device.flops_per_second > 0 && device.bytes_per_second > 0, kUsage,
              "BERTH_STANDIN_ROOFLINE is '{}'; three numbers are wanted, with commas between them",
              text);
  return device;
}

graph::RooflineOperand operand_of(const Operand& operand, std::size_t position, bool output) {
  return {.shape = {operand.sizes.data(), operand.sizes.size()},
          .bytes = at::detail::computeStorageNbytes(operand.sizes, operand.strides,
                                                    operand.type.itemsize()),
          .output = output,
          .position = static_cast<std::uint16_t>(position),
          .half = operand.type.itemsize() == 2};
}

std::uint64_t ns_of(const Call& call, const graph::Roofline& device) {
  std::vector<graph::RooflineOperand> operands;
  std::size_t next = 0;
  for (std::size_t k = 0; k < call.arguments.size(); ++k)
    for (std::uint32_t n = 0; n < call.arguments[k].tensors; ++n, ++next)
      if (call.operands[next].storage != kNoStorage)
        operands.push_back(operand_of(call.operands[next], k, false));
  next = 0;
  for (std::size_t k = 0; k < call.results.size(); ++k)
    for (std::uint32_t n = 0; n < call.results[k].tensors; ++n, ++next)
      if (const ResultTensor& made = call.result_tensors[next];
          made.argument == ResultTensor::kNew && made.operand.storage != kNoStorage)
        operands.push_back(operand_of(made.operand, k, true));
  return graph::ns_by_roofline(name_of(call.op), operands, device);
}

}  // namespace

void time_by_roofline(Program& program) {
  const std::optional<graph::Roofline> device = roofline_of_environment();
  if (!device) return;
  for (Call& call : program.calls) call.ns = ns_of(call, *device);
}

}  // namespace berth::torch::step
