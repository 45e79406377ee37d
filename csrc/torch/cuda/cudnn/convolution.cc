#include "csrc/torch/cuda/cudnn/convolution.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace berth::torch::cudnn {

namespace {

enum : std::int64_t { kX = 'x', kW = 'w', kY = 'y' };  // ids in a variant pack

constexpr std::int64_t kMostKnobs = 64;

char letter(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return 'f';
    case DataType::kDouble:
      return 'd';
    case DataType::kHalf:
      return 'h';
    case DataType::kBFloat16:
      return 'b';
  }
  return '?';
}

Descriptor tensor(const Calls& calls, const TensorShape& shape, std::int64_t id) {
  Descriptor one(calls, DescriptorType::kTensor);
  one.set(Attribute::kTensorType, AttributeType::kDataType, static_cast<std::int32_t>(shape.type))
      .set(Attribute::kTensorDimensions, shape.sizes)
      .set(Attribute::kTensorStrides, shape.strides)
      .set(Attribute::kTensorId, id)
      .set(Attribute::kTensorAlignment, shape.alignment)
      .finalize();
  return one;
}

// How the attributes of an operation are called.
struct Names {
  DescriptorType type;
  Attribute alpha, beta, convolution, w, x, y;
};

constexpr Names names_of(Convolution::Kind kind) {
  switch (kind) {
    case Convolution::Kind::kForward:
      break;
    case Convolution::Kind::kBackwardData:
      return {DescriptorType::kBackwardData, Attribute::kBackwardDataAlpha,
              Attribute::kBackwardDataBeta,  Attribute::kBackwardDataConvolution,
              Attribute::kBackwardDataW,     Attribute::kBackwardDataDx,
              Attribute::kBackwardDataDy};
    case Convolution::Kind::kBackwardFilter:
      return {DescriptorType::kBackwardFilter, Attribute::kBackwardFilterAlpha,
              Attribute::kBackwardFilterBeta,  Attribute::kBackwardFilterConvolution,
              Attribute::kBackwardFilterDw,    Attribute::kBackwardFilterX,
              Attribute::kBackwardFilterDy};
  }
  return {DescriptorType::kForward, Attribute::kForwardAlpha,
          Attribute::kForwardBeta,  Attribute::kForwardConvolution,
          Attribute::kForwardW,     Attribute::kForwardX,
          Attribute::kForwardY};
}

// The operation graph of one convolution. What it is made of must live as long.
struct Graph {
  Graph(const Calls& calls, Handle handle, const Convolution& of)
      : x(tensor(calls, of.x, kX)),
        w(tensor(calls, of.w, kW)),
        y(tensor(calls, of.y, kY)),
        convolution(calls, DescriptorType::kConvolution),
        operation(calls, names_of(of.kind).type),
        graph(calls, DescriptorType::kOperationGraph) {
    const DataType type = of.x.type == DataType::kDouble ? DataType::kDouble : DataType::kFloat;
    convolution
        .set(Attribute::kConvolutionType, AttributeType::kDataType, static_cast<std::int32_t>(type))
        .set(Attribute::kConvolutionMode, AttributeType::kConvolutionMode, kCrossCorrelation)
        .set(Attribute::kConvolutionSpatialDims, static_cast<std::int64_t>(of.stride.size()))
        .set(Attribute::kConvolutionStrides, of.stride)
        .set(Attribute::kConvolutionPrePaddings, of.padding)
        .set(Attribute::kConvolutionPostPaddings, of.padding)
        .set(Attribute::kConvolutionDilations, of.dilation)
        .finalize();
    const Names names = names_of(of.kind);
    operation.set(names.convolution, convolution).set(names.x, x).set(names.w, w).set(names.y, y);
    const float one = 1, zero = 0;
    const double wide_one = 1, wide_zero = 0;
    if (type == DataType::kDouble)
      operation.set(names.alpha, AttributeType::kDouble, 1, &wide_one)
          .set(names.beta, AttributeType::kDouble, 1, &wide_zero);
    else
      operation.set(names.alpha, AttributeType::kFloat, 1, &one)
          .set(names.beta, AttributeType::kFloat, 1, &zero);
    operation.finalize();
    graph.set(Attribute::kGraphHandle, AttributeType::kHandle, 1, &handle)
        .set(Attribute::kGraphOperations, operation)
        .finalize();
  }
  [[nodiscard]] bool good() const {
    return x.good() && w.good() && y.good() && convolution.good() && operation.good() &&
           graph.good();
  }
  Descriptor x, w, y, convolution, operation, graph;
};

// Whether libtorch would run the engine, too: the same that it leaves out.
bool may_run(const Descriptor& engine, const Convolution& of) {
  const std::vector<std::int32_t> notes =
      engine.enumerators(Attribute::kEngineNotes, AttributeType::kNumericalNote, kNotes);
  const auto has = [&](std::int32_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (of.deterministic && has(kNoteNondeterministic)) return false;
  return of.x.type != DataType::kFloat || of.tensor_cores || !has(kNoteTensorCore);
}

// Of a configuration: its engine and knobs; nothing where cuDNN does not say.
std::optional<std::string> name_of(const Descriptor& config, const Convolution& of) {
  const std::vector<Descriptor> engines =
      config.descriptors(Attribute::kConfigEngine, DescriptorType::kEngine, 1);
  std::int64_t index = 0;
  if (engines.size() != 1 || !engines.front().get(Attribute::kEngineIndex, &index) ||
      !may_run(engines.front(), of))
    return std::nullopt;
  std::vector<std::pair<std::int32_t, std::int64_t>> knobs;
  for (const Descriptor& knob :
       config.descriptors(Attribute::kConfigKnobs, DescriptorType::kKnobChoice, kMostKnobs)) {
    const std::vector<std::int32_t> type =
        knob.enumerators(Attribute::kKnobType, AttributeType::kKnobType, 1);
    std::int64_t value = 0;
    if (type.size() != 1 || !knob.get(Attribute::kKnobValue, &value)) return std::nullopt;
    knobs.emplace_back(type.front(), value);
  }
  std::sort(knobs.begin(), knobs.end());
  std::string name = std::to_string(index);
  for (const auto& [type, value] : knobs)
    name += fmt::format("{}{}={}", &type == &knobs.front().first ? ':' : ';', type, value);
  return name;
}

// What an engine takes, with knobs as they are named.
struct Wanted {
  std::int64_t engine = 0;
  std::vector<std::pair<std::int32_t, std::int64_t>> knobs;
};

std::optional<Wanted> wanted_by(std::string_view name) {
  Wanted wanted;
  const char* at = name.data();
  const char* const end = at + name.size();
  const auto number = [&](auto& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc();
  };
  if (!number(wanted.engine)) return std::nullopt;
  for (char separator = ':'; at != end; separator = ';') {
    auto& [type, value] = wanted.knobs.emplace_back();
    if (*at++ != separator || !number(type) || at == end || *at++ != '=' || !number(value))
      return std::nullopt;
  }
  return wanted;
}

struct Built {
  Descriptor plan;
  std::int64_t workspace = 0;
};

std::optional<Built> build(const Calls& calls, Handle handle, const Descriptor& config) {
  Built built{Descriptor(calls, DescriptorType::kExecutionPlan)};
  built.plan.set(Attribute::kPlanHandle, AttributeType::kHandle, 1, &handle)
      .set(Attribute::kPlanConfig, config)
      .finalize();
  if (!built.plan.good() || !built.plan.get(Attribute::kPlanWorkspace, &built.workspace) ||
      built.workspace < 0)
    return std::nullopt;
  return built;
}

}  // namespace

std::string TensorShape::text() const {
  return fmt::format("{}{}/{}a{}", letter(type), fmt::join(sizes, "x"), fmt::join(strides, "x"),
                     alignment);
}

std::string Convolution::text() const {
  static constexpr std::array<std::string_view, 3> kKinds = {"forward", "data", "filter"};
  return fmt::format("{} {} {} {} s{} p{} d{}{}{}", kKinds.at(static_cast<std::size_t>(kind)),
                     x.text(), w.text(), y.text(), fmt::join(stride, "x"), fmt::join(padding, "x"),
                     fmt::join(dilation, "x"), deterministic ? " deterministic" : "",
                     x.type == DataType::kFloat && tensor_cores ? " tf32" : "");
}

bool ConvolutionPlan::run(Handle handle, void* x, void* w, void* y, void* workspace) const {
  Descriptor pack(*calls_, DescriptorType::kVariantPack);
  void* const pointers[] = {x, w, y};
  const std::int64_t ids[] = {kX, kW, kY};
  pack.set(Attribute::kPackPointers, AttributeType::kVoidPointer, 3, pointers)
      .set(Attribute::kPackIds, ids)
      .set(Attribute::kPackWorkspace, AttributeType::kVoidPointer, 1, &workspace)
      .finalize();
  return pack.good() && calls_->execute(handle, plan_.raw(), pack.raw()) == kSuccess;
}

std::vector<ConvolutionPlan> plans_of(const Calls& calls, Handle handle,
                                      const Convolution& convolution, std::size_t most) {
  std::vector<ConvolutionPlan> plans;
  const Graph of(calls, handle, convolution);
  if (!of.good()) return plans;
  std::set<std::string> names;
  for (const std::int32_t mode : {kHeuristicsA, kHeuristicsFallback}) {
    Descriptor heuristics(calls, DescriptorType::kEngineHeuristics);
    heuristics.set(Attribute::kHeuristicsGraph, of.graph)
        .set(Attribute::kHeuristicsMode, AttributeType::kHeuristicsMode, mode)
        .finalize();
    for (const Descriptor& config :
         heuristics.descriptors(Attribute::kHeuristicsResults, DescriptorType::kEngineConfig,
                                static_cast<std::int64_t>(most))) {
      std::optional<std::string> name = name_of(config, convolution);
      if (plans.size() == most || !name || names.contains(*name)) continue;
      std::optional<Built> built = build(calls, handle, config);
      if (!built) continue;
      names.insert(*name);
      plans.push_back(ConvolutionPlan(calls, std::move(built->plan), std::move(*name),
                                      static_cast<Bytes>(built->workspace)));
    }
  }
  return plans;
}

std::unique_ptr<ConvolutionPlan> plan_of(const Calls& calls, Handle handle,
                                         const Convolution& convolution, const std::string& name) {
  const std::optional<Wanted> wanted = wanted_by(name);
  const Graph of(calls, handle, convolution);
  if (!wanted || !of.good()) return nullptr;
  Descriptor engine(calls, DescriptorType::kEngine);
  engine.set(Attribute::kEngineGraph, of.graph)
      .set(Attribute::kEngineIndex, wanted->engine)
      .finalize();
  std::vector<Descriptor> knobs;
  for (const auto& [type, value] : wanted->knobs)
    knobs.emplace_back(calls, DescriptorType::kKnobChoice)
        .set(Attribute::kKnobType, AttributeType::kKnobType, type)
        .set(Attribute::kKnobValue, value)
        .finalize();
  Descriptor config(calls, DescriptorType::kEngineConfig);
  config.set(Attribute::kConfigEngine, engine);
  if (!knobs.empty()) config.set(Attribute::kConfigKnobs, knobs);
  config.finalize();
  if (!engine.good() || !config.good() || !may_run(engine, convolution)) return nullptr;
  std::optional<Built> built = build(calls, handle, config);
  if (!built) return nullptr;
  return std::unique_ptr<ConvolutionPlan>(new ConvolutionPlan(
      calls, std::move(built->plan), name, static_cast<Bytes>(built->workspace)));
}

}  // namespace berth::torch::cudnn
