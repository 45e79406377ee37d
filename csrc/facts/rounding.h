#pragma once

#include <berth/bytes.h>

// How PyTorch's allocators round and align.
namespace berth::facts {

// PyTorch's CUDA allocator rounds sizes to it, and programs count on it as an alignment.
inline constexpr Bytes kCudaUnit = 512;
// The alignment of PyTorch's CPU allocator, which rounds no sizes.
inline constexpr Bytes kHostAlignment = 64;

}  // namespace berth::facts
