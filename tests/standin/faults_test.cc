#include "csrc/standin/calls.h"
#include "tests/catch.h"
#include "tests/standin/fixture.h"

using namespace berth::standin;

TEST_CASE("The n-th call of a function fails with the error that was asked for", "[faults]") {
  const Fixture fixture;
  berth_standin_fail("cudaMalloc", 2, kMemoryAllocation, 1);
  void* memory[3] = {};
  REQUIRE(cudaMalloc(&memory[0], 512) == kSuccess);
  REQUIRE(cudaMalloc(&memory[1], 512) == kMemoryAllocation);
  REQUIRE(cudaPeekAtLastError() == kMemoryAllocation);
  REQUIRE(cudaMalloc(&memory[2], 512) == kSuccess);
  REQUIRE(berth_standin_calls("cudaMalloc") == 3);
  REQUIRE(berth_standin_calls("cudaFree") == 0);
  cudaGetLastError();
  cudaFree(memory[0]);
  cudaFree(memory[2]);
}

TEST_CASE("Calls of all functions are counted together and can fail from the n-th on", "[faults]") {
  const Fixture fixture;
  berth_standin_fail("*", 2, kUnknown, UINT64_MAX);
  int device = 0;
  REQUIRE(cudaGetDevice(&device) == kSuccess);
  REQUIRE(cudaGetDevice(&device) == kUnknown);
  REQUIRE(cudaSetDevice(0) == kUnknown);
  berth_standin_clear_faults();
  REQUIRE(cudaSetDevice(0) == kSuccess);
  REQUIRE(berth_standin_calls("*") == 4);
}

TEST_CASE("An error of earlier device work stays until the process ends", "[faults]") {
  const Fixture fixture;
  berth_standin_fail("cudaStreamSynchronize", 1, kIllegalAddress, 1);
  REQUIRE(cudaStreamSynchronize(kDefaultStream) == kIllegalAddress);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 512) == kIllegalAddress);
  REQUIRE(cudaGetLastError() == kIllegalAddress);
  REQUIRE(cudaGetLastError() == kIllegalAddress);
  berth_standin_clear_faults();  // for the cases that follow in this process
  cudaGetLastError();
}

TEST_CASE("After the driver is gone every call says so", "[faults]") {
  const Fixture fixture;
  berth_standin_unload();
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 512) == kCudartUnloading);
  REQUIRE(cudaFree(&memory) == kCudartUnloading);
}

TEST_CASE("Faults can be written down in a variable of the environment", "[faults]") {
  const Fixture fixture;
  REQUIRE(fail_calls_by_text(""));
  REQUIRE(fail_calls_by_text("cudaFree:1:1,cudaMalloc:2:2:5"));
  REQUIRE(cudaFree(nullptr) == kInvalidValue);
  REQUIRE(cudaFree(nullptr) == kSuccess);
  for (const char* wrong :
       {"cudaFree", "cudaFree:1", "cudaFree:0:1", "cudaFree:1:0", "cudaFree:x:1", ":1:1",
        "cudaFree:1:1:x", "cudaFree:1:1:1:1", "cudaFree:1:1000"}) {
    CAPTURE(wrong);
    REQUIRE_FALSE(fail_calls_by_text(wrong));
  }
}

TEST_CASE("Errors have the names and texts that programs look for", "[faults]") {
  REQUIRE(std::string(cudaGetErrorName(2)) == "cudaErrorMemoryAllocation");
  REQUIRE(std::string(cudaGetErrorString(2)) == "out of memory");
  REQUIRE(std::string(cudaGetErrorString(12345)) == "unknown error");
}
