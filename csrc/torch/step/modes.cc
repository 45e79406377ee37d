#include "csrc/torch/step/modes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <cfenv>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace berth::torch::step {

namespace {

struct Mode {
  std::string_view name;
  std::int64_t (*get)();
  void (*set)(std::int64_t);
};

// How the processor treats numbers near zero, as torch.set_flush_denormal() does.
std::int64_t near_zero() {
#if defined(__SSE__)
  return _mm_getcsr() & 0x8040U;
#else
  return 0;
#endif
}
void set_near_zero([[maybe_unused]] std::int64_t bits) {
#if defined(__SSE__)
  _mm_setcsr((_mm_getcsr() & ~0x8040U) | static_cast<unsigned>(bits));
#endif
}

template <at::Float32Backend backend, at::Float32Op op>
std::int64_t precision() {
  return static_cast<std::int64_t>(at::globalContext().float32Precision(backend, op));
}
template <at::Float32Backend backend, at::Float32Op op>
void set_precision(std::int64_t value) {
  at::globalContext().setFloat32Precision(backend, op, static_cast<at::Float32Precision>(value));
}

// For members of at::Context that are booleans.
template <bool (at::Context::*getter)() const>
std::int64_t flag() {
  return (at::globalContext().*getter)() ? 1 : 0;
}
template <void (at::Context::*setter)(bool)>
void set_flag(std::int64_t value) {
  (at::globalContext().*setter)(value != 0);
}
template <at::CuBLASReductionOption (at::Context::*getter)() const>
std::int64_t reduction() {
  return static_cast<std::int64_t>((at::globalContext().*getter)());
}
template <void (at::Context::*setter)(bool, bool)>
void set_reduction(std::int64_t value) {
  const auto option = static_cast<at::CuBLASReductionOption>(value);
  (at::globalContext().*setter)(
      option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK,
      option != at::CuBLASReductionOption::DisallowReducedPrecisionDisallowSplitK);
}

using Fp32Backend = at::Float32Backend;
using Fp32Op = at::Float32Op;
using at::Context;

constexpr std::array<Mode, Modes::kCount> kModes = {{
    {"torch.set_default_dtype()",
     [] { return static_cast<std::int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())); },
     [](std::int64_t type) {
       c10::set_default_dtype(c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(type)));
     }},
    {"torch.inference_mode()",
     [] { return std::int64_t{c10::InferenceMode::is_enabled() ? 1 : 0}; }, [](std::int64_t) {}},
    {"torch.set_num_threads()", [] { return std::int64_t{at::get_num_threads()}; },
     [](std::int64_t threads) { at::set_num_threads(static_cast<int>(threads)); }},
    {"torch.set_flush_denormal()", near_zero, set_near_zero},
    {"fesetround()", [] { return std::int64_t{std::fegetround()}; },
     [](std::int64_t how) { std::fesetround(static_cast<int>(how)); }},
    {"torch.use_deterministic_algorithms()",
     [] {
       return std::int64_t{at::globalContext().deterministicAlgorithms() ? 1 : 0} +
              (at::globalContext().deterministicAlgorithmsWarnOnly() ? 2 : 0);
     },
     [](std::int64_t how) {
       at::globalContext().setDeterministicAlgorithms((how & 1) != 0, (how & 2) != 0);
     }},
    {"torch.utils.deterministic.fill_uninitialized_memory",
     flag<&Context::deterministicFillUninitializedMemory>,
     set_flag<&Context::setDeterministicFillUninitializedMemory>},
    {"torch.backends.cudnn.enabled", flag<&Context::userEnabledCuDNN>,
     set_flag<&Context::setUserEnabledCuDNN>},
    {"torch.backends.cudnn.benchmark", flag<&Context::benchmarkCuDNN>,
     set_flag<&Context::setBenchmarkCuDNN>},
    {"torch.backends.cudnn.benchmark_limit",
     [] { return std::int64_t{at::globalContext().benchmarkLimitCuDNN()}; },
     [](std::int64_t limit) {
       at::globalContext().setBenchmarkLimitCuDNN(static_cast<int>(limit));
     }},
    {"torch.backends.cudnn.deterministic", flag<&Context::deterministicCuDNN>,
     set_flag<&Context::setDeterministicCuDNN>},
    {"torch.backends.miopen.immediate", flag<&Context::immediateMiopen>,
     set_flag<&Context::setImmediateMiopen>},
    {"torch.backends.mkldnn.enabled", flag<&Context::userEnabledMkldnn>,
     set_flag<&Context::setUserEnabledMkldnn>},
    {"torch.backends.mkldnn.deterministic", flag<&Context::deterministicMkldnn>,
     set_flag<&Context::setDeterministicMkldnn>},
    {"torch.backends.nnpack.enabled", flag<&Context::userEnabledNNPACK>,
     set_flag<&Context::setUserEnabledNNPACK>},
    {"torch.backends.cuda.matmul.fp32_precision", precision<Fp32Backend::CUDA, Fp32Op::MATMUL>,
     set_precision<Fp32Backend::CUDA, Fp32Op::MATMUL>},
    {"torch.backends.cudnn.conv.fp32_precision", precision<Fp32Backend::CUDA, Fp32Op::CONV>,
     set_precision<Fp32Backend::CUDA, Fp32Op::CONV>},
    {"torch.backends.cudnn.rnn.fp32_precision", precision<Fp32Backend::CUDA, Fp32Op::RNN>,
     set_precision<Fp32Backend::CUDA, Fp32Op::RNN>},
    {"torch.backends.mkldnn.matmul.fp32_precision", precision<Fp32Backend::MKLDNN, Fp32Op::MATMUL>,
     set_precision<Fp32Backend::MKLDNN, Fp32Op::MATMUL>},
    {"torch.backends.mkldnn.conv.fp32_precision", precision<Fp32Backend::MKLDNN, Fp32Op::CONV>,
     set_precision<Fp32Backend::MKLDNN, Fp32Op::CONV>},
    {"torch.backends.mkldnn.rnn.fp32_precision", precision<Fp32Backend::MKLDNN, Fp32Op::RNN>,
     set_precision<Fp32Backend::MKLDNN, Fp32Op::RNN>},
    {"torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
     reduction<&Context::allowFP16ReductionCuBLAS>,
     set_reduction<&Context::setAllowFP16ReductionCuBLAS>},
    {"torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
     reduction<&Context::allowBF16ReductionCuBLAS>,
     set_reduction<&Context::setAllowBF16ReductionCuBLAS>},
    {"torch.backends.cuda.matmul.allow_fp16_accumulation",
     flag<&Context::allowFP16AccumulationCuBLAS>,
     set_flag<&Context::setAllowFP16AccumulationCuBLAS>},
    {"the CPU's reductions in float16", flag<&Context::allowFP16ReductionCPU>,
     set_flag<&Context::setAllowFP16ReductionCPU>},
    {"torch.backends.cuda.preferred_linalg_library()",
     [] { return static_cast<std::int64_t>(at::globalContext().linalgPreferredBackend()); },
     [](std::int64_t one) {
       at::globalContext().setLinalgPreferredBackend(static_cast<at::LinalgBackend>(one));
     }},
    {"torch.backends.quantized.engine",
     [] { return static_cast<std::int64_t>(at::globalContext().qEngine()); },
     [](std::int64_t one) { at::globalContext().setQEngine(static_cast<at::QEngine>(one)); }},
}};

}  // namespace

Modes Modes::now() {
  Modes modes;
  for (std::size_t n = 0; n < kCount; ++n) modes.values_[n] = kModes[n].get();
  return modes;
}

void Modes::set() const {
  for (std::size_t n = 0; n < kCount; ++n)
    if (kModes[n].get() != values_[n]) kModes[n].set(values_[n]);
}

std::string_view Modes::difference(const Modes& other) const {
  for (std::size_t n = 0; n < kCount; ++n)
    if (values_[n] != other.values_[n]) return kModes[n].name;
  return {};
}

}  // namespace berth::torch::step
