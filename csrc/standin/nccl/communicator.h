#pragma once

#include "csrc/standin/abi.h"
#include "csrc/standin/nccl/collective.h"
#include "csrc/standin/process.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace berth::standin {

// What NCCL's functions return (ncclResult_t).
enum NcclStatus : int {
  kNcclSuccess = 0,
  kNcclCudaError = 1,
  kNcclSystemError = 2,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
};

// A failure with the words for it.
struct NcclAnswer {
  NcclStatus status = kNcclSuccess;
  std::string text = {};
};

struct SharedBlock;

// One rank of a communicator, whose ranks are threads or processes of one machine.
//
// The ranks share a block of memory where each says what it put where; the bytes themselves lie in
// the outbox of its process until all have read them. Nobody waits with the machine's lock held,
// and nobody for ever: who waits for a rank that is gone gets an error. A rank runs at most
// kDepth collectives, and messages to one peer, ahead of the slowest.
//
// meet() and split() block and want the machine's lock not held; all others but make_id() want it
// held.
class Communicator {
 public:
  static constexpr int kMostRanks = 64;
  static constexpr int kDepth = 16;

  static UniqueId make_id();

  // Takes the place of a rank; null with the answer where that is refused. meet() waits for the
  // others.
  static std::shared_ptr<Communicator> join(const UniqueId& id, int ranks, int rank, int device,
                                            NcclAnswer& answer);
  [[nodiscard]] NcclAnswer meet(std::chrono::seconds patience);

  // All ranks that `takes_part` call it, too. Those with the same color make a new communicator,
  // ordered by key; a negative color makes none.
  std::shared_ptr<Communicator> split(int color, int key, const std::vector<bool>& takes_part,
                                      std::chrono::seconds patience, NcclAnswer& answer);

  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] const NcclAnswer& failure() const { return failure_; }

  // One call on its way.
  struct Part {
    CollectiveCall call;
    std::uint64_t number = 0;  // of the communicator, or of the messages between two ranks
    bool posted = false;
    bool over = false;
  };
  [[nodiscard]] Part begin(const CollectiveCall& call);
  // Does what can be done of it now, and returns whether it is over.
  bool proceed(Part& part, std::size_t copy_limit);
  [[nodiscard]] std::size_t pending() const { return pending_; }
  // A collective of a communicator of one rank: a copy.
  static void move_alone(const CollectiveCall& call);

  // Ends what is pending. The others learn that this rank is gone.
  void abort();
  void leave();
  // Gives back what all have read; whether nothing is left.
  bool tidy();

  // Numbers of reductions that multiply first.
  struct Factor {
    int type = 0;
    std::array<std::byte, 8> value{};
    const void* on_device = nullptr;
  };
  std::map<int, Factor> factors;

 private:
  struct Sent {
    bool message = false;
    int peer = 0;
    std::uint64_t number = 0;
    std::uint64_t offset = 0;
    std::size_t size = 0;
  };

  Communicator() = default;

  bool proceed_collective(Part& part, std::size_t copy_limit);
  bool proceed_send(Part& part, std::size_t copy_limit);
  bool proceed_receive(Part& part);
  // Whether something that `rank` has to do is done; fails where it can no longer come.
  template <class Done>
  bool await(int rank, Done done);
  bool finish(Part& part);
  std::uint64_t put(const CollectiveCall& call, std::size_t size);
  bool deliver(const CollectiveCall& call, std::uint64_t number);
  bool read(int rank, std::uint64_t offset, void* to, std::size_t size);
  void fail(NcclStatus status, std::string text);
  void ring_others() const;
  [[nodiscard]] std::string describe(int rank) const;
  [[nodiscard]] bool is_gone(int rank) const;
  // The same, not asked more often than the answer is worth.
  [[nodiscard]] bool seems_gone(int rank);

  SharedBlock* block_ = nullptr;
  int rank_ = 0;
  int ranks_ = 1;
  int device_ = 0;
  bool aborted_ = false;
  std::size_t pending_ = 0;
  NcclAnswer failure_;
  std::chrono::steady_clock::time_point failed_at_;
  std::uint64_t next_ = 1;
  std::uint64_t votes_ = 0;
  std::vector<std::uint64_t> next_sent_, next_received_;
  std::vector<Sent> sent_;
  struct Look {
    std::chrono::steady_clock::time_point at;
    bool gone = false;
  };
  std::vector<Look> looks_;
};

}  // namespace berth::standin
