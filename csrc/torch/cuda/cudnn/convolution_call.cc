#include "csrc/torch/cuda/cudnn/convolution_call.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

namespace berth::torch::cudnn {

namespace {

using step::Call;
using step::Operand;

constexpr std::int64_t kMostAlignment = 32;  // that libtorch tells cuDNN of

std::optional<DataType> type_of(const Operand& operand) {
  switch (c10::typeMetaToScalarType(operand.type)) {
    case c10::ScalarType::Float:
      return DataType::kFloat;
    case c10::ScalarType::Double:
      return DataType::kDouble;
    case c10::ScalarType::Half:
      return DataType::kHalf;
    case c10::ScalarType::BFloat16:
      return DataType::kBFloat16;
    default:
      return std::nullopt;
  }
}

// Whether each byte of the tensor's range is of one element.
bool dense(const Operand& operand) {
  std::vector<std::pair<std::int64_t, std::int64_t>> by_stride;
  for (std::size_t n = 0; n < operand.sizes.size(); ++n) {
    if (operand.sizes[n] < 1) return false;
    if (operand.sizes[n] > 1) by_stride.emplace_back(operand.strides[n], operand.sizes[n]);
  }
  std::sort(by_stride.begin(), by_stride.end());
  std::int64_t elements = 1;
  for (const auto& [stride, size] : by_stride) {
    if (stride != elements) return false;
    elements *= size;
  }
  return true;
}

std::optional<TensorShape> shape_of(const Operand& operand) {
  if (operand.storage == step::kNoStorage || operand.sizes.size() < 4 || operand.sizes.size() > 5 ||
      !dense(operand))
    return std::nullopt;
  const std::optional<DataType> type = type_of(operand);
  if (!type) return std::nullopt;
  TensorShape shape;
  shape.type = *type;
  shape.sizes.assign(operand.sizes.begin(), operand.sizes.end());
  shape.strides.assign(operand.strides.begin(), operand.strides.end());
  const std::int64_t offset = operand.offset * static_cast<std::int64_t>(operand.type.itemsize());
  shape.alignment = offset == 0 ? kMostAlignment : std::min(kMostAlignment, offset & -offset);
  return shape;
}

// A list of one number, or one for each dimension of space.
bool read_list(const Call& call, std::size_t argument, std::size_t space,
               std::vector<std::int64_t>* numbers) {
  const c10::IValue& value = call.arguments[argument].value;
  if (!value.isIntList()) return false;
  *numbers = value.toIntVector();
  if (numbers->size() == 1) numbers->resize(space, numbers->front());
  return numbers->size() == space;
}

bool flag(const Call& call, std::size_t argument) {
  const c10::IValue& value = call.arguments[argument].value;
  return value.isBool() && value.toBool();
}

const Operand& at(const Call& call, const Place& place) {
  return place.result ? call.result_tensors[place.number].operand : call.operands[place.number];
}

class Reader {
 public:
  explicit Reader(const Call& call) : call_(call) {}

  // The geometry of what follows, by its arguments' numbers.
  bool read(std::size_t stride, std::size_t padding, std::size_t dilation,
            const ConvolutionMode& mode) {
    const std::size_t dimensions = call_.operands[0].sizes.size();
    if (dimensions < 4 || dimensions > 5) return false;
    common_.deterministic = mode.deterministic;
    common_.tensor_cores = mode.tf32;
    return read_list(call_, stride, dimensions - 2, &common_.stride) &&
           read_list(call_, padding, dimensions - 2, &common_.padding) &&
           read_list(call_, dilation, dimensions - 2, &common_.dilation);
  }
  bool add(Convolution::Kind kind, Place x, Place w, Place y) {
    Piece& piece = found_.pieces.emplace_back();
    piece = {common_, x, w, y};
    piece.convolution.kind = kind;
    const auto shape = [&](const Place& place, TensorShape* of) {
      if (place.result && call_.result_tensors[place.number].argument != step::ResultTensor::kNew)
        return false;
      const std::optional<TensorShape> one = shape_of(at(call_, place));
      if (one) *of = *one;
      return one && one->type == type_of(call_.operands[0]);
    };
    return shape(x, &piece.convolution.x) && shape(w, &piece.convolution.w) &&
           shape(y, &piece.convolution.y);
  }
  ConvolutionCall& found() { return found_; }

 private:
  const Call& call_;
  Convolution common_;
  ConvolutionCall found_;
};

constexpr Place operand(std::uint32_t n) { return {false, n}; }
constexpr Place result(std::uint32_t n) { return {true, n}; }

using Kind = Convolution::Kind;

std::optional<ConvolutionCall> forward(const Call& call, const ConvolutionMode& mode) {
  Reader reader(call);
  // input, weight, bias, stride, padding, dilation, transposed, output padding, groups
  if (call.arguments.size() != 9 || call.operands.size() != 3 || call.result_tensors.size() != 1 ||
      !reader.read(3, 4, 5, mode))
    return std::nullopt;
  if (!(flag(call, 6) ? reader.add(Kind::kBackwardData, result(0), operand(1), operand(0))
                      : reader.add(Kind::kForward, operand(0), operand(1), result(0))))
    return std::nullopt;
  if (call.operands[2].storage != step::kNoStorage) reader.found().bias = 2;
  return std::move(reader.found());
}

std::optional<ConvolutionCall> backward(const Call& call, const ConvolutionMode& mode) {
  Reader reader(call);
  // gradient, input, weight, sizes of the bias, stride, padding, dilation, transposed, output
  // padding, groups, mask
  if (call.arguments.size() != 11 || call.operands.size() != 3 || call.result_tensors.size() != 3 ||
      !reader.read(4, 5, 6, mode))
    return std::nullopt;
  const auto wanted = [&](std::size_t n) {
    return call.result_tensors[n].operand.storage != step::kNoStorage;
  };
  const bool transposed = flag(call, 7);
  if (wanted(0) &&
      !(transposed ? reader.add(Kind::kForward, operand(0), operand(2), result(0))
                   : reader.add(Kind::kBackwardData, result(0), operand(2), operand(0))))
    return std::nullopt;
  if (wanted(1) &&
      !(transposed ? reader.add(Kind::kBackwardFilter, operand(0), result(1), operand(1))
                   : reader.add(Kind::kBackwardFilter, operand(1), result(1), operand(0))))
    return std::nullopt;
  if (wanted(2)) reader.found().bias_gradient = 2;
  if (reader.found().pieces.empty()) return std::nullopt;
  return std::move(reader.found());
}

std::optional<ConvolutionCall> plain(const Call& call) {
  Reader reader(call);
  // self, weight, padding, stride, dilation, groups, benchmark, deterministic, allow TF32
  if (call.arguments.size() != 9 || call.operands.size() != 2 || call.result_tensors.size() != 1 ||
      !reader.read(3, 2, 4, {flag(call, 7), flag(call, 8)}) ||
      !reader.add(Kind::kForward, operand(0), operand(1), result(0)))
    return std::nullopt;
  return std::move(reader.found());
}

}  // namespace

std::string ConvolutionCall::text() const {
  std::string all;
  for (const Piece& piece : pieces) all += (all.empty() ? "" : "|") + piece.convolution.text();
  if (bias) all += "|bias";
  if (bias_gradient) all += "|bias gradient";
  return all;
}

std::optional<ConvolutionCall> convolution_call(const Call& call, const ConvolutionMode& mode) {
  const c10::OperatorName& name = call.op.operator_name();
  if (!name.overload_name.empty()) return std::nullopt;
  if (name.name == "aten::convolution") return forward(call, mode);
  if (name.name == "aten::convolution_backward") return backward(call, mode);
  if (name.name == "aten::cudnn_convolution") return plain(call);
  return std::nullopt;
}

}  // namespace berth::torch::cudnn
