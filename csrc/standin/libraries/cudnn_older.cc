// cuDNN's descriptors of tensors and filters, and its older convolution interface, which libtorch
// takes where TORCH_CUDNN_V8_API_DISABLED=1: three algorithms with workspaces, as in cudnn.cc.

#include "csrc/standin/control.h"
#include "csrc/standin/libraries/cudnn_shapes.h"
#include "csrc/standin/library_handle.h"

#include <algorithm>
#include <array>

namespace berth::standin {
namespace {

// What a search says of an algorithm (cudnnConvolutionFwdAlgoPerf_t and its two likes).
struct Performance {
  int algorithm;
  int status;
  float milliseconds;
  std::size_t memory;
  int determinism;
  int math;
  int reserved[3];
};
static_assert(sizeof(Performance) == 48);

struct ConvolutionDescriptor {
  int groups = 1;
};

// cuDNN's numbers of the algorithms without workspace, with some and with much, in each of the
// three directions.
enum Direction { kForwardPass, kDataPass, kFilterPass };
constexpr std::array<std::array<int, 3>, 3> kAlgorithms = {{{0, 1, 4}, {1, 0, 2}, {1, 0, 2}}};
constexpr std::array<int, 3> kBestGuess = {1, 0, 2};

// Of the three tensors of a convolution, by how much an algorithm takes: see cudnn.cc.
std::size_t workspace_of(int much, std::size_t a, std::size_t b, std::size_t c) {
  const std::size_t largest = std::max({a, b, c});
  const std::size_t bytes = much == 0 ? 0 : much == 1 ? a + b + c - largest : 2 * largest;
  return whole_pages(std::min(bytes, std::size_t{256} << 20));
}

// How much the algorithm takes: 0, 1 or 2; below 0: there is none of that number here.
int much_of(Direction direction, int algorithm) {
  const auto& all = kAlgorithms[direction];
  const auto found = std::find(all.begin(), all.end(), algorithm);
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

int give_all(Direction direction, const ShapeDescriptor* a, const ShapeDescriptor* b,
             const ShapeDescriptor* c, std::size_t room, int wanted, int* given,
             Performance* performances) {
  if (a == nullptr || b == nullptr || c == nullptr || wanted < 1 || performances == nullptr)
    return kBadParam;
  int count = 0;
  for (const int much : kBestGuess) {
    const std::size_t workspace = workspace_of(much, bytes_of(*a), bytes_of(*b), bytes_of(*c));
    if (count == wanted || workspace > room) continue;
    const double passes = 3 - much;
    performances[count++] = {
        .algorithm = kAlgorithms[direction][static_cast<std::size_t>(much)],
        .status = 0,
        .milliseconds = static_cast<float>(
            passes * static_cast<double>(bytes_of(*a) + bytes_of(*b) + bytes_of(*c)) * 1e-9),
        .memory = workspace,
        .determinism = 1,
        .math = 0,
        .reserved = {}};
  }
  // The fastest first, as a search sorts them.
  std::sort(performances, performances + count, [](const Performance& one, const Performance& two) {
    return one.milliseconds < two.milliseconds;
  });
  if (given != nullptr) *given = count;
  return 0;
}

int give_workspace(Direction direction, int algorithm, const ShapeDescriptor* a,
                   const ShapeDescriptor* b, const ShapeDescriptor* c, std::size_t* size) {
  const int much = much_of(direction, algorithm);
  if (a == nullptr || b == nullptr || c == nullptr || size == nullptr) return kBadParam;
  if (much < 0) return kNotSupportedByCudnn;
  *size = workspace_of(much, bytes_of(*a), bytes_of(*b), bytes_of(*c));
  return 0;
}

int run(LibraryHandle* handle, Direction direction, const char* name, int algorithm,
        const ShapeDescriptor* a, const ShapeDescriptor* b, const ShapeDescriptor* c,
        const void* workspace, std::size_t size) {
  std::size_t needed = 0;
  if (const int status = give_workspace(direction, algorithm, a, b, c, &needed); status != 0)
    return status;
  if (handle == nullptr || size < needed || (needed != 0 && workspace == nullptr)) return kBadParam;
  const BerthStandinAccess access{workspace, needed, 1};
  const std::uint64_t passes = static_cast<std::uint64_t>(3 - much_of(direction, algorithm));
  return berth_standin_launch_for(handle->stream, name, &access, needed != 0 ? 1 : 0,
                                  passes * (bytes_of(*a) + bytes_of(*b) + bytes_of(*c)) >> 20);
}

}  // namespace

extern "C" {

int cudnnCreateTensorDescriptor(ShapeDescriptor** descriptor) {
  *descriptor = new ShapeDescriptor;
  return 0;
}
int cudnnDestroyTensorDescriptor(ShapeDescriptor* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnSetTensorNdDescriptor(ShapeDescriptor* descriptor, int type, int dimensions,
                               const int* sizes, const int* strides) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (descriptor == nullptr || dimensions < 1 || dimensions > 8) return kBadParam;
  descriptor->type = type;
  descriptor->sizes.assign(sizes, sizes + dimensions);
  descriptor->strides.assign(strides, strides + dimensions);
  return 0;
}
int cudnnGetTensorNdDescriptor(const ShapeDescriptor* descriptor, int wanted, int* type,
                               int* dimensions, int* sizes, int* strides) {
  if (descriptor == nullptr) return kBadParam;
  const auto there = static_cast<int>(descriptor->sizes.size());
  *type = descriptor->type;
  *dimensions = there;
  std::copy_n(descriptor->sizes.begin(), std::min(wanted, there), sizes);
  std::copy_n(descriptor->strides.begin(), std::min(wanted, there), strides);
  return 0;
}

int cudnnCreateFilterDescriptor(ShapeDescriptor** descriptor) {
  *descriptor = new ShapeDescriptor;
  return 0;
}
int cudnnDestroyFilterDescriptor(ShapeDescriptor* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnSetFilterNdDescriptor(ShapeDescriptor* descriptor, int type, int format, int dimensions,
                               const int* sizes) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (descriptor == nullptr || dimensions < 1 || dimensions > 8) return kBadParam;
  descriptor->type = type;
  descriptor->format = format;
  descriptor->sizes.assign(sizes, sizes + dimensions);
  return 0;
}
int cudnnGetFilterNdDescriptor(const ShapeDescriptor* descriptor, int wanted, int* type,
                               int* format, int* dimensions, int* sizes) {
  if (descriptor == nullptr) return kBadParam;
  const auto there = static_cast<int>(descriptor->sizes.size());
  *type = descriptor->type;
  *format = descriptor->format;
  *dimensions = there;
  std::copy_n(descriptor->sizes.begin(), std::min(wanted, there), sizes);
  return 0;
}

int cudnnCreateConvolutionDescriptor(ConvolutionDescriptor** descriptor) {
  *descriptor = new ConvolutionDescriptor;
  return 0;
}
int cudnnDestroyConvolutionDescriptor(ConvolutionDescriptor* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnSetConvolutionGroupCount(ConvolutionDescriptor* descriptor, int groups) {
  if (descriptor == nullptr || groups < 1) return kBadParam;
  descriptor->groups = groups;
  return 0;
}

// Forward: image, filter, result.
int cudnnFindConvolutionForwardAlgorithmEx(LibraryHandle*, const ShapeDescriptor* x, const void*,
                                           const ShapeDescriptor* w, const void*, const void*,
                                           const ShapeDescriptor* y, void*, int wanted, int* given,
                                           Performance* performances, void*, std::size_t room) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_all(kForwardPass, x, w, y, room, wanted, given, performances);
}
int cudnnGetConvolutionForwardAlgorithm_v7(LibraryHandle*, const ShapeDescriptor* x,
                                           const ShapeDescriptor* w, const void*,
                                           const ShapeDescriptor* y, int wanted, int* given,
                                           Performance* performances) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_all(kForwardPass, x, w, y, ~std::size_t{0}, wanted, given, performances);
}
int cudnnGetConvolutionForwardWorkspaceSize(LibraryHandle*, const ShapeDescriptor* x,
                                            const ShapeDescriptor* w, const void*,
                                            const ShapeDescriptor* y, int algorithm,
                                            std::size_t* size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_workspace(kForwardPass, algorithm, x, w, y, size);
}
int cudnnConvolutionForward(LibraryHandle* handle, const void*, const ShapeDescriptor* x,
                            const void*, const ShapeDescriptor* w, const void*, const void*,
                            int algorithm, void* workspace, std::size_t size, const void*,
                            const ShapeDescriptor* y, void*) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return run(handle, kForwardPass, __func__, algorithm, x, w, y, workspace, size);
}

// Gradient of the image: filter, gradient of the result, gradient of the image.
int cudnnFindConvolutionBackwardDataAlgorithmEx(LibraryHandle*, const ShapeDescriptor* w,
                                                const void*, const ShapeDescriptor* dy, const void*,
                                                const void*, const ShapeDescriptor* dx, void*,
                                                int wanted, int* given, Performance* performances,
                                                void*, std::size_t room) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_all(kDataPass, w, dy, dx, room, wanted, given, performances);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(LibraryHandle*, const ShapeDescriptor* w,
                                                const ShapeDescriptor* dy, const void*,
                                                const ShapeDescriptor* dx, int wanted, int* given,
                                                Performance* performances) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_all(kDataPass, w, dy, dx, ~std::size_t{0}, wanted, given, performances);
}
int cudnnGetConvolutionBackwardDataWorkspaceSize(LibraryHandle*, const ShapeDescriptor* w,
                                                 const ShapeDescriptor* dy, const void*,
                                                 const ShapeDescriptor* dx, int algorithm,
                                                 std::size_t* size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_workspace(kDataPass, algorithm, w, dy, dx, size);
}
int cudnnConvolutionBackwardData(LibraryHandle* handle, const void*, const ShapeDescriptor* w,
                                 const void*, const ShapeDescriptor* dy, const void*, const void*,
                                 int algorithm, void* workspace, std::size_t size, const void*,
                                 const ShapeDescriptor* dx, void*) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return run(handle, kDataPass, __func__, algorithm, w, dy, dx, workspace, size);
}

// Gradient of the filter: image, gradient of the result, gradient of the filter.
int cudnnFindConvolutionBackwardFilterAlgorithmEx(LibraryHandle*, const ShapeDescriptor* x,
                                                  const void*, const ShapeDescriptor* dy,
                                                  const void*, const void*,
                                                  const ShapeDescriptor* dw, void*, int wanted,
                                                  int* given, Performance* performances, void*,
                                                  std::size_t room) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_all(kFilterPass, x, dy, dw, room, wanted, given, performances);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(LibraryHandle*, const ShapeDescriptor* x,
                                                  const ShapeDescriptor* dy, const void*,
                                                  const ShapeDescriptor* dw, int wanted, int* given,
                                                  Performance* performances) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_all(kFilterPass, x, dy, dw, ~std::size_t{0}, wanted, given, performances);
}
int cudnnGetConvolutionBackwardFilterWorkspaceSize(LibraryHandle*, const ShapeDescriptor* x,
                                                   const ShapeDescriptor* dy, const void*,
                                                   const ShapeDescriptor* dw, int algorithm,
                                                   std::size_t* size) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return give_workspace(kFilterPass, algorithm, x, dy, dw, size);
}
int cudnnConvolutionBackwardFilter(LibraryHandle* handle, const void*, const ShapeDescriptor* x,
                                   const void*, const ShapeDescriptor* dy, const void*, const void*,
                                   int algorithm, void* workspace, std::size_t size, const void*,
                                   const ShapeDescriptor* dw, void*) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  return run(handle, kFilterPass, __func__, algorithm, x, dy, dw, workspace, size);
}

}  // extern "C"
}  // namespace berth::standin
