#pragma once

#include <cstdint>

// cuDNN's backend interface as berth uses it, by its public numbers: cuDNN 9's headers come only
// with its libraries, which are 700 MB, and libtorch has loaded those already. Where the headers
// are there, tests/torch/cudnn_headers_test.cc compares.
namespace berth::torch::cudnn {

using Handle = void*;         // cudnnHandle_t
using RawDescriptor = void*;  // cudnnBackendDescriptor_t

inline constexpr int kSuccess = 0;
inline constexpr std::size_t kMajor = 9;  // of the versions that these are the numbers of

enum class DataType : std::int32_t { kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 9 };

enum class DescriptorType : std::int32_t {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kForward = 10,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

enum class AttributeType : std::int32_t {
  kHandle = 0,
  kDataType = 1,
  kInt64 = 3,
  kFloat = 4,
  kDouble = 5,
  kVoidPointer = 6,
  kConvolutionMode = 7,
  kHeuristicsMode = 8,
  kKnobType = 9,
  kNumericalNote = 11,
  kDescriptor = 15,
};

enum class Attribute : std::int32_t {
  kConvolutionType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kConfigKnobs = 302,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kKnobType = 600,
  kKnobValue = 601,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConvolution = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataAlpha = 706,
  kBackwardDataBeta = 707,
  kBackwardDataConvolution = 708,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterAlpha = 712,
  kBackwardFilterBeta = 713,
  kBackwardFilterConvolution = 714,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNotes = 1303,
};

inline constexpr std::int32_t kCrossCorrelation = 1;  // what libtorch calls a convolution
inline constexpr std::int32_t kHeuristicsA = 3, kHeuristicsFallback = 2;
inline constexpr std::int32_t kNoteTensorCore = 0, kNoteNondeterministic = 4, kNotes = 10;

}  // namespace berth::torch::cudnn
