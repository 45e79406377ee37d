#pragma once

#include "csrc/device/forwarding_device.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth {

// The account of a device's memory: what is held, the most that was, and the most that may be. All
// who share the memory (an arena and a pool, and beside them private pools) ask for it and give it
// back here; all other calls go through.
//
// Counts memory, not addresses: what reserve() brings where the device maps no pages, else pages
// that are committed, once each, behind how many addresses they are. Pages that are committed
// already are not asked for again. A request above the limit is Code::kOutOfMemory, and the device
// never hears of it.
//
// Not thread-safe where memory comes and goes: one lock covers all who share it. The device
// outlives it.
class PageStore final : public ForwardingDevice {
 public:
  // What memory is held as: a reservation of its own, or pages in one that maps them.
  enum class Holding { kReservation, kPages };

  // Hears of memory that comes and goes, of every byte at one address: the sizes of what came, less
  // those of what went, are held(). Called inside the allocator's calls, so under its lock: it must
  // not call an allocator on this device.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // It is held from now on, in use at these addresses.
    virtual void reserved(void* base, Bytes size, Holding holding) noexcept = 0;
    // Before the device takes it back, which may still fail: then reserved() follows. `base` is
    // where it was told of last.
    virtual void releasing(void* base, Bytes size, Holding holding) noexcept = 0;
    // Pages that are held stay so, and are in use at `to`, no longer at `from`.
    virtual void moved(void* to, void* from, Bytes size) noexcept = 0;
    // A reservation of addresses begins or ends: pages of two reservations never belong together.
    virtual void addresses_reserved(void*, Bytes) noexcept {}
    virtual void addresses_released(void*, Bytes) noexcept {}
  };

  explicit PageStore(Device& device, Watcher* watcher = nullptr);
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // The most that may be held; what is held already stays. 0 is no limit.
  void set_limit(Bytes limit) noexcept;
  // The smaller one of this and of the device's own.
  [[nodiscard]] Bytes limit() const noexcept override;
  // The most that should be held: pages beyond it are refused as by the limit, but for who says
  // that they must be had (Exceeding). 0 is no target.
  void set_target(Bytes target) noexcept { target_ = target; }
  [[nodiscard]] bool has_target() const noexcept { return target_ != 0; }
  [[nodiscard]] Bytes target() const noexcept { return target_; }
  // The most that a handle of pages has that come from here on; 0: a page, or a 4,096th of what is
  // held.
  void set_handle(Bytes bytes) noexcept { handle_ = bytes; }
  class Exceeding {
   public:
    explicit Exceeding(PageStore& store) noexcept
        : store_(store), before_(std::exchange(store.exceeding_, true)) {}
    ~Exceeding() { store_.exceeding_ = before_; }
    Exceeding(const Exceeding&) = delete;
    Exceeding& operator=(const Exceeding&) = delete;

   private:
    PageStore& store_;
    const bool before_;
  };
  [[nodiscard]] Bytes held() const noexcept { return held_; }
  // Since it was forgotten last.
  [[nodiscard]] Bytes peak() const noexcept { return peak_; }
  void forget_peak() noexcept { peak_ = held_; }
  [[nodiscard]] std::uint64_t refusals() const noexcept;  // by the limit
  // Changes of what is mapped since the start, of handles of the present size: what the driver is
  // called for. One more for each call of this class.
  [[nodiscard]] std::uint64_t changes() const noexcept { return changes_; }
  // What the device answered last, since it was forgotten, where it brought no memory for another
  // reason than that it has none.
  [[nodiscard]] const Status& failure() const noexcept { return failure_; }
  void forget_failure() noexcept { failure_ = {}; }

  // What is held as pages: stretches that are behind no other addresses, and one by one handles
  // that are, where each is in use, with its other addresses. Each lies in one reservation. Throws
  // std::bad_alloc.
  struct Piece {
    Bytes first = 0, last = 0;
    std::vector<Bytes> others = {};
  };
  [[nodiscard]] std::vector<Piece> pieces() const;

  // Memory of the device that others asked for, on behalf of these allocators: takes `size` from
  // what the limit leaves, or says why not; gives it back.
  Status take(Bytes size) noexcept;
  void give(Bytes size) noexcept;

  // Pages that are behind both addresses since alias() are in use at `to` from now on, which the
  // watcher hears. Before that a page is in use where it was committed.
  void use_at(void* to, void* from, Bytes size) noexcept;

  Status free_bytes(Bytes* free) noexcept override;
  // What the limit leaves; without one, what is left of where the device refused pages last. No
  // more than the device says, which may be a store that others have, too.
  [[nodiscard]] Bytes room() const noexcept override;
  // Whether there is a limit, and what it leaves beside `live` bytes is less than a `part`th of
  // these.
  [[nodiscard]] bool is_near_limit(Bytes live, Bytes part) const noexcept;
  // What set_handle() says; until it is called, what the device says.
  [[nodiscard]] Bytes handle_bytes() const noexcept override;
  [[nodiscard]] std::string describe(const Status& status) const override;
  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override;
  using Device::commit;
  Status commit(void* base, Bytes size, Residency residency, Bytes most) noexcept override;
  Status decommit(void* base, Bytes size) noexcept override;
  Status release(void* base, Bytes size) noexcept override;
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override;
  Status move(void* to, void* from, Bytes size) noexcept override;

 private:
  // The first stretch of [first, last) that has pages, or that has none; empty where there is none.
  struct Stretch {
    Bytes first = 0, last = 0;
  };
  [[nodiscard]] Stretch next(Bytes first, Bytes last, bool committed) const noexcept;
  // A page that is or was behind several addresses.
  struct Shared {
    std::vector<Bytes> users;  // its addresses
    std::size_t going = 0;     // of them, those of the call that is under way
    Bytes used_at = 0;         // the address that the watcher was told
  };
  // Of addresses that are to be unmapped: pages that have others are in use at one of those.
  void begin_leaving(Bytes first, Bytes last) noexcept;
  void end_leaving(Bytes first, Bytes last) noexcept;
  // Calls visit(address, shared) for the pages there that are or were behind several addresses.
  template <class Visit>
  void for_each_shared(Bytes first, Bytes last, Visit&& visit) const noexcept;
  // Calls visit(base, size) for the stretches of pages whose memory goes with these addresses.
  template <class Visit>
  void for_each_leaving(Bytes first, Bytes last, Visit&& visit) const noexcept;
  // The device unmaps these addresses by `call`, unless it fails.
  template <class Call>
  Status unmap(Bytes first, Bytes last, Call&& call) noexcept;
  [[nodiscard]] bool is_beyond_target(Bytes more) const noexcept {
    // mutant: target-ignored
    return target_ != 0 && !exceeding_ && more > target_ - std::min(target_, held_);
  }
  void note_change(Bytes size) noexcept { changes_ += 1 + size / handle_bytes(); }
  void note_failure(const Status& status) noexcept {
    if (!status.ok() && status.code() != Status::Code::kOutOfMemory) failure_ = status;
  }
  void tell_reserved(void* base, Bytes size, Holding holding) noexcept;
  void tell_releasing(void* base, Bytes size, Holding holding) noexcept;
  using Stretches = std::map<Bytes, Bytes>;  // first -> last; those that touch are one
  void add(Bytes first, Bytes last);
  void join(Stretches::node_type stretch) noexcept;
  // Cuts a stretch that reaches beyond the range at both sides: remove() then needs no memory.
  void cut_around(Bytes first, Bytes last);
  void remove(Bytes first, Bytes last);

  Watcher* const watcher_;
  // The addresses are no longer behind their pages; returns the bytes whose last addresses they
  // were.
  Bytes forget(Bytes first, Bytes last) noexcept;

  Bytes limit_ = 0, held_ = 0, peak_ = 0;
  Bytes refused_at_ = 0;  // so much was more than the device had; 0: it was not
  Bytes target_ = 0;
  bool exceeding_ = false;
  std::optional<Bytes> handle_;
  Status failure_;
  std::uint64_t refusals_ = 0, changes_ = 0;
  Stretches committed_;
  Stretches reserved_;  // where the device maps pages; those that touch stay apart
  std::unordered_map<Bytes, std::shared_ptr<Shared>> shared_;  // by each address
};

}  // namespace berth
