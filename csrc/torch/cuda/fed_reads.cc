#include "csrc/torch/cuda/fed_reads.h"

#include "csrc/torch/cuda/cuda_allocator.h"
#include "csrc/torch/shared/loaded_symbol.h"
#include "csrc/torch/step/profilers.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace berth::torch {
namespace {

// Of csrc/standin/control.h.
using Forget = void (*)(const void*, std::size_t);
using Feed = void (*)(const void*, std::size_t);

Feed feed = nullptr;
double value = 0;

// The fed number as an element of the type; nothing for a type that has no numbers.
void feed_type(c10::ScalarType type) {
  const auto tell = [](auto element) { feed(&element, sizeof element); };
  switch (type) {
#define BERTH_FEED(element, name)      \
  case c10::ScalarType::name:          \
    tell(static_cast<element>(value)); \
    return;
    BERTH_FEED(double, Double)
    BERTH_FEED(float, Float)
    BERTH_FEED(std::int64_t, Long)
    BERTH_FEED(std::int32_t, Int)
    BERTH_FEED(std::int16_t, Short)
    BERTH_FEED(std::int8_t, Char)
    BERTH_FEED(std::uint8_t, Byte)
#undef BERTH_FEED
    case c10::ScalarType::Half:
      tell(c10::Half(static_cast<float>(value)));
      return;
    case c10::ScalarType::BFloat16:
      tell(c10::BFloat16(static_cast<float>(value)));
      return;
    case c10::ScalarType::Bool:
      tell(static_cast<std::uint8_t>(value != 0));
      return;
    case c10::ScalarType::ComplexFloat:
      tell(c10::complex<float>(static_cast<float>(value)));
      return;
    case c10::ScalarType::ComplexDouble:
      tell(c10::complex<double>(value));
      return;
    default:
      return;
  }
}

struct Fed : at::ObserverContext {};

// item() and copies read elements of their first argument's type; what others read for themselves
// is whole numbers.
std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name != "aten::_local_scalar_dense" && name != "aten::copy_") return nullptr;
  const auto inputs = function.inputs();
  if (inputs.empty() || !inputs[0].isTensor()) return nullptr;
  const at::Tensor& first = inputs[0].toTensor();
  if (!first.defined()) return nullptr;
  feed_type(first.scalar_type());
  return std::make_unique<Fed>();
}

void end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) feed(nullptr, 0);
}

}  // namespace

void tell_reads(CudaAllocator& allocator) {
  // Not by a call: the stand-in's first one decides what a forked child gets.
  const char* const values = std::getenv("BERTH_STANDIN_VALUES");
  const auto forget = loaded_symbol<Forget>("berth_standin_forget");
  feed = loaded_symbol<Feed>("berth_standin_feed");
  if (values == nullptr || std::strcmp(values, "memory") == 0 || forget == nullptr ||
      feed == nullptr)
    return;
  allocator.attachAllocatorTraceTracker(
      [forget](const c10::CachingDeviceAllocator::TraceEntry& entry) {
        if (entry.action_ == c10::CachingDeviceAllocator::TraceEntry::ALLOC)
          forget(reinterpret_cast<const void*>(entry.addr_), entry.size_);
      });
  value = std::strtod(values, nullptr);  // "zeros" is none, so 0
  if (value == 0) return;
  step::note_own_observer(begin);
  at::addGlobalCallback(
      at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace berth::torch
