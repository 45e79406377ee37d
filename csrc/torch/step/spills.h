#pragma once

#include "csrc/core/bytes.h"
#include "csrc/torch/room.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace berth::torch::step {

// Spills: where a request finds no room, tensors that no running operator uses leave for the host,
// the least recently used first. They come back before the operator that takes them.
//
// A tensor keeps its storage, its views and its version: the storage alone loses its memory for a
// while. Who asks it for its bytes by a pointer meanwhile gets a c10::Error. Operators of threads
// under a tap find all bytes; so do berth::read_bytes and the methods of Python's tensors that call
// it.
//
// Tensors that stay: what an operator under a tap has not taken or made yet; memory that its
// allocator did not give, or that others may use (see is_foreign()); what an operator took that
// nobody knows, which may keep a pointer; what two streams have used. Nothing leaves while its
// device is captured into a graph.
//
// On the CPU the host is plain memory. From a device bytes go to pinned memory by the calling
// thread's current stream, and come back by it; the host waits for neither. A tensor that has come
// back is copied anew when it leaves again: a thread without a tap may have written it. Its host
// memory serves the next tensor of its size.
//
// Thread-safe. Off it costs one load an operator. On it costs O(operands) an operator, and O(known
// tensors) a request that finds no room.
class Spills final : public RoomMaker {
 public:
  struct Figures {
    Bytes out = 0, in = 0;          // copied to the host, and back, since the process began
    Bytes host = 0, host_peak = 0;  // on the host
    std::uint64_t ns = 0;           // the calling threads' time
  };

  // The one of this library.
  [[nodiscard]] static Spills& get();
  [[nodiscard]] static bool on() noexcept { return on_.load(std::memory_order_acquire); }

  // Lets tensors take so many bytes of the host, or as many as were allowed before. On from then
  // on.
  void allow(Bytes host_bytes);
  [[nodiscard]] Figures figures() const;
  // What all known tensors that are there take. O(known tensors).
  [[nodiscard]] Bytes known() const;

  // While it stands, what an operator takes is there and stays. Throws c10::OutOfMemoryError where
  // there is no room for all of it.
  class Use {
   public:
    // A call whose arguments are the last ones of `stack`.
    Use(const c10::OperatorHandle& op, const c10::Stack& stack) {
      if (on()) [[unlikely]]
        begin(op, stack);
    }
    explicit Use(const c10::Storage& storage) {
      if (on()) [[unlikely]]
        begin(storage);
    }
    ~Use() {
      if (!used_.empty()) [[unlikely]]
        end();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // The call has run: its results, the last ones of `stack`, may leave from now on.
    void note_results(const c10::OperatorHandle& op, const c10::Stack& stack) {
      if (on()) [[unlikely]]
        see_results(op, stack);
    }

   private:
    void begin(const c10::OperatorHandle& op, const c10::Stack& stack);
    void begin(const c10::Storage& storage);
    // Of what it uses. Under the lock.
    void bring_back();
    static void see_results(const c10::OperatorHandle& op, const c10::Stack& stack);
    void end() noexcept;
    std::vector<void*> used_;  // entries
  };

  // A storage that is there and stays, since others have its address.
  class Hold {
   public:
    explicit Hold(const c10::Storage& storage) : storage_(storage), use_(storage) {}

   private:
    const c10::Storage storage_;
    const Use use_;
  };

  // The storage has got bytes that an operator made: they may leave.
  void see(c10::StorageImpl& storage);
  // Whether the storage's bytes are on the host.
  [[nodiscard]] static bool away(c10::StorageImpl& storage) noexcept;
  // Gives a storage without bytes those of one that is away, which has none then.
  void move(c10::StorageImpl& from, c10::StorageImpl& to);

  bool make_room(c10::Device device, Bytes bytes) noexcept override;
  [[nodiscard]] std::string why_no_room() const override;

 private:
  struct Copy {                          // on the host
    std::unique_ptr<std::byte[]> plain;  // of the CPU
    at::Tensor pinned;                   // of a device
    Bytes bytes = 0;                     // 0: there is none
  };
  struct Spare {
    Copy copy;
    std::optional<c10::Stream> stream;
  };
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const c10::StorageImpl* address = nullptr;
    std::uint32_t uses = 0;  // that stand
    bool stays = false;
    bool away = false;
    std::optional<c10::Stream> stream = {};   // that used it
    std::optional<c10::Stream> left_on = {};  // by which it left
    Copy copy = {};
  };
  using Entries = std::list<Entry>;
  // Recursive: an allocator that has no room for what comes back asks for room. Held over a fork,
  // so that a child finds all bytes. At most one of a process.
  class Mutex {
   public:
    void lock();
    void unlock() noexcept;

   private:
    std::mutex mutex_;
  };

  Spills();
  // Under the lock, all of them.
  Entry* find_or_add(const c10::Storage& storage);
  void use(const c10::Storage& storage, bool opaque, std::vector<void*>& used);
  void bring_back(Entry& entry);
  // Whether its memory is free now.
  bool leave(Entry& entry);
  [[nodiscard]] bool may_leave(Entry& entry, c10::StorageImpl& storage, c10::Device device,
                               const std::optional<c10::Stream>& stream) const;
  // Whether there is room for so much more on the host, once spare memory goes.
  bool host_has(Bytes bytes);
  // Host memory of that size whose last copy was on that stream; none where there is none.
  Copy take_spare(Bytes bytes, const std::optional<c10::Stream>& stream);
  void keep_spare(Entry& entry);
  // Why nothing of the device may leave.
  [[nodiscard]] std::string who_stays(c10::Device device);
  void drop_dead();
  static void drop(void* entry) noexcept;

  static std::atomic<bool> on_;
  mutable Mutex mutex_;
  Bytes allowed_ = 0;
  Figures figures_;
  bool leaving_ = false;
  std::string why_;
  Entries entries_;  // the least recently used first
  std::unordered_map<const c10::StorageImpl*, Entries::iterator> by_storage_;
  std::deque<Spare> spares_;  // the oldest first
  Bytes spare_bytes_ = 0;
  std::size_t alive_ = 0;  // entries after the last look for dead ones
};

}  // namespace berth::torch::step
