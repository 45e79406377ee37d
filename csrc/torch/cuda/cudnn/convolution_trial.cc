#include "csrc/torch/cuda/cudnn/convolution_trial.h"

#include "csrc/core/bytes.h"
#include "csrc/facts/rounding.h"
#include "csrc/torch/step/kernel_cost.h"
#include "csrc/torch/step/spills.h"

#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/sum.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

// Of libtorch_cuda; the headers that declare them want those of cuDNN and cuBLAS.
namespace at::native {
::berth::torch::cudnn::Handle getCudnnHandle();
}
namespace at::cuda {
cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}

namespace berth::torch::cudnn {

namespace {

using graph::Algorithm;
using graph::AlgorithmProfile;
using step::Call;
using step::Operand;

constexpr int kTimedRuns = 3;  // the fastest counts
// Results come to the host in pieces: the stand-in may move nothing of what is larger.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

at::Tensor make(const Operand& like, c10::Device device) {
  return at::empty_strided(
      like.sizes, like.strides,
      at::TensorOptions().dtype(c10::typeMetaToScalarType(like.type)).device(device));
}

// The bias as it is added to a result of so many dimensions.
at::Tensor beside(const at::Tensor& bias, std::int64_t dimensions) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(dimensions), 1);
  sizes[1] = -1;
  return bias.reshape(sizes);
}

std::vector<std::int64_t> all_but_channels(const at::Tensor& gradient) {
  return gradient.dim() == 5 ? std::vector<std::int64_t>{0, 2, 3, 4}
                             : std::vector<std::int64_t>{0, 2, 3};
}

at::Tensor sum_for_bias(const at::Tensor& gradient) {
  return at::sum(gradient, all_but_channels(gradient));
}

// The tensors of a call, some of them.
struct Tensors {
  std::vector<at::Tensor> operands, results;
  [[nodiscard]] const at::Tensor& at(const Place& place) const {
    return place.result ? results[place.number] : operands[place.number];
  }
};

bool aligned(const at::Tensor& tensor, std::int64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) %
             static_cast<std::uintptr_t>(alignment) ==
         0;
}

// In the current stream. The workspace goes back with the call: whoever gets it next waits for the
// stream, or is in it.
bool run_piece(const ConvolutionPlan& plan, const Piece& piece, const Tensors& tensors) {
  const at::Tensor& x = tensors.at(piece.x);
  const at::Tensor& w = tensors.at(piece.w);
  const at::Tensor& y = tensors.at(piece.y);
  // Also those of a trial: its workspace may find no room, and they are what may leave.
  const step::Spills::Use x_there(x.storage()), w_there(w.storage()), y_there(y.storage());
  if (!aligned(x, piece.convolution.x.alignment) || !aligned(w, piece.convolution.w.alignment) ||
      !aligned(y, piece.convolution.y.alignment))
    return false;
  c10::DataPtr workspace;
  if (plan.workspace() > 0) workspace = x.storage().allocator()->allocate(plan.workspace());
  return plan.run(at::native::getCudnnHandle(), x.data_ptr(), w.data_ptr(), y.data_ptr(),
                  workspace.get());
}

// As a step program's executor runs operators.
class Plainly {
 private:
  const at::AutoDispatchBelowADInplaceOrView below_;
  const c10::impl::ExcludeDispatchKeyGuard without_autocast_{c10::autocast_dispatch_keyset};
  const at::NoGradGuard without_gradients_;
};

// One algorithm of each piece, separated by '|'.
class ConvolutionAlgorithm final : public step::LibraryAlgorithm {
 public:
  ConvolutionAlgorithm(const Calls& calls, ConvolutionCall of, const Algorithm& algorithm)
      : calls_(calls), of_(std::move(of)), workspace_(algorithm.workspace) {
    for (std::size_t begin = 0; begin <= algorithm.name.size();) {
      const std::size_t end = std::min(algorithm.name.find('|', begin), algorithm.name.size());
      names_.push_back(algorithm.name.substr(begin, end - begin));
      begin = end + 1;
    }
    plans_.resize(of_.pieces.size());
  }

  [[nodiscard]] bool run(const Call& call, c10::Stack* stack) const override {
    const std::size_t below = stack->size() - call.arguments.size();
    Tensors tensors;
    for (std::size_t n = 0; n < call.arguments.size(); ++n)
      if (call.arguments[n].form == step::Form::kTensor) {
        const c10::IValue& value = (*stack)[below + n];
        tensors.operands.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
      }
    const c10::Device device = tensors.operands.front().device();
    const c10::DeviceGuard on(device);
    if (!build_plans()) return false;
    // The bias's gradient is made by libtorch.
    for (std::uint32_t n = 0; n < call.result_tensors.size(); ++n) {
      const Operand& result = call.result_tensors[n].operand;
      tensors.results.push_back(result.storage == step::kNoStorage || n == of_.bias_gradient
                                    ? at::Tensor()
                                    : make(result, device));
    }
    for (std::size_t n = 0; n < of_.pieces.size(); ++n)
      if (!run_piece(*plans_[n], of_.pieces[n], tensors)) return false;
    if (of_.bias)
      tensors.results.front().add_(
          beside(tensors.operands[*of_.bias], tensors.results.front().dim()));
    if (of_.bias_gradient)
      tensors.results[*of_.bias_gradient] = sum_for_bias(tensors.operands.front());
    stack->resize(below);
    for (at::Tensor& result : tensors.results) stack->emplace_back(std::move(result));
    return true;
  }

 private:
  // On the thread that executes; of a program one at a time.
  bool build_plans() const {
    const std::lock_guard lock(mutex_);
    if (built_ || failed_) return built_;
    failed_ = names_.size() != of_.pieces.size();
    for (std::size_t n = 0; n < of_.pieces.size() && !failed_; ++n) {
      plans_[n] =
          plan_of(calls_, at::native::getCudnnHandle(), of_.pieces[n].convolution, names_[n]);
      failed_ = plans_[n] == nullptr || plans_[n]->workspace() > workspace_;
    }
    built_ = !failed_;
    return built_;
  }

  const Calls& calls_;
  const ConvolutionCall of_;
  const Bytes workspace_;
  std::vector<std::string> names_;
  mutable std::mutex mutex_;
  mutable bool built_ = false, failed_ = false;
  mutable std::vector<std::unique_ptr<ConvolutionPlan>> plans_;
};

// What a call is tried with.
class Trial {
 public:
  Trial(const Calls& calls, const Call& call, const ConvolutionCall& of, c10::Device device,
        Bytes room)
      : calls_(calls), call_(call), of_(of), device_(device), room_(room) {}

  std::optional<AlgorithmProfile> run() {
    const Plainly plainly;
    const Bytes tensors = bytes_of_tensors();
    if (tensors > room_) return std::nullopt;
    room_ -= tensors;
    make_operands();
    events_ns_ = time([] {});
    AlgorithmProfile profile;
    profile.ns = time([&] { as_written(); });
    std::vector<at::Tensor> first = on_host();
    as_written();
    same_again_ = same(on_host(), first);
    expected_ = std::move(first);
    const Rest rest = measure_rest();
    std::vector<Algorithm> all = {
        {.name = {}, .ns = rest.ns, .workspace = rest.workspace, .same_bits = rest.same_bits}};
    for (const Piece& piece : of_.pieces) all = pairs(all, measure(piece));
    profile.algorithms = std::move(all);
    return profile;
  }

 private:
  struct Rest {
    std::uint64_t ns = 0;
    Bytes workspace = 0;
    bool same_bits = true;
  };

  [[nodiscard]] Bytes bytes_of_tensors() const {
    Bytes bytes = 0;
    const auto add = [&](const Operand& one) {
      if (one.storage == step::kNoStorage) return;
      Bytes elements = 1;
      for (const std::int64_t size : one.sizes) elements *= static_cast<Bytes>(size);
      bytes += align_up(elements * one.type.itemsize(), facts::kCudaUnit);
    };
    for (const Operand& one : call_.operands) add(one);
    for (const step::ResultTensor& one : call_.result_tensors) add(one.operand);
    return bytes + call_.workspace;
  }

  void make_operands() {
    // One of our own: the program's generator stays where it is.
    at::Generator generator = at::detail::getCUDAHooks().getNewGenerator(device_.index());
    for (const Operand& one : call_.operands) {
      at::Tensor& made = tensors_.operands.emplace_back();
      if (one.storage == step::kNoStorage) continue;
      made = make(one, device_);
      made.normal_(0, 1, generator);
    }
    std::size_t operand = 0;
    for (const step::Argument& argument : call_.arguments)
      arguments_.push_back(argument.form == step::Form::kTensor
                               ? c10::IValue(tensors_.operands[operand++])
                               : argument.value);
  }

  void as_written() {
    tensors_.results.clear();
    c10::Stack stack = arguments_;
    call_.op.callBoxed(&stack);
    for (const c10::IValue& value : stack)
      tensors_.results.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
  }

  // The fastest of a few runs after a first one, on the device's clock, without the events' own.
  template <typename Run>
  std::uint64_t time(const Run& run) const {
    const c10::impl::VirtualGuardImpl on(device_.type());
    const c10::Stream stream = on.getStream(device_);
    run();
    double least = std::numeric_limits<double>::max();
    for (int n = 0; n < kTimedRuns; ++n) {
      c10::Event begin(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
      c10::Event end(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
      begin.record(stream);
      run();
      end.record(stream);
      end.synchronize();
      least = std::min(least, begin.elapsedTime(end));
    }
    const auto ns = static_cast<std::uint64_t>(std::llround(std::max(least, 0.0) * 1e6));
    return ns - std::min(ns, events_ns_);
  }

  // The results' bytes. Of what nobody wrote they are zero.
  [[nodiscard]] std::vector<at::Tensor> on_host() const {
    std::vector<at::Tensor> host;
    for (const at::Tensor& one : tensors_.results) host.push_back(on_host(one));
    return host;
  }
  static at::Tensor on_host(const at::Tensor& one) {
    if (!one.defined()) return {};
    at::Tensor host = at::empty({one.numel()}, one.options().device(c10::kCPU));
    std::memset(host.mutable_data_ptr(), 0, host.nbytes());
    const at::Tensor elements = one.as_strided({one.numel()}, {1});
    const std::int64_t piece = kPieceBytes / one.itemsize();
    for (std::int64_t first = 0; first < one.numel(); first += piece) {
      const std::int64_t count = std::min(piece, one.numel() - first);
      host.narrow(0, first, count).copy_(elements.narrow(0, first, count));
    }
    return host;
  }
  static bool same(const at::Tensor& a, const at::Tensor& b) {
    return a.defined() == b.defined() &&
           (!a.defined() || (a.nbytes() == b.nbytes() &&
                             std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0));
  }
  static bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(),
        [](const at::Tensor& one, const at::Tensor& other) { return same(one, other); });
  }

  void add_bias(const at::Tensor& result) const {
    result.add_(beside(tensors_.operands[*of_.bias], result.dim()));
  }

  // What libtorch does beside cuDNN, as ConvolutionAlgorithm does it.
  Rest measure_rest() {
    Rest rest;
    if (of_.bias) rest.ns = time([&] { add_bias(tensors_.results.front()); });
    if (of_.bias_gradient) {
      at::Tensor made = tensors_.results[*of_.bias_gradient];
      const at::Tensor& gradient = tensors_.operands.front();
      made.fill_(std::numeric_limits<double>::quiet_NaN());
      at::sum_out(made, gradient, all_but_channels(gradient));
      rest.same_bits = same(on_host(made), expected_[*of_.bias_gradient]);
      rest.ns = time([&] { made = sum_for_bias(gradient); });
      made.reset();
      const step::KernelCost cost({});
      made = sum_for_bias(gradient);
      rest.workspace = cost.peak() - std::min(cost.peak(), cost.held());
    }
    return rest;
  }

  std::vector<Algorithm> measure(const Piece& piece) {
    std::vector<Algorithm> found;
    for (const ConvolutionPlan& plan :
         plans_of(calls_, at::native::getCudnnHandle(), piece.convolution, kMostTried)) {
      if (align_up(plan.workspace(), facts::kCudaUnit) > room_) continue;
      try {
        if (std::optional<Algorithm> one = measure(piece, plan)) found.push_back(std::move(*one));
      } catch (const c10::OutOfMemoryError&) {  // others use the device, too
      }
    }
    return found;
  }

  // Into the results of the operator itself, which it does not find there.
  std::optional<Algorithm> measure(const Piece& piece, const ConvolutionPlan& plan) {
    const Place& made = piece.x.result ? piece.x : piece.w.result ? piece.w : piece.y;
    const at::Tensor& result = tensors_.at(made);
    result.fill_(std::numeric_limits<double>::quiet_NaN());
    Algorithm one{.name = plan.name()};
    {
      const step::KernelCost cost({});
      if (!run_piece(plan, piece, tensors_)) return std::nullopt;
      one.workspace = cost.peak();
    }
    if (of_.bias) add_bias(result);
    one.same_bits = same_again_ && same(on_host(result), expected_[made.number]);
    bool good = true;
    one.ns = time([&] { good = run_piece(plan, piece, tensors_) && good; });
    return good ? std::optional(std::move(one)) : std::nullopt;
  }

  // One of each, without those that another beats in time and workspace, those with the same bits
  // apart.
  static std::vector<Algorithm> pairs(const std::vector<Algorithm>& before,
                                      const std::vector<Algorithm>& next) {
    std::vector<Algorithm> all;
    for (const Algorithm& a : before)
      for (const Algorithm& b : next)
        all.push_back({.name = a.name.empty() ? b.name : a.name + '|' + b.name,
                       .ns = a.ns + b.ns,
                       .workspace = std::max(a.workspace, b.workspace),
                       .same_bits = a.same_bits && b.same_bits});
    std::sort(all.begin(), all.end(), [](const Algorithm& a, const Algorithm& b) {
      return a.ns != b.ns ? a.ns < b.ns : a.workspace < b.workspace;
    });
    Bytes least[2] = {kMaxBytes, kMaxBytes};
    std::erase_if(all, [&](const Algorithm& one) {
      Bytes& mine = least[one.same_bits ? 1 : 0];
      const bool beaten = one.workspace >= mine;
      mine = std::min(mine, one.workspace);
      return beaten;
    });
    if (all.size() > graph::AlgorithmCache::kMaxAlgorithms)
      all.resize(graph::AlgorithmCache::kMaxAlgorithms);
    return all;
  }

  const Calls& calls_;
  const Call& call_;
  const ConvolutionCall& of_;
  const c10::Device device_;
  Bytes room_;
  Tensors tensors_;
  c10::Stack arguments_;
  std::vector<at::Tensor> expected_;  // on the host
  std::uint64_t events_ns_ = 0;
  bool same_again_ = false;  // the operator itself gives the same each time
};

}  // namespace

std::string device_name(c10::Device device) {
  return at::cuda::getDeviceProperties(device.index())->name;
}

std::optional<AlgorithmProfile> measure_algorithms(const Calls& calls, const Call& call,
                                                   const ConvolutionCall& of, c10::Device device,
                                                   Bytes room) {
  try {
    return Trial(calls, call, of, device, room).run();
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;
  }
}

std::shared_ptr<const step::LibraryAlgorithm> algorithm_of(const Calls& calls,
                                                           const ConvolutionCall& of,
                                                           const Algorithm& algorithm) {
  return std::make_shared<ConvolutionAlgorithm>(calls, of, algorithm);
}

}  // namespace berth::torch::cudnn
