// A C++ program on libtorch's CUDA side, as a user would write it: allocates, computes and trains
// on the device under PyTorch's own allocator, on two streams. Prints what the allocator says of
// it, and marks its steps where berth is there. Usage: cuda_program [STEPS [BATCH]]
//
// It includes no header of libtorch that wants CUDA's own.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((weak)) void berth_torch_mark_step();

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 3;
  const int batch = argc > 2 ? std::atoi(argv[2]) : 8;
  if (!at::globalContext().hasCUDA()) {
    std::puts("no device");
    return 1;
  }
  const c10::Device device(at::kCUDA, 0);
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kFloat);
  const c10::impl::VirtualGuardImpl runtime(at::kCUDA);

  at::Tensor weight = at::empty({64, 256}, options).set_requires_grad(true);
  at::Tensor kernel = at::empty({16, 3, 3, 3}, options).set_requires_grad(true);
  at::Tensor bias = at::empty({64}, options).set_requires_grad(true);
  for (int step = 0; step < steps; ++step) {
    const at::Tensor image = at::conv2d(at::empty({batch, 3, 6, 6}, options), kernel);
    const at::Tensor hidden = at::linear(image.reshape({batch, 256}), weight, bias).relu();
    const at::Tensor query = hidden.reshape({batch / 4, 4, 16, 4});
    at::scaled_dot_product_attention(query, query, query).sum().backward();
    if (berth_torch_mark_step != nullptr) berth_torch_mark_step();
  }

  // A tensor used on another stream, announced, and freed while that work is queued.
  const c10::Stream side = runtime.getStreamFromGlobalPool(device);
  c10::Event ready(at::kCUDA);
  {
    const at::Tensor shared = at::empty({1 << 20}, options);
    ready.record(runtime.getStream(device));
    const c10::StreamGuard on_side(side);
    side.wait(ready);
    const at::Tensor copy = shared.clone();
    shared.record_stream(side);
  }
  runtime.synchronizeDevice(0);

  auto* allocator = c10::getDeviceAllocator(at::kCUDA);
  const auto statistics = allocator->getDeviceStats(0);
  constexpr std::size_t kAggregate = 0;
  std::printf("allocations %lld, allocated %lld, reserved %lld, segments %lld\n",
              static_cast<long long>(statistics.allocation[kAggregate].allocated),
              static_cast<long long>(statistics.allocated_bytes[kAggregate].current),
              static_cast<long long>(statistics.reserved_bytes[kAggregate].current),
              static_cast<long long>(statistics.segment[kAggregate].allocated));
  return statistics.reserved_bytes[kAggregate].current > 0 && weight.grad().defined() &&
                 kernel.grad().defined()
             ? 0
             : 1;
}
