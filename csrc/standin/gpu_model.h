#pragma once

#include "csrc/device/gpu_models.h"
#include "csrc/standin/abi.h"

#include <cstddef>

namespace berth::standin {

// The table of GPUs is csrc/device/gpu_models.h's.
using berth::find_gpu;
using berth::GpuModel;
using berth::gpus;

// As cudaGetDeviceProperties fills it, for device number `device` with `total_memory` bytes.
DeviceProperties properties_of(const GpuModel& gpu, int device, std::size_t total_memory);

// As cudaDeviceGetAttribute and cuDeviceGetAttribute answer; 0 for an attribute of which the
// stand-in has no opinion.
int attribute_of(const GpuModel& gpu, int device, int attribute);

}  // namespace berth::standin
