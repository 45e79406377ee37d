#pragma once

#include "csrc/torch/step/instructions.h"
#include "csrc/torch/step/leaving_blocks.h"
#include "csrc/torch/step/spills.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>

namespace berth::torch::step {

// Bytes of a step that are on the host for a while, by buffer.
//
// On the CPU the host is memory of its own kind, and a copy is there when the call returns. Devices
// copy on two streams beside the current one, one each way, with an event for each of these: a copy
// out waits for what was asked of the current stream before; its storage goes only when the current
// stream has waited for it, so that nobody gets its bytes before; a reload waits for the offload
// that it brings back, and for what was asked of the current stream before, which may still use the
// bytes that it writes; who takes them waits for it. Host memory is pinned.
//
// Not thread-safe. Calls return without waiting on the host, but on the CPU. O(1) each, and the
// copy.
class HostCopies {
 public:
  HostCopies() = default;
  // The current streams wait for all that is under way.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Sends the bytes of a storage away, and lets go of it once they are there. False, and nothing
  // is sent, where the host memory that is allowed has no room for them.
  [[nodiscard]] bool out(BufferNumber buffer, c10::Storage storage);
  // The same of a storage that somebody else has, too, which loses its memory for a while (see
  // spills.h); it stays where it has to.
  void send(BufferNumber buffer, const c10::Storage& storage);
  // That storage gets its bytes, for whom wait_for() is called before.
  void fetch(BufferNumber buffer, const c10::Storage& storage);
  // Sends one that a schedule has on the host when it begins. It is no copy of the schedule's.
  void begin_without(const c10::Storage& storage);
  // Counts one that the schedule has and that is not made.
  void skip_out() { leaving_.emplace_back(); }
  // Lets go of the storages of the first `count` offloads, of all that there were.
  void end_outs(std::size_t count);
  // Of all of them.
  void end() { end_outs(ended_ + leaving_.size()); }
  // Whether the buffer's bytes are on the host.
  [[nodiscard]] bool has(BufferNumber buffer) const { return away_.contains(buffer); }
  // A storage with the buffer's bytes, for whom wait_for() is called before.
  [[nodiscard]] c10::Storage in(BufferNumber buffer);
  // The current stream waits until the bytes of a reload have come; nothing where they have.
  void wait_for(BufferNumber buffer);
  // The bytes on the host are wanted no more.
  void drop(BufferNumber buffer) { away_.erase(buffer); }

 private:
  struct Away {
    std::size_t bytes = 0;
    c10::Device device = c10::kCPU;
    Spills::HostShare share = {};
    std::unique_ptr<std::byte[]> plain = {};  // of the CPU
    at::Tensor pinned = {};                   // of a device
    std::shared_ptr<c10::Event> out = {};     // of a device
  };
  std::unordered_map<BufferNumber, Away> away_;
  std::deque<std::shared_ptr<LeavingBlock>> leaving_;  // null: nothing waits for it
  std::size_t ended_ = 0;                              // offloads whose storages are gone
  struct Arriving {
    c10::Storage storage;
    std::shared_ptr<c10::Event> in;
  };
  std::unordered_map<BufferNumber, Arriving> arriving_;
};

}  // namespace berth::torch::step
