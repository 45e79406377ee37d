#pragma once

#include "csrc/core/bytes.h"
#include "csrc/cuda/current_device.h"
#include "csrc/cuda/descriptor_server.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace berth {

// Handles of memory for other processes, in the form of PyTorch 2.11 (c10/cuda/
// CUDACachingAllocator.cpp, shareIpcHandle): byte 2, the version, then
//
//   'c'  the cudaIpcMemHandle_t of one cudaMalloc
//   'e'  process id (4 bytes, 4 of padding), bytes of a part, number of parts (8 each), and a file
//        descriptor (4) of that process for each part, in the order of addresses
//
// Behind the latter berth puts what PyTorch does not read: eight bytes that say so, the door at
// which berth asks for descriptors instead, and the number (8) of each part there. And in a form
// that only berth opens, for parts of unequal sizes, or of more descriptors than should stay open:
//
//   'b'  process id (4 bytes, 4 of padding), 0, number of parts (8 each), the door, and for each
//        part its bytes (8) and its number (8)
[[nodiscard]] std::string shared_plain_handle(const cudaIpcMemHandle_t& handle);
struct SharedPart {
  Bytes size = 0;
  int descriptor = -1;       // -1: none is open
  std::uint64_t number = 0;  // at the door
};
// The first form where all parts are of one size and have descriptors; `door` may be null there.
[[nodiscard]] std::string shared_virtual_handle(const std::vector<SharedPart>& parts,
                                                const DescriptorDoor* door);

// What a GPU and the calls to it are to those that may outlive its device.
struct CudaGpu {
  CudaCalls calls;
  CudaPrimary primary;
};

// Memory of other processes, mapped here for one GPU: each handle once, as long as somebody holds
// it. Mappings may outlive this. Thread-safe.
class CudaSharedMappings {
 public:
  explicit CudaSharedMappings(std::shared_ptr<CudaGpu> gpu) : state_(new State{std::move(gpu)}) {}

  // May throw std::bad_alloc.
  Status open(const std::string& handle, std::shared_ptr<void>* base);

 private:
  struct Mapping;
  struct State {
    std::shared_ptr<CudaGpu> gpu;
    std::mutex mutex{};
    std::unordered_map<std::string, std::weak_ptr<void>> open{};  // by handle
  };
  std::shared_ptr<State> state_;
};

}  // namespace berth
