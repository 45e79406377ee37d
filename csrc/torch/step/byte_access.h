#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

// Operators that do nothing, by which a body says that it will use the bytes of a tensor behind
// libtorch's operators: the tap sees them in their place among the others.
namespace berth::torch::step {

// berth::read_bytes(Tensor self) -> (): reads them before it calls anything else.
inline constexpr std::string_view kReadBytes = "berth::read_bytes";
// berth::share_bytes(Tensor(a!) self) -> (): reads and writes them as long as it has the tensor.
inline constexpr std::string_view kShareBytes = "berth::share_bytes";
// berth::give_pointer(Tensor self) -> (): gives their address to somebody who may do anything.
inline constexpr std::string_view kGivePointer = "berth::give_pointer";

// berth::read_generators() -> (): reads the state of a generator.
inline constexpr std::string_view kReadGenerators = "berth::read_generators";

// berth::run_as_written(str why) -> (): what comes looks at tensors as no schedule allows.
inline constexpr std::string_view kRunAsWritten = "berth::run_as_written";

// Calls one of those with a tensor. Nothing where they are not known.
void ask_for_bytes(std::string_view how, const at::Tensor& tensor);

// Makes them known to libtorch. A second call does nothing. Not thread-safe.
void register_byte_access();

}  // namespace berth::torch::step
