#pragma once

#include "csrc/core/bytes.h"
#include "csrc/replay/workload.h"

#include <memory>
#include <optional>
#include <string>

namespace berth::bench {

// TLSF (Masmano and others, 2004) from a shared library that has the functions of
// github.com/mattconte/tlsf, which is built by: cc -O2 -shared -fPIC tlsf.c -o libtlsf.so
class Tlsf {
 public:
  // Throws Error(kUsage) where the library has not got them.
  explicit Tlsf(const std::string& library);

  // Replays a run, sizes rounded to 512. The least size of a pool that would have served it, as the
  // highest byte that it handed out says; nothing where 3 GiB do not do.
  [[nodiscard]] std::optional<Bytes> highest_byte(const replay::Workload& workload) const;

 private:
  void* (*create_)(void*, std::size_t) = nullptr;
  void* (*allocate_)(void*, std::size_t) = nullptr;
  void (*free_)(void*, void*) = nullptr;
};

}  // namespace berth::bench
