#pragma once

#include "csrc/core/bytes.h"
#include "csrc/cuda/current_device.h"

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
//   'e'  process id (4 bytes, 4 of padding), bytes of a page, number of pages (8 each), and a file
//        descriptor (4) of that process for each page, in the order of addresses
[[nodiscard]] std::string shared_plain_handle(const cudaIpcMemHandle_t& handle);
[[nodiscard]] std::string shared_virtual_handle(Bytes page_bytes,
                                                const std::vector<int>& descriptors);

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
