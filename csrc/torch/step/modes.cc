#include "csrc/torch/step/modes.h"

#include "csrc/torch/step/thread_count.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <cfenv>
#include <cstring>
#include <utility>
#include <vector>

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

// The thread's own come first, which at::Context does not keep.
constexpr std::size_t kOfThread = 5;

constexpr std::array<Mode, Modes::kCount> kModes = {{
    {"torch.set_default_dtype()",
     [] { return static_cast<std::int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())); },
     [](std::int64_t type) {
       c10::set_default_dtype(c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(type)));
     }},
    {"torch.inference_mode()",
     [] { return std::int64_t{c10::InferenceMode::is_enabled() ? 1 : 0}; }, [](std::int64_t) {}},
    {"torch.set_num_threads()", [] { return std::int64_t{ThreadCount::now()}; },
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

// at::Context has its precisions of float32 in a table, and everything else in its own bytes. An
// explicit instantiation may name a private member.
template <auto member>
struct PrivateMember {
  friend auto precisions_of_context() { return member; }
};
auto precisions_of_context();
template struct PrivateMember<&Context::fp32_precision>;

// What at::Context says, asked again only where its bytes are others than when it was asked last:
// some 60 instructions in place of 1,700. The getters of flags and precisions read nothing else.
class SeenContext {
 public:
  using Values = std::array<std::int64_t, Modes::kCount>;
  const Values& values() {
    const Context& context = at::globalContext();
    if (std::memcmp(&context, bytes_.data(), sizeof(Context)) != 0 || !same_precisions())
        [[unlikely]]
      see(context);
    return values_;
  }

 private:
  [[nodiscard]] bool same_precisions() const {
    bool same = true;
    for (const auto& [there, seen] : precisions_) same &= *there == seen;
    return same;
  }
  void see(const Context& context) {
    std::memcpy(bytes_.data(), &context, sizeof(Context));
    precisions_.clear();
    for (const auto& [key, precision] : context.*precisions_of_context())
      precisions_.emplace_back(&precision, precision);
    for (std::size_t n = kOfThread; n < Modes::kCount; ++n) values_[n] = kModes[n].get();
  }

  std::array<std::byte, sizeof(Context)> bytes_{};
  std::vector<std::pair<const at::Float32Precision*, at::Float32Precision>> precisions_;
  Values values_{};
};

SeenContext& seen_context() {
  thread_local SeenContext context;
  return context;
}

}  // namespace

Modes Modes::now() {
  Modes modes;
  modes.values_ = seen_context().values();
  for (std::size_t n = 0; n < kOfThread; ++n) modes.values_[n] = kModes[n].get();
  return modes;
}

bool Modes::are_now() const {
  for (std::size_t n = 0; n < kOfThread; ++n)
    if (kModes[n].get() != values_[n]) return false;
  const SeenContext::Values& seen = seen_context().values();
  return std::equal(values_.begin() + kOfThread, values_.end(), seen.begin() + kOfThread);
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
