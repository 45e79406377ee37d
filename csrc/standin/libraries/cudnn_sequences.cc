// cuDNN's recurrent networks and its CTC loss: sizes of weights, workspaces and of what training
// keeps, where each matrix and bias lies, and kernels that do nothing. Weights lie as libtorch's
// check of them wants it: for each layer and direction the matrices of the input, then those of the
// state, then a projection; all biases behind them in the same order.

#include "csrc/standin/control.h"
#include "csrc/standin/libraries/cudnn_shapes.h"
#include "csrc/standin/library_handle.h"

#include <algorithm>
#include <initializer_list>

namespace berth::standin {
namespace {

enum Cell { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };
enum Bias { kNoBias = 0, kDoubleBias = 2 };

struct RnnDescriptor {
  int cell = kTanh, bias = kDoubleBias, type = 0;
  std::int64_t directions = 1, inputs = 0, hidden = 0, projected = 0, layers = 0;
  bool skips_input = false;

  [[nodiscard]] std::int64_t gates() const { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }
  [[nodiscard]] std::int64_t outputs() const { return projected > 0 ? projected : hidden; }
  [[nodiscard]] bool projects() const { return projected > 0 && projected != hidden; }
  [[nodiscard]] std::int64_t pseudo_layers() const { return layers * directions; }
  [[nodiscard]] std::int64_t inputs_of(std::int64_t pseudo_layer) const {
    if (pseudo_layer < directions) return skips_input ? 0 : inputs;
    return outputs() * directions;
  }
  // Of the input's matrices, then the state's, then the projection's.
  [[nodiscard]] std::int64_t matrix_rows(std::int64_t id) const {
    return id == 2 * gates() ? outputs() : hidden;
  }
  [[nodiscard]] std::int64_t matrix_columns(std::int64_t pseudo_layer, std::int64_t id) const {
    return id < gates() ? inputs_of(pseudo_layer) : id < 2 * gates() ? outputs() : hidden;
  }
  [[nodiscard]] std::int64_t matrices() const { return 2 * gates() + (projects() ? 1 : 0); }
  // Elements before a matrix; those of all where the layer is behind the last.
  [[nodiscard]] std::int64_t matrix_begin(std::int64_t pseudo_layer, std::int64_t id) const {
    std::int64_t before = 0;
    for (std::int64_t layer = 0; layer <= std::min(pseudo_layer, pseudo_layers() - 1); ++layer)
      for (std::int64_t one = 0; one < (layer == pseudo_layer ? id : matrices()); ++one)
        before += matrix_rows(one) * matrix_columns(layer, one);
    return before;
  }
  [[nodiscard]] std::int64_t biases() const {
    return bias == kNoBias ? 0 : bias == kDoubleBias ? 2 * gates() : gates();
  }
  [[nodiscard]] std::int64_t bias_begin(std::int64_t pseudo_layer, std::int64_t id) const {
    return matrix_begin(pseudo_layers(), 0) + (pseudo_layer * biases() + id) * hidden;
  }
  [[nodiscard]] std::size_t weight_bytes() const {
    return static_cast<std::size_t>(bias_begin(pseudo_layers(), 0)) * element_bytes(type);
  }
};

struct RnnDataDescriptor {
  int type = 0;
  std::int64_t steps = 0, batch = 0, width = 0;
};

// What a pass takes meanwhile: the products of a layer's inputs with all its gates.
std::size_t workspace_of(const RnnDescriptor& rnn, const RnnDataDescriptor& x) {
  return whole_pages(
      static_cast<std::size_t>(x.steps * x.batch * rnn.gates() * rnn.hidden * rnn.directions) *
      element_bytes(rnn.type));
}

// What training keeps of each layer: its gates, its state and what it gave on.
std::size_t reserve_of(const RnnDescriptor& rnn, const RnnDataDescriptor& x) {
  const std::int64_t kept = rnn.gates() + (rnn.cell == kLstm ? 2 : 1);
  return whole_pages(static_cast<std::size_t>(x.steps * x.batch * kept * rnn.hidden *
                                              rnn.directions * rnn.layers) *
                     element_bytes(rnn.type));
}

void describe(ShapeDescriptor* shape, int type, std::int64_t rows, std::int64_t columns) {
  shape->type = type;
  shape->sizes = {1, static_cast<int>(rows), static_cast<int>(columns)};
  shape->strides = {static_cast<int>(rows * columns), static_cast<int>(columns), 1};
}

struct Room {
  const void* pointer;
  std::size_t size, needed;
};

// One kernel for each layer, which writes its room.
int launch(LibraryHandle* handle, const char* name, const RnnDescriptor* rnn,
           std::initializer_list<Room> rooms) {
  if (handle == nullptr || rnn == nullptr) return kBadParam;
  BerthStandinAccess accesses[2];
  std::size_t count = 0;
  for (const Room& room : rooms) {
    if (room.size < room.needed || (room.needed != 0 && room.pointer == nullptr)) return kBadParam;
    if (room.needed != 0) accesses[count++] = {room.pointer, room.needed, 1};
  }
  for (std::int64_t layer = 0; layer < rnn->layers; ++layer)
    if (const int status = berth_standin_launch(handle->stream, name, accesses, count); status != 0)
      return status;
  return 0;
}

// The loss's workspace: a table of its paths forward and backward, of twice the longest label.
std::size_t ctc_workspace(const ShapeDescriptor& probabilities, std::int64_t longest) {
  const std::int64_t steps = probabilities.sizes.empty() ? 0 : probabilities.sizes[0];
  const std::int64_t batch = probabilities.sizes.size() < 2 ? 0 : probabilities.sizes[1];
  return whole_pages(bytes_of(probabilities) +
                     static_cast<std::size_t>(2 * steps * batch * (2 * longest + 1)) * 4);
}

constexpr int kMostLabel = 256;  // that cuDNN's loss takes where nobody says less

struct CtcDescriptor {
  int longest = kMostLabel;
};

}  // namespace

extern "C" {

int cudnnCreateRNNDescriptor(RnnDescriptor** descriptor) {
  *descriptor = new RnnDescriptor;
  return 0;
}
int cudnnDestroyRNNDescriptor(RnnDescriptor* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnSetRNNDescriptor_v8(RnnDescriptor* rnn, int, int cell, int bias, int direction, int input,
                             int type, int, int, std::int32_t inputs, std::int32_t hidden,
                             std::int32_t projected, std::int32_t layers, void*, std::uint32_t) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (rnn == nullptr || inputs < 1 || hidden < 1 || projected < 0 || layers < 1) return kBadParam;
  *rnn = {.cell = cell,
          .bias = bias,
          .type = type,
          .directions = direction == 0 ? 1 : 2,
          .inputs = inputs,
          .hidden = hidden,
          .projected = projected,
          .layers = layers,
          .skips_input = input != 0};
  return 0;
}

int cudnnCreateRNNDataDescriptor(RnnDataDescriptor** descriptor) {
  *descriptor = new RnnDataDescriptor;
  return 0;
}
int cudnnDestroyRNNDataDescriptor(RnnDataDescriptor* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnSetRNNDataDescriptor(RnnDataDescriptor* data, int type, int, int steps, int batch,
                              int width, const int*, void*) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (data == nullptr || steps < 1 || batch < 1 || width < 1) return kBadParam;
  *data = {type, steps, batch, width};
  return 0;
}

int cudnnGetRNNWeightSpaceSize(LibraryHandle*, const RnnDescriptor* rnn, std::size_t* size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (rnn == nullptr) return kBadParam;
  *size = rnn->weight_bytes();
  return 0;
}

int cudnnGetRNNTempSpaceSizes(LibraryHandle*, const RnnDescriptor* rnn, int mode,
                              const RnnDataDescriptor* x, std::size_t* workspace,
                              std::size_t* reserve) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (rnn == nullptr || x == nullptr) return kBadParam;
  if (workspace != nullptr) *workspace = workspace_of(*rnn, *x);
  if (reserve != nullptr) *reserve = mode == 0 ? 0 : reserve_of(*rnn, *x);
  return 0;
}

int cudnnGetRNNWeightParams(LibraryHandle*, const RnnDescriptor* rnn, std::int32_t pseudo_layer,
                            std::size_t size, const void* weights, std::int32_t id,
                            ShapeDescriptor* matrix, void** matrix_address, ShapeDescriptor* bias,
                            void** bias_address) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (rnn == nullptr || pseudo_layer < 0 || pseudo_layer >= rnn->pseudo_layers() || id < 0 ||
      size < rnn->weight_bytes())
    return kBadParam;
  const auto address = [&](std::int64_t elements) {
    return static_cast<char*>(const_cast<void*>(weights)) +
           elements * static_cast<std::int64_t>(element_bytes(rnn->type));
  };
  // Whoever wants one of the two asks for no other.
  if (matrix_address != nullptr) {
    const bool there = id < rnn->matrices();
    *matrix_address = there ? address(rnn->matrix_begin(pseudo_layer, id)) : nullptr;
    if (there && matrix != nullptr)
      describe(matrix, rnn->type, rnn->matrix_rows(id), rnn->matrix_columns(pseudo_layer, id));
  }
  if (bias_address != nullptr) {
    const bool there = id < rnn->biases();
    *bias_address = there ? address(rnn->bias_begin(pseudo_layer, id)) : nullptr;
    if (there && bias != nullptr) describe(bias, rnn->type, rnn->hidden, 1);
  }
  return 0;
}

int cudnnRNNForward(LibraryHandle* handle, const RnnDescriptor* rnn, int mode, const std::int32_t*,
                    const RnnDataDescriptor* x, const void*, const RnnDataDescriptor*, void*,
                    const void*, const void*, void*, const void*, const void*, void*, std::size_t,
                    const void*, std::size_t workspace_size, void* workspace,
                    std::size_t reserve_size, void* reserve) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (rnn == nullptr || x == nullptr) return kBadParam;
  return launch(handle, __func__, rnn,
                {{workspace, workspace_size, workspace_of(*rnn, *x)},
                 {reserve, reserve_size, mode == 0 ? 0 : reserve_of(*rnn, *x)}});
}

int cudnnRNNBackwardData_v8(LibraryHandle* handle, const RnnDescriptor* rnn, const std::int32_t*,
                            const RnnDataDescriptor*, const void*, const void*,
                            const RnnDataDescriptor* x, void*, const void*, const void*,
                            const void*, void*, const void*, const void*, const void*, void*,
                            std::size_t, const void*, std::size_t workspace_size, void* workspace,
                            std::size_t reserve_size, void* reserve) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (rnn == nullptr || x == nullptr) return kBadParam;
  return launch(handle, __func__, rnn,
                {{workspace, workspace_size, workspace_of(*rnn, *x)},
                 {reserve, reserve_size, reserve_of(*rnn, *x)}});
}

int cudnnRNNBackwardWeights_v8(LibraryHandle* handle, const RnnDescriptor* rnn, int,
                               const std::int32_t*, const RnnDataDescriptor* x, const void*,
                               const void*, const void*, const RnnDataDescriptor*, const void*,
                               std::size_t, void*, std::size_t workspace_size, void* workspace,
                               std::size_t reserve_size, void* reserve) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (rnn == nullptr || x == nullptr) return kBadParam;
  return launch(handle, __func__, rnn,
                {{workspace, workspace_size, workspace_of(*rnn, *x)},
                 {reserve, reserve_size, reserve_of(*rnn, *x)}});
}

int cudnnCreateCTCLossDescriptor(CtcDescriptor** descriptor) {
  *descriptor = new CtcDescriptor;
  return 0;
}
int cudnnDestroyCTCLossDescriptor(CtcDescriptor* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnSetCTCLossDescriptor_v9(CtcDescriptor* descriptor, int, int, int, int longest) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (descriptor == nullptr || longest < 0) return kBadParam;
  descriptor->longest = longest;
  return 0;
}

int cudnnGetCTCLossWorkspaceSize(LibraryHandle*, const ShapeDescriptor* probabilities, const void*,
                                 const int*, const int* lengths, const int*, int,
                                 const CtcDescriptor*, std::size_t* size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (probabilities == nullptr || probabilities->sizes.size() < 2 || lengths == nullptr)
    return kBadParam;
  *size =
      ctc_workspace(*probabilities, *std::max_element(lengths, lengths + probabilities->sizes[1]));
  return 0;
}
int cudnnGetCTCLossWorkspaceSize_v8(LibraryHandle*, int, const CtcDescriptor* descriptor,
                                    const ShapeDescriptor* probabilities, const void*,
                                    std::size_t* size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (probabilities == nullptr || descriptor == nullptr) return kBadParam;
  *size = ctc_workspace(*probabilities, descriptor->longest);
  return 0;
}

int cudnnCTCLoss(LibraryHandle* handle, const ShapeDescriptor*, const void*, const int*, const int*,
                 const int*, void*, const ShapeDescriptor*, void*, int, const CtcDescriptor*,
                 void* workspace, std::size_t size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (handle == nullptr || (size != 0 && workspace == nullptr)) return kBadParam;
  const BerthStandinAccess access{workspace, size, 1};
  return berth_standin_launch(handle->stream, __func__, &access, size != 0 ? 1 : 0);
}
int cudnnCTCLoss_v8(LibraryHandle* handle, int, const CtcDescriptor*, const ShapeDescriptor*,
                    const void*, const int*, const int*, const int*, void*, const ShapeDescriptor*,
                    void*, std::size_t size, void* workspace) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (handle == nullptr || (size != 0 && workspace == nullptr)) return kBadParam;
  const BerthStandinAccess access{workspace, size, 1};
  return berth_standin_launch(handle->stream, __func__, &access, size != 0 ? 1 : 0);
}

}  // extern "C"
}  // namespace berth::standin
