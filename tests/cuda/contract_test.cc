#include "tests/cuda/fixture.h"
#include "tests/support/device_contract.h"

using namespace berth;
using namespace berth::test;

TEST_CASE("Virtual memory of a GPU keeps the contract of devices", "[cuda][contract]") {
  const Standin standin;
  const Stream first, second;
  const auto device = make_gpu(CudaOptions::Memory::kVirtual);
  cudaSetDevice(0);
  check_device_contract(*device, first.lane(), second.lane());
}

TEST_CASE("Plain memory of a GPU keeps the contract of devices", "[cuda][contract]") {
  const Standin standin;
  const Stream first, second;
  const auto device = make_gpu(CudaOptions::Memory::kPlain);
  check_device_contract(*device, first.lane(), second.lane());
}

TEST_CASE("The second GPU keeps the contract while the first is current", "[cuda][contract]") {
  const Standin standin;
  const auto device = make_gpu(CudaOptions::Memory::kVirtual, 1);
  // Of the second GPU's two default streams.
  check_device_contract(*device, CudaDevice::lane_of(nullptr),
                        CudaDevice::lane_of(cudaStreamPerThread));
  int current = -1;
  cudaGetDevice(&current);
  REQUIRE(current == 0);
}
