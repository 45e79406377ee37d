#pragma once

#include "csrc/standin/api.h"
#include "csrc/standin/control.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace berth::standin {

inline constexpr int kRandomPace = 0;
inline constexpr int kLazyPace = 1;
inline constexpr int kEagerPace = 2;

// Two devices, whatever the environment says. Before the first call, as that reads it.
inline const bool two_devices = setenv("BERTH_STANDIN_DEVICES", "2", 1) == 0;

// The stand-in as a fresh process would find it, as far as one process can: nothing injected,
// nothing queued.
struct Fixture {
  explicit Fixture(int pace = kLazyPace) {
    berth_standin_clear_faults();
    berth_standin_set_pace(pace);
    berth_standin_seed(1);
    cudaSetDevice(0);
    settle();
    cudaGetLastError();
    berth_standin_forget_violations();
    berth_standin_reset_calls();
  }
  ~Fixture() {
    berth_standin_clear_faults();
    settle();
  }
  // Nothing queued on either device, device 0 the current one.
  static void settle() {
    for (const int device : {1, 0}) {
      cudaSetDevice(device);
      cudaDeviceSynchronize();
    }
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;
};

inline StreamHandle make_stream(unsigned flags = kStreamNonBlocking) {
  StreamHandle stream = nullptr;
  cudaStreamCreateWithFlags(&stream, flags);
  return stream;
}

inline EventHandle make_event(unsigned flags = kEventDisableTiming) {
  EventHandle event = nullptr;
  cudaEventCreateWithFlags(&event, flags);
  return event;
}

template <typename T = char>
T* device_memory(std::size_t size) {
  void* pointer = nullptr;
  cudaMalloc(&pointer, size);
  return static_cast<T*>(pointer);
}

template <typename T = char>
T* pinned_memory(std::size_t size) {
  void* pointer = nullptr;
  cudaHostAlloc(&pointer, size, 0);
  return static_cast<T*>(pointer);
}

inline void reads(StreamHandle stream, const void* pointer, std::size_t size) {
  const BerthStandinAccess access{pointer, size, 0};
  berth_standin_launch(stream, "reader", &access, 1);
}

inline void writes(StreamHandle stream, const void* pointer, std::size_t size) {
  const BerthStandinAccess access{pointer, size, 1};
  berth_standin_launch(stream, "writer", &access, 1);
}

inline std::string violation(std::size_t n) {
  std::string text(4096, '\0');
  text.resize(berth_standin_violation(n, text.data(), text.size()));
  return text;
}

}  // namespace berth::standin
