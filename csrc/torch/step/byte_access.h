#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

// Operators that do nothing. A body calls one before it uses the bytes of a tensor by a pointer.
// The tap sees the call in its place among the step's operators.
namespace berth::torch::step {

// berth::read_bytes(Tensor self) -> (): the body reads the bytes before its next call.
inline constexpr std::string_view kReadBytes = "berth::read_bytes";
// berth::share_bytes(Tensor(a!) self) -> (): the body reads and writes the bytes as long as it has
// the tensor.
inline constexpr std::string_view kShareBytes = "berth::share_bytes";
// berth::give_pointer(Tensor self) -> (): the body gives the address to code that may do anything.
inline constexpr std::string_view kGivePointer = "berth::give_pointer";

// berth::resize_storage(Tensor(a!) self, int bytes) -> Tensor: the body gives the tensor's storage
// another size. Returns a tensor of it.
inline constexpr std::string_view kResizeStorage = "berth::resize_storage";

// berth::read_generators() -> (): the body reads the state of a generator.
inline constexpr std::string_view kReadGenerators = "berth::read_generators";
// berth::seed_generators() -> (): the body is about to seed a generator.
inline constexpr std::string_view kSeedGenerators = "berth::seed_generators";

// berth::order_streams() -> (): the body orders work between streams of devices: it records an
// event, waits for one or asks one, or asks a stream.
inline constexpr std::string_view kOrderStreams = "berth::order_streams";
// berth::wait_for_device() -> (): the body waits for all that a stream or a device was asked for. A
// barrier.

// berth::compare_storage(Tensor self) -> (): before its next operator the body asks, behind
// libtorch's operators, whether another tensor has the same bytes.
inline constexpr std::string_view kCompareStorage = "berth::compare_storage";

// berth::set_aside(bool on) -> (): what this thread calls from now on makes data, not the step: a
// loader's calls.
inline constexpr std::string_view kSetAside = "berth::set_aside";
// Whether it is on, on this thread.
[[nodiscard]] bool is_aside() noexcept;

// berth::run_as_written(str why) -> (): the rest of the step needs tensors with bytes.
inline constexpr std::string_view kRunAsWritten = "berth::run_as_written";
// berth::run_within() -> (), which Python defines: compiled graphs, and calls of libtorch's that
// take pointers and keep none.
inline constexpr std::string_view kRunWithin = "berth::run_within";
// As kRunAsWritten, and a profiler begins.
inline constexpr std::string_view kBeginProfile = "berth::begin_profile";

// berth::watch_backward() -> (): a library is there that may have backward functions of its own
// (see backward_nodes.h).

// Calls one of these operators with a tensor. Does nothing where they are not registered.
void ask_for_bytes(std::string_view how, const at::Tensor& tensor);

// Registers them in libtorch. A second call does nothing. Not thread-safe.
void register_byte_access();

}  // namespace berth::torch::step
