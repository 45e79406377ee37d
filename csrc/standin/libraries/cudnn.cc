// cuDNN's backend interface: descriptors that remember what was set, heuristics that offer three
// engines with workspaces of different sizes, plans that launch kernels which do nothing. And the
// sizes that batch normalisation asks for. Recurrent networks, CTC and the older convolution
// interface are in cudnn_sequences.cc and cudnn_older.cc.

#include "csrc/standin/api.h"
#include "csrc/standin/control.h"
#include "csrc/standin/libraries/cudnn_shapes.h"
#include "csrc/standin/library_handle.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace berth::standin {
namespace {

// Kinds of descriptors, types of attributes and their names, as cuDNN numbers them.
enum DescriptorType {
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kForward = 10,
  kBackwardFilter = 11,
  kBackwardData = 12,
  kTensor = 17,
  kMatmul = 19,
};
enum AttributeType {
  kHandleType = 0,
  kBooleanType = 2,
  kInt64Type = 3,
  kDoubleType = 5,
  kPointerType = 6,
  kDescriptorType = 15,
  kCharType = 24,
  kFractionType = 26,
};
enum AttributeName {
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kConfigWorkspace = 303,
  kConfigSharedMemory = 304,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kForwardY = 705,
  kBackwardDataDx = 710,
  kBackwardFilterDw = 715,
  kGraphOperations = 801,
  kGraphEngineCount = 802,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorId = 906,
  kTensorVirtual = 907,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
};

// Best guess first: a little workspace, none, much.
constexpr std::int64_t kHeuristicOrder[] = {1, 0, 2};

std::size_t bytes_of(int type) {
  switch (type) {
    case kHandleType:
    case kInt64Type:
    case kDoubleType:
    case kPointerType:
      return 8;
    case kBooleanType:
    case kCharType:
      return 1;
    case kFractionType:
      return 16;
    default:
      return 4;  // enumerations, float, int32
  }
}

struct Descriptor;

struct Attribute {
  int type = 0;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;
  std::vector<std::shared_ptr<Descriptor>> children;  // copies, so that the originals may go
};

struct Descriptor {
  int type = 0;
  std::map<int, Attribute> attributes;

  [[nodiscard]] const Attribute* find(int name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const Descriptor* child(int name) const {
    const Attribute* attribute = find(name);
    return attribute == nullptr || attribute->children.empty() ? nullptr
                                                               : attribute->children.front().get();
  }
  [[nodiscard]] std::int64_t number(int name, std::int64_t missing) const {
    const Attribute* attribute = find(name);
    if (attribute == nullptr || attribute->bytes.size() < 8) return missing;
    std::int64_t value = 0;
    std::memcpy(&value, attribute->bytes.data(), 8);
    return value;
  }
  void set_number(int name, std::int64_t value) {
    Attribute& attribute = attributes[name];
    attribute = {kInt64Type, 1, std::vector<std::byte>(8), {}};
    std::memcpy(attribute.bytes.data(), &value, 8);
  }
};

// Bytes of the largest and of all tensors that hang on a descriptor and lie in memory.
struct TensorBytes {
  std::int64_t largest = 0;
  std::int64_t sum = 0;
};

void add_tensors(const Descriptor& descriptor, TensorBytes& total) {
  if (descriptor.type == kTensor) {
    const Attribute* dimensions = descriptor.find(kTensorDimensions);
    const Attribute* const is_virtual = descriptor.find(kTensorVirtual);
    if (dimensions == nullptr) return;
    if (is_virtual != nullptr && !is_virtual->bytes.empty() && is_virtual->bytes[0] != std::byte{})
      return;
    // The exact type matters little for a plausible size.
    std::int64_t bytes = 4;
    for (std::size_t at = 0; at + 8 <= dimensions->bytes.size(); at += 8) {
      std::int64_t extent = 0;
      std::memcpy(&extent, dimensions->bytes.data() + at, 8);
      bytes *= extent;
    }
    total.largest = std::max(total.largest, bytes);
    total.sum += bytes;
    return;
  }
  for (const auto& [name, attribute] : descriptor.attributes) {
    for (const auto& child : attribute.children) add_tensors(*child, total);
  }
}

bool has_matmul(const Descriptor& descriptor) {
  if (descriptor.type == kMatmul) return true;
  for (const auto& [name, attribute] : descriptor.attributes)
    for (const auto& child : attribute.children)
      if (has_matmul(*child)) return true;
  return false;
}

// What an engine takes for a graph: nothing, the smaller tensors once, or the largest twice as for
// a transform. Attention is one kernel: what it sums up beside its results cudnn-frontend asks for.
std::int64_t workspace_of(std::int64_t engine, const Descriptor* graph) {
  if (graph == nullptr || engine == 0 || has_matmul(*graph)) return 0;
  TensorBytes tensors;
  add_tensors(*graph, tensors);
  const std::int64_t bytes = engine == 1 ? tensors.sum - tensors.largest : 2 * tensors.largest;
  return (std::min(bytes, std::int64_t{256} << 20) + 511) / 512 * 512;
}

const Descriptor* engine_of(const Descriptor& descriptor) {
  const Descriptor* config = descriptor.type == kPlan ? descriptor.child(kPlanConfig) : &descriptor;
  return config == nullptr ? nullptr : config->child(kConfigEngine);
}

std::int64_t workspace_of(const Descriptor& config_or_plan) {
  const Descriptor* engine = engine_of(config_or_plan);
  return engine == nullptr
             ? 0
             : workspace_of(engine->number(kEngineIndex, 0), engine->child(kEngineGraph));
}

// The tensor that a graph of one convolution makes; null for any other graph.
const Descriptor* made_by(const Descriptor* graph) {
  const Descriptor* operation = graph == nullptr ? nullptr : graph->child(kGraphOperations);
  if (operation == nullptr) return nullptr;
  switch (operation->type) {
    case kForward:
      return operation->child(kForwardY);
    case kBackwardFilter:
      return operation->child(kBackwardFilterDw);
    case kBackwardData:
      return operation->child(kBackwardDataDx);
    default:
      return nullptr;
  }
}

// What a variant pack says of a tensor's address; null where nothing.
void* address_of(const Descriptor& pack, const Descriptor& tensor) {
  const Attribute* ids = pack.find(kPackIds);
  const Attribute* pointers = pack.find(kPackPointers);
  if (ids == nullptr || pointers == nullptr) return nullptr;
  const std::int64_t wanted = tensor.number(kTensorId, 0);
  for (std::size_t at = 0; at + 8 <= std::min(ids->bytes.size(), pointers->bytes.size()); at += 8) {
    std::int64_t id = 0;
    void* pointer = nullptr;
    std::memcpy(&id, ids->bytes.data() + at, 8);
    std::memcpy(&pointer, pointers->bytes.data() + at, 8);
    if (id == wanted) return pointer;
  }
  return nullptr;
}

// Convolutions compute nothing, but leave a mark: the first element of the result is what their way
// of adding up gives, which is the same for the engines without a transform, and another for the
// one with.
int mark_result(StreamHandle stream, const Descriptor& engine, const Descriptor& pack) {
  const Descriptor* const made = made_by(engine.child(kEngineGraph));
  void* const pointer = made == nullptr ? nullptr : address_of(pack, *made);
  if (pointer == nullptr) return 0;
  const Attribute* const type = made->find(kTensorType);
  std::int32_t name = 0;
  if (type != nullptr && type->bytes.size() >= 4) std::memcpy(&name, type->bytes.data(), 4);
  constexpr int kSums = 0x3f, kTransforms = 0x3e;  // 0.75 and 0.19 in floats
  return cudaMemsetAsync(pointer, engine.number(kEngineIndex, 0) < 2 ? kSums : kTransforms,
                         element_bytes(name), stream);
}

// One of the configurations that heuristics find.
Descriptor config_for(std::int64_t engine_index, const Attribute& graph) {
  auto engine = std::make_shared<Descriptor>();
  engine->type = kEngine;
  engine->set_number(kEngineIndex, engine_index);
  engine->attributes[kEngineGraph] = graph;
  Descriptor config;
  config.type = kEngineConfig;
  config.attributes[kConfigEngine] = {kDescriptorType, 1, {}, {engine}};
  return config;
}

int give(std::int64_t value, std::int64_t wanted, std::int64_t* count, void* values) {
  if (count != nullptr) *count = 1;
  if (values != nullptr && wanted >= 1) std::memcpy(values, &value, 8);
  return 0;
}

int give_results(const Descriptor& heuristics, std::int64_t wanted, std::int64_t* count,
                 void* values) {
  const Attribute* graph = heuristics.find(kHeuristicsGraph);
  if (graph == nullptr) return kBadParam;
  const auto found = static_cast<std::int64_t>(std::size(kHeuristicOrder));
  const std::int64_t given = values == nullptr || wanted == 0 ? found : std::min(wanted, found);
  if (count != nullptr) *count = given;
  if (values != nullptr) {
    auto* const* targets = static_cast<Descriptor* const*>(values);
    for (std::int64_t i = 0; i < std::min(wanted, given); ++i)
      *targets[i] = config_for(kHeuristicOrder[i], *graph);
  }
  return 0;
}

}  // namespace

extern "C" {

int cudnnCreate(LibraryHandle** handle) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  *handle = new LibraryHandle;
  return 0;
}

int cudnnDestroy(LibraryHandle* handle) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  delete handle;
  return 0;
}

int cudnnSetStream(LibraryHandle* handle, StreamHandle stream) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  handle->stream = stream;
  return 0;
}

int cudnnGetStream(LibraryHandle* handle, StreamHandle* stream) {
  *stream = handle->stream;
  return 0;
}

std::size_t cudnnGetVersion() { return BERTH_STANDIN_CUDNN_VERSION; }
std::size_t cudnnGetCudartVersion() { return 13000; }

int cudnnGetProperty(int property, int* value) {
  constexpr int kVersion = BERTH_STANDIN_CUDNN_VERSION;
  *value = property == 0 ? kVersion / 10000 : property == 1 ? kVersion / 100 % 100 : kVersion % 100;
  return 0;
}

const char* cudnnGetErrorString(int status) {
  return status == 0 ? "CUDNN_STATUS_SUCCESS" : "the stand-in's cuDNN failed";
}

void cudnnGetLastErrorString(char* text, std::size_t size) {
  if (size != 0) *text = '\0';
}

int cudnnBackendCreateDescriptor(int type, Descriptor** descriptor) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  *descriptor = new Descriptor;
  (*descriptor)->type = type;
  return 0;
}

int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return 0;
}

int cudnnBackendSetAttribute(Descriptor* descriptor, int name, int type, std::int64_t count,
                             const void* values) {
  if (descriptor == nullptr || (values == nullptr && count != 0) || count < 0) return kBadParam;
  Attribute attribute{type, count, {}, {}};
  if (type == kDescriptorType) {
    const auto* children = static_cast<Descriptor* const*>(values);
    for (std::int64_t i = 0; i < count; ++i) {
      if (children[i] == nullptr) return kBadParam;
      attribute.children.push_back(std::make_shared<Descriptor>(*children[i]));
    }
  } else {
    const auto* bytes = static_cast<const std::byte*>(values);
    attribute.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * bytes_of(type));
  }
  descriptor->attributes[name] = std::move(attribute);
  return 0;
}

int cudnnBackendFinalize(Descriptor* descriptor) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  if (descriptor == nullptr) return kBadParam;
  if (descriptor->type == kEngine) {
    const std::int64_t index = descriptor->number(kEngineIndex, -1);
    if (index < 0 || index >= static_cast<std::int64_t>(std::size(kHeuristicOrder)))
      return kNotSupportedByCudnn;
  }
  return 0;
}

// What was set, what follows from it, or nothing: notes and knobs that no engine here has.
int cudnnBackendGetAttribute(Descriptor* descriptor, int name, int /*type*/, std::int64_t wanted,
                             std::int64_t* count, void* values) {
  if (descriptor == nullptr) return kBadParam;
  switch (name) {
    case kHeuristicsResults:
      return give_results(*descriptor, wanted, count, values);
    case kPlanWorkspace:
    case kConfigWorkspace:
      return give(workspace_of(*descriptor), wanted, count, values);
    case kGraphEngineCount:
      return give(static_cast<std::int64_t>(std::size(kHeuristicOrder)), wanted, count, values);
    case kConfigSharedMemory:  // an int32
      if (count != nullptr) *count = 1;
      if (values != nullptr && wanted >= 1) std::memset(values, 0, 4);
      return 0;
    default:
      break;
  }
  const Attribute* attribute = descriptor->find(name);
  if (attribute == nullptr) {
    if (count != nullptr) *count = 0;
    return 0;
  }
  if (count != nullptr) *count = attribute->count;
  if (values == nullptr) return 0;
  if (attribute->type == kDescriptorType) {
    auto* const* targets = static_cast<Descriptor* const*>(values);
    for (std::int64_t i = 0; i < std::min(wanted, attribute->count); ++i)
      *targets[i] = *attribute->children[static_cast<std::size_t>(i)];
  } else {
    const std::size_t size =
        static_cast<std::size_t>(std::min(wanted, attribute->count)) * bytes_of(attribute->type);
    std::memcpy(values, attribute->bytes.data(), size);
  }
  return 0;
}

// The more workspace, the fewer kernels, so that a benchmark of all engines has something to find.
// Each passes over all tensors once, at 1 TB/s.
int cudnnBackendExecute(LibraryHandle* handle, Descriptor* plan, Descriptor* pack) {
  if (const int status = berth_standin_enter(__func__); status != kSuccess) return status;
  const Descriptor* engine = plan == nullptr ? nullptr : engine_of(*plan);
  if (handle == nullptr || pack == nullptr || engine == nullptr) return kBadParam;
  const std::int64_t workspace = workspace_of(*plan);
  const auto* pointer = reinterpret_cast<const void*>(pack->number(kPackWorkspace, 0));
  if (workspace != 0 && pointer == nullptr) return kBadParam;
  const BerthStandinAccess access{pointer, static_cast<std::size_t>(workspace), 1};
  TensorBytes tensors;
  if (const Descriptor* const graph = engine->child(kEngineGraph)) add_tensors(*graph, tensors);
  for (std::int64_t kernel = engine->number(kEngineIndex, 0); kernel < 3; ++kernel) {
    const int status = berth_standin_launch_for(
        handle->stream, "cudnnBackendExecute", &access, workspace != 0 ? 1 : 0,
        static_cast<std::uint64_t>(std::max(tensors.sum, std::int64_t{0})) >> 20);
    if (status != 0) return status;
  }
  return mark_result(handle->stream, *engine, *pack);
}

// Batch normalisation: no workspace forward, some backward, a reserve of a bit an element is not
// asked for.
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, void*, void*, void*,
                                                             void*, void*, std::size_t* size) {
  *size = 0;
  return 0;
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, void*, void*, void*, void*,
                                                      void*, void*, void*, std::size_t* size) {
  *size = 64 << 10;
  return 0;
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*,
                                                         std::size_t* size) {
  *size = 4 << 10;
  return 0;
}

int cudnnDropoutGetStatesSize(void*, std::size_t* size) {
  *size = 4 << 20;
  return 0;
}

}  // extern "C"
}  // namespace berth::standin
