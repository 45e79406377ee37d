#include "csrc/torch/step/kernel_times.h"

#include "csrc/core/checksum.h"
#include "csrc/torch/step/captures.h"
#include "csrc/torch/step/tensors.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace berth::torch::step {

namespace {

// Of calls that take as long: the operator, and shapes and widths of what it is given.
std::uint64_t signature(const Call& call) {
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(&call.op.schema());
  for (const Operand& operand : call.operands) {
    hash = hash_combine(hash, operand.storage == kNoStorage ? 0 : operand.type.itemsize());
    for (const auto* const list : {&operand.sizes, &operand.strides})
      for (const std::int64_t one : *list)
        hash = hash_combine(hash, static_cast<std::uint64_t>(one));
  }
  return hash;
}

// An event behind all that the current stream was asked for.
c10::Event now_on(c10::Device device) {
  const c10::impl::VirtualGuardImpl on(device.type());
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(on.getStream(device));
  return event;
}

}  // namespace

void even_out_times(std::vector<Call>& calls) {
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> times;
  for (const Call& call : calls) times[signature(call)].push_back(call.ns);
  for (auto& [alike, all] : times) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    std::swap(all.front(), *middle);
  }
  for (Call& call : calls) call.ns = times[signature(call)].front();
}

KernelTimes::Kernel::Kernel(KernelTimes& times, std::uint32_t call,
                            c10::ArrayRef<c10::IValue> values)
    : times_(times), call_(call), device_(device_of(values)) {
  if (device_.is_cpu()) {
    elapsed_ = {};
    return;
  }
  if (is_captured(values)) return;
  try {
    began_ = now_on(device_);
  } catch (const c10::Error&) {  // a device without a clock: it is not timed
  }
}

void KernelTimes::Kernel::end() {
  if (device_.is_cpu()) {
    times_.note(call_, elapsed_.ns());
    return;
  }
  if (!began_) return;
  try {
    times_.on_device_.push_back({call_, *std::move(began_), now_on(device_)});
  } catch (const c10::Error&) {  // the kernel itself has run
  }
}

void KernelTimes::note(std::uint32_t call, std::uint64_t ns) noexcept {
  ns_[call] = std::min(ns_[call], ns);
  ++noted_;
}

void KernelTimes::begin_step() noexcept {
  on_device_.clear();
  noted_ = 0;
}

KernelTimes::Measured KernelTimes::end_step() {
  for (const OnDevice& one : on_device_) {
    one.ended.synchronize();
    note(one.call, static_cast<std::uint64_t>(1e6 * one.began.elapsedTime(one.ended)));
  }
  on_device_.clear();
  if (2 * noted_ >= ns_.size()) ++measured_;
  if (measured_ >= kSteps) return Measured::kEnough;
  return ++steps_ >= kMostSteps ? Measured::kGivenUp : Measured::kNotYet;
}

void KernelTimes::give(std::vector<Call>& calls) const {
  for (std::size_t n = 0; n < calls.size(); ++n)
    if (ns_[n] != kNone) calls[n].ns = ns_[n];
  even_out_times(calls);
}

}  // namespace berth::torch::step
