#pragma once

#include "csrc/core/bytes.h"
#include "csrc/torch/shared/room.h"
#include "csrc/torch/step/operator_turns.h"
#include "csrc/torch/step/spill_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Event.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace berth::torch::step {

// Spills: where a request finds no room, tensors that no running operator uses leave for the host.
// They come back before the operator that takes them. Those leave first that are used last, as far
// as the step before shows it (L. A. Belady, IBM Systems Journal 5(2), 1966); without a step before
// the least recently used ones.
//
// A tensor keeps its storage, its views and its version: the storage alone loses its memory for a
// while. Who asks it for its bytes by a pointer meanwhile gets a c10::Error. Operators of all
// threads find all bytes; so do berth::read_bytes and the methods of Python's tensors that call it.
//
// Tensors that stay: what an operator under a tap has not taken or made yet; memory that its
// allocator did not give, or that others may use (see is_foreign()); what an operator took that
// nobody knows, which may keep a pointer; what two streams have used. Nothing leaves while its
// device is captured into a graph.
//
// On the CPU the host is plain memory. From a device bytes go to pinned memory by the calling
// thread's current stream, and come back by it; the host waits for neither. A tensor that has come
// back keeps its copy until an operator writes it, or the host memory is needed: it leaves again
// without one. Threads without a tap are seen, too (see other_threads.h). Host memory of a tensor
// that is gone serves the next one of its size.
//
// Thread-safe. No memory is asked for under the lock, and no reference to a storage is made or
// dropped there: either may wait for Python's lock, whose holder may wait for this one. Off it
// costs one load an operator. On it costs O(operands) an operator. A request that finds no room
// costs O(n + m log n), of n known tensors of which m leave; a step's end O(n + uses of the step).
class Spills final : public RoomMaker {
 public:
  struct Figures {
    // Copied to the host, and back, since the process began, as no schedule said.
    Bytes out = 0, in = 0;
    Bytes host = 0, host_peak = 0;  // on the host
    std::uint64_t ns = 0;           // the calling threads' time for these
    std::uint64_t left = 0;         // times that a tensor left, by a schedule, too
  };

  // The one of this library.
  [[nodiscard]] static Spills& get();
  [[nodiscard]] static bool on() noexcept { return on_.load(std::memory_order_acquire); }

  // Whether the allocators of all devices whose tensors are known are berth's.
  [[nodiscard]] bool allocators_ask() const noexcept {
    return allocators_ask_.load(std::memory_order_relaxed);
  }

  // Lets tensors take so many bytes of the host, or as many as were allowed before. On from then
  // on.
  void allow(Bytes host_bytes);
  [[nodiscard]] Figures figures() const;
  // Host memory for a copy that a schedule makes, of what is allowed. Given back when it goes.
  class HostShare {
   public:
    HostShare() = default;
    explicit HostShare(Bytes bytes) noexcept : bytes_(bytes) {}
    HostShare(HostShare&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
    HostShare& operator=(HostShare&& other) noexcept {
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~HostShare();

   private:
    Bytes bytes_ = 0;
  };
  // Nothing where there is no room for so much. Without spills there is always room.
  [[nodiscard]] std::optional<HostShare> host_share(Bytes bytes);
  // From now on shortage() is counted.
  void watch_shortage();
  // By how much more requests had on the host at the most, at a time, than at the least.
  [[nodiscard]] Bytes shortage() const;
  // What all known tensors that are there take, on one device or on all. O(known tensors).
  [[nodiscard]] Bytes known(std::optional<c10::Device> device = std::nullopt) const;

  // What an operator asks for beside what it takes, as far as requests have failed.
  using Rooms = std::vector<Bytes>;

  // While it stands, what an operator takes is there and stays. Throws c10::OutOfMemoryError where
  // there is no room for all of it. What operators inside take and make stays as long: the kernel
  // around them may have its address, unless it points to its arguments alone. Operators of several
  // threads that do not fit the memory together take turns (see operator_turns.h).
  class Use {
   public:
    // A call whose arguments are the last ones of `stack`. `begins_again`: whoever catches its
    // c10::OutOfMemoryError makes another use of it where gave_way() says so. `rooms`: all that the
    // call takes is to be laid out anew, with room for these.
    Use(const c10::OperatorHandle& op, const c10::Stack& stack, bool begins_again = false,
        const Rooms* rooms = nullptr) {
      if (on()) [[unlikely]]
        begin(op, stack, begins_again, rooms);
    }
    explicit Use(const c10::Storage& storage) {
      if (on()) [[unlikely]]
        begin(storage);
    }
    ~Use() {
      if (stands_) [[unlikely]]
        end();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    // Whether a kernel runs on this thread that may have the address of what it calls others with.
    [[nodiscard]] static bool inside_kernel() noexcept;
    // From now on the call may begin again, or may not.
    void set_begins_again(bool may) {
      if (stands_ && outer_ == nullptr) [[unlikely]]
        get().turns_.set_begins_again(turn_, may);
    }
    // Whether the last use of this thread found no room because operators of other threads wait for
    // what it had. Asked once.
    [[nodiscard]] static bool gave_way() noexcept;
    // What the operator of this thread has to have there, and its name. Under the lock.
    struct Need {
      std::string name;  // empty: none asks
      Bytes uses = 0;    // of tensors
    };
    [[nodiscard]] static Need need(c10::Device device);
    // The call has run: its results, the last ones of `stack`, may leave from now on.
    void note_results(const c10::OperatorHandle& op, const c10::Stack& stack) {
      if (on()) [[unlikely]]
        see_results(op, stack);
    }
    // A view has been made, the last one of `stack`. What is inside it stays.
    static void note_view(const c10::Stack& stack) {
      if (on()) [[unlikely]]
        see_view(stack);
    }

   private:
    static void see_view(const c10::Stack& stack);
    void begin(const c10::OperatorHandle& op, const c10::Stack& stack, bool begins_again,
               const Rooms* rooms);
    void begin(const c10::Storage& storage);
    // Of what it uses.
    void bring_back(const Rooms* rooms = nullptr);
    void see_results(const c10::OperatorHandle& op, const c10::Stack& stack);
    void end() noexcept;
    // The use around this one with which what this one uses stays; null: none.
    [[nodiscard]] Use* keeper() const noexcept;
    std::vector<void*> used_;  // entries
    std::optional<c10::OperatorHandle> op_;
    bool stands_ = false;
    bool keeps_inside_ = true;  // what operators inside use stays
    Use* outer_ = nullptr;      // of the operator that calls this one
    OperatorTurns::Turn turn_ = {};

    friend class Spills;
  };

  // A storage that is there and stays, since others have its address.
  class Hold {
   public:
    explicit Hold(const c10::Storage& storage) : storage_(storage), use_(storage) {}

   private:
    const c10::Storage storage_;
    const Use use_;
  };

  // Until the next operator that takes this one storages may be compared, by
  // at::Tensor::is_alias_of(): that asks for their pointers and needs no bytes.
  void let_compare(const c10::StorageImpl& storage);
  // A profiler may begin on this thread. It asks for the pointers of what operators take before
  // these bring it back, and gets null for what is away. Ends with the thread's first operator
  // behind the profiler.
  void let_profilers_look();
  // A step has ended. The next one is expected to use its tensors in the same order: those that
  // were there before it, and the k-th one that it makes.
  void end_step();
  // The storage has got bytes that an operator made: they may leave. Where another stream brings
  // them, they have come with the event.
  void see(c10::StorageImpl& storage, std::shared_ptr<c10::Event> arriving = nullptr);
  // The storage is about to be written by another one with the same bytes.
  void forget_copy_of(const c10::StorageImpl& storage);
  // As a schedule says, for storages that others have, too. Both do nothing where the storage has
  // to stay, or is there. A device copies by the stream `by`, which waits for the current one; on
  // the CPU there is none. What uses the storage later waits for the copy.
  //
  // Lets it leave. Returns its memory, which is free once the current stream has waited for `by`:
  // empty where it stays, or was free at once.
  [[nodiscard]] c10::DataPtr send(c10::StorageImpl& storage, const std::optional<c10::Stream>& by);
  // Brings it back. Where there is no room it comes when an operator takes it. Returns whether it
  // is on its way.
  bool fetch(c10::StorageImpl& storage, const std::optional<c10::Stream>& by);
  // A copy on the host of bytes that are there, for a while, and back: by the current stream.
  [[nodiscard]] static at::Tensor copy_to_host(const at::Tensor& bytes);
  static void copy_from_host(const at::Tensor& copy, at::Tensor bytes);
  // The storage with that address, if it is known and alive.
  [[nodiscard]] c10::Storage find(const c10::StorageImpl* address) const;
  // Whether the storage's bytes are on the host.
  [[nodiscard]] static bool away(c10::StorageImpl& storage) noexcept;
  // Gives a storage without bytes those of `real`, which both have until one is gone or has got
  // other bytes. They leave and come back together: nobody else may have their address.
  void pair(const c10::Storage& real, c10::StorageImpl& other);
  // Gives a storage without bytes, or one of a pair, the bytes of one that is away, which has none
  // then. Returns whether it was away.
  bool move(c10::StorageImpl& from, c10::StorageImpl& to);

  bool make_room(c10::Device device, Bytes bytes) noexcept override;
  [[nodiscard]] std::string why_no_room() const override;
  // What this thread's last request that found no room asked for.
  [[nodiscard]] static Bytes lacked() noexcept { return lacked_; }

 private:
  using Strong = c10::intrusive_ptr<c10::StorageImpl>;
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;

  using Copy = SpillMemory::Copy;
  struct Entry {
    Weak storage;
    c10::StorageImpl* address = nullptr;
    c10::Device device = c10::kCPU;
    Bytes bytes = 0;         // when it was used last
    std::uint32_t uses = 0;  // that stand
    bool stays = false;
    bool away = false;
    bool copied = false;                        // it is there, and its copy has the same bytes
    bool written = false;                       // since it left
    bool lacked_room = false;                   // it is away because of a request
    std::optional<c10::Stream> stream = {};     // that used it
    std::optional<c10::Stream> left_on = {};    // by which it left
    std::shared_ptr<c10::Event> arriving = {};  // that its users wait for; null: it is there
    Copy copy = {};
    // By the clock of uses: its uses in this step and in the one before, and the last one.
    std::vector<std::uint32_t> used_at = {}, used_before = {};
    std::uint32_t touched = 0;
    std::size_t made = kMadeBefore;  // in this step, as so manieth
    // Of a pair: the one whose bytes they are stands for both, and the other one.
    Entry* real = nullptr;
    Entry* other = nullptr;
  };
  class Pair;
  static constexpr std::size_t kMadeBefore = ~std::size_t{0};
  struct Made {  // in a step
    Bytes bytes = 0;
    std::vector<std::uint32_t> used_at = {};
  };
  using Entries = std::list<Entry>;
  Spills();
  // Without the lock: an operator is called, under a profiler or not.
  void note_profiler();
  // Without the lock: brings one back that is in use, so that it stays.
  void bring_back(Entry& entry, bool scheduled = false,
                  const std::optional<c10::Stream>& by = std::nullopt);
  // Without the lock: brings back what is in use, the largest first, with free memory for `rooms`
  // between, where there is any.
  void lay_out(const std::vector<void*>& entries, const Rooms& rooms);
  // Without the lock: the storages of the device that may leave as far as is known, those first
  // that are used last, up to so many bytes.
  [[nodiscard]] std::vector<Strong> candidates(c10::Device device, Bytes bytes) const;
  // Without the lock: lets them leave. Returns the bytes that are free now.
  Bytes leave(const std::vector<Strong>& storages, Bytes bytes);

  // Under the lock, all that follow.
  // Of a pair the real one.
  Entry* find_or_add(c10::StorageImpl& storage);
  struct Used {
    c10::StorageImpl* storage = nullptr;
    bool written = false;
    bool stays = false;  // from now on
  };
  void use(const Used& one, std::vector<void*>& used);
  void end_compare();
  void set_looked_at(bool looked_at);
  // The first one that used it.
  static void note_stream(Entry& entry);
  Entry& add(c10::StorageImpl& storage);
  void note_use(Entry& entry);
  // When it is used next, by the clock of this step and the next ones.
  [[nodiscard]] std::uint64_t next_use(const Entry& entry) const;
  // Fills `room`, which is empty or has its size.
  [[nodiscard]] static Copy copy_of(c10::StorageImpl& storage, Copy room);
  // Whether it has left, and its memory is free now, or in `block` where a stream `by` copies it.
  // `other`: the other one of a pair.
  bool leave(Entry& entry, c10::StorageImpl& storage, const Strong& other,
             const std::optional<c10::Stream>& by = std::nullopt, c10::DataPtr* block = nullptr);
  // The other one of a pair; null: there is none. To be dropped without the lock.
  [[nodiscard]] static Strong other_of(const Entry& entry);
  // Whether the other one of a pair is alive, and NumPy has no array of it (see is_foreign()).
  [[nodiscard]] static bool may_leave_with(const Strong& other);
  // The other one of a pair gets that address, and keeps what makes it one.
  static void set_address(c10::StorageImpl& other, void* address);
  // What is known of the uses of the first one is known of the second one from now on.
  static void hand_over(Entry& from, Entry& to);
  // The real one and its other one are no pair any more.
  static void part(Entry& real);
  static void end_pair(void* pair) noexcept;
  // It is away: who asks it for its bytes gets a c10::Error.
  void deny_away(c10::StorageImpl& storage) const;
  // The current stream waits for its copy.
  static void wait_for_arrival(Entry& entry);
  // Of a pair the real one may, for both.
  [[nodiscard]] static bool may_leave(const Entry& entry, const std::optional<c10::Stream>& stream);
  // Whether there is room for so much more on the host, once what may go there has gone.
  bool host_has(Bytes bytes);
  // It is away because of a request, or no more.
  void set_lacks_room(Entry& entry, bool lacks);
  // Its copy, if any, is none of it any more.
  void forget_copy(Entry& entry);
  static void put(c10::StorageImpl& storage, c10::DataPtr block);
  // Whether this thread is to ask again, since an operator of another one has ended after `ended`
  // was read.
  bool wait_for_others(std::uint64_t ended);
  // Why nothing of the device may leave, where so much is asked for.
  [[nodiscard]] std::string who_stays(c10::Device device, Bytes asked) const;
  // Forgets tensors that are gone, where there are many, or all of them.
  void drop_dead(bool all = false);
  static void drop(void* entry) noexcept;

  static std::atomic<bool> on_;
  static thread_local bool fetches_;  // a fetch() that must not wait
  static thread_local Bytes lacked_;
  std::atomic<bool> allocators_ask_{true};
  mutable std::mutex mutex_;  // held over a fork, so that a child finds all bytes
  OperatorTurns turns_;
  Figures figures_;  // but for what memory_ counts
  // What is away because of requests: now, and since watch_shortage().
  Bytes lacking_ = 0, least_lacking_ = 0, most_lacking_ = 0;
  SpillMemory memory_;
  std::string why_;
  Entries entries_;  // the least recently used first
  std::unordered_map<const c10::StorageImpl*, Entries::iterator> by_storage_;
  const c10::StorageImpl* compared_ = nullptr;  // let_compare() stands until it is taken
  // A profiler looks, on this thread; whether it has begun.
  std::atomic<bool> looked_at_{false};
  std::thread::id looks_on_;
  bool profiled_ = false;
  std::size_t alive_ = 0;  // entries after the last look for dead ones
  // The clock of this step, and how long the one before was; what both made, in order.
  std::uint32_t clock_ = 0, length_ = 0;
  std::vector<Made> made_, made_before_;
};

}  // namespace berth::torch::step
