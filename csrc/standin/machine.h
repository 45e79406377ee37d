#pragma once

#include "csrc/standin/abi.h"
#include "csrc/standin/accesses.h"
#include "csrc/standin/calls.h"
#include "csrc/standin/capture.h"
#include "csrc/standin/gpu_model.h"
#include "csrc/standin/known_bytes.h"
#include "csrc/standin/memory.h"
#include "csrc/standin/options.h"
#include "csrc/standin/stream.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace berth::standin {

struct Pool;

struct DeviceState {
  DeviceState(std::size_t total, bool overcommit) : memory(total, overcommit) {}

  DeviceMemory memory;
  std::shared_ptr<Stream> legacy;
  std::set<int> peers;  // whose memory this one may reach
  std::shared_ptr<Pool> default_pool;
  std::shared_ptr<Pool> pool;      // of cudaMallocAsync
  bool context = false;            // somebody used the device, and its context took memory
  std::vector<int> communicators;  // that were made: the ranks of each, if more than one
  VectorClock gone;                // of streams that are destroyed and have nothing left
};

// All GPUs of the stand-in: their memory, their streams, and the scheduler that runs queued work.
//
// One per process, made at the first call and never destroyed. Every member function wants `mutex`
// held, through the `Lock` it is given where it may let it go: host functions run without it, and
// may call back.
//
// Happens-before. Each stream is a component of the vector clocks. An operation comes after those
// queued before it in its stream, after what its stream waited for, after what the legacy default
// stream's rules order, and after all that any thread of the host has seen to be over: the host
// counts as one thread, so a missing lock between threads of the program is not found. Memory is
// one at all its addresses.
class Machine {
 public:
  using Lock = std::unique_lock<std::mutex>;

  static Machine& get();

  std::mutex mutex;
  const Options options;
  Driver driver = options.driver;        // of virtual memory
  unsigned refusals = options.refusals;  // bits of Refusal
  const GpuModel& gpu;
  std::vector<std::unique_ptr<DeviceState>> devices;
  AddressSpace space;
  // By the names of bytes, for who may use them; of those that may have several addresses by these,
  // too, for when an address goes.
  Accesses accesses;

  // Kept where options.feeds_values says so.
  KnownBytes known;
  HostReads reads;

  // --- streams (scheduler.cc) ---
  std::shared_ptr<Stream> make_stream(int device, unsigned flags, int priority);
  static StreamHandle handle_of(const Stream& stream) {
    return reinterpret_cast<StreamHandle>(const_cast<Stream*>(&stream));
  }
  // The stream of a handle in the calling thread; null for one that is unknown or destroyed.
  std::shared_ptr<Stream> stream_of(StreamHandle handle);
  Status destroy_stream(StreamHandle handle);

  // Queues an operation, or notes it in the stream's capture.
  Status enqueue(Lock& lock, Stream& stream, Operation operation);
  // Lets the scheduler run some of what is ready.
  void advance(Lock& lock, bool queried);
  // Runs at most `count` operations that are ready, the same ones for the same seed.
  std::size_t run(Lock& lock, std::size_t count);
  // Runs until the stream got to `position`, the record is done, or a device has nothing left.
  void drain(Lock& lock, Stream& stream, std::uint64_t position);
  void drain(Lock& lock, EventRecord& record);
  void drain_device(Lock& lock, int device);
  void drain_until(Lock& lock, const std::function<bool()>& done);
  // From now on a thread runs what is ready while a collective is queued, since other processes
  // wait for that whatever this one does meanwhile, and calls `tend` with the lock held now and
  // then.
  void attend(std::function<void()> tend);

  // --- events (event.cc) ---
  std::shared_ptr<Event> event_of(EventHandle handle);
  EventHandle add_event(std::shared_ptr<Event> event);
  bool remove_event(EventHandle handle);
  Status record_event(Lock& lock, Stream& stream, const std::shared_ptr<Event>& event,
                      unsigned flags);
  Status wait_event(Lock& lock, Stream& stream, const std::shared_ptr<Event>& event,
                    unsigned flags);

  // --- captures (capture.cc) ---
  Status begin_capture(Stream& stream, const std::shared_ptr<Stream>& owner, CaptureMode mode);
  Status end_capture(Stream& stream, std::shared_ptr<Graph>& graph);
  Status capture_operation(Stream& stream, Operation operation);
  static void invalidate(Capture& capture) { capture.invalidated = true; }
  // A call that no capture in progress may meet: memory from the driver, queries, synchronisation.
  Status refuse_during_capture();
  Status refuse_during_capture(Stream& stream);
  static CaptureMode& thread_capture_mode();
  Status launch(Lock& lock, Stream& stream, const std::shared_ptr<Graph>& graph);

  // --- happens-before (checker.cc) ---
  // What the host has seen to be over.
  void host_knows(const VectorClock& clock) { host_clock_.join(clock); }
  void note_accesses(Stream& stream, const Operation& operation);
  // A block is handed out on a stream: all its last uses must happen before that stream's next
  // operation.
  bool hand_out(Stream& stream, std::uintptr_t begin, std::size_t size, std::string_view what);
  // Addresses go back to the driver, whoever else has their memory: what used them must be over for
  // the host. Whether they are known to be.
  bool give_back(std::uintptr_t begin, std::size_t size, std::string_view what, bool check);
  std::vector<std::string> violations;

  // --- memory (machine.cc) ---
  DeviceState& device(int number) { return *devices[static_cast<std::size_t>(number)]; }
  // Makes the context of a device where it is missing.
  void use(int number);
  // New memory of a device at a new address; kMemoryAllocation where it has not that much left.
  Status allocate(int number, std::size_t size, Allocation::Kind kind, Allocation& made);
  // Memory that host and devices share, in a file of its own. What fits counts as the device's.
  Status allocate_managed(int number, std::size_t size, Allocation& made);
  // Moves managed memory to a device, as far as it fits, or to the host: -1.
  void migrate(Allocation& managed, int number);
  // Memory that libraries were told to know, by what stands for it; it must not go before.
  struct Registration {
    std::uintptr_t begin = 0;
    std::size_t size = 0;
    Opaque owner = nullptr;
  };
  std::map<Opaque, Registration> registrations;
  // These addresses lose their memory: a violation where some of it is registered.
  void check_registrations(std::uintptr_t begin, std::size_t size);
  // Drops an allocation that nothing uses any more.
  void release(Allocation allocation);

  [[nodiscard]] bool valid_device(int device) const {
    return device >= 0 && device < static_cast<int>(devices.size());
  }
  static int& current_device();
  // Whether the calling thread has a context: since it first used a device by the runtime.
  static bool& has_context();

  // Graphs, executables, pools by handle.
  std::unordered_map<Opaque, std::shared_ptr<Graph>> graphs;
  std::unordered_map<Opaque, std::shared_ptr<GraphExecutable>> executables;
  std::unordered_map<Opaque, std::shared_ptr<Pool>> pools;

  void set_pace(Pace pace) { pace_ = pace; }
  void seed(std::uint64_t seed) { random_.seed(seed); }

 private:
  Machine();

  void follow_values(const Operation& operation);
  // Whether the stream's next operation may run. Starts the clock of one that takes time.
  bool ready(Stream& stream);
  std::shared_ptr<Stream> pick();
  void execute(Lock& lock, const std::shared_ptr<Stream>& stream);
  // A destroyed stream has nothing left.
  void drop(const std::shared_ptr<Stream>& stream);
  // By addresses, the earlier access at whichever address of the bytes.
  [[nodiscard]] std::optional<Accesses::Conflict> find_conflict(std::uintptr_t begin,
                                                                std::size_t size,
                                                                Accesses::Kind kind,
                                                                const VectorClock& clock) const;
  // Kernels on memory that their device has no access to.
  void check_reach(const Stream& stream, const Operation& operation);
  void report(std::string text);
  void describe_history(const Stream& stream, std::string& text) const;
  [[nodiscard]] std::string describe(const Accesses::Access& access) const;

  std::unique_ptr<DeviceMemory> managed_;
  Pace pace_;
  std::mt19937_64 random_;
  std::uint64_t clock_us_ = 0;
  std::uint64_t next_stream_ = 1;
  std::uint64_t next_capture_ = 1;
  std::vector<std::shared_ptr<Stream>> streams_;  // not destroyed, or with work left
  std::unordered_map<StreamHandle, std::shared_ptr<Stream>> stream_handles_;
  std::map<std::pair<std::thread::id, int>, std::shared_ptr<Stream>> thread_streams_;
  std::unordered_map<EventHandle, std::shared_ptr<Event>> events_;
  std::vector<std::shared_ptr<Capture>> captures_;  // open ones
  std::vector<std::weak_ptr<Stream>> components_;   // by number, for messages
  std::vector<std::string> component_labels_;
  VectorClock host_clock_;
  std::size_t meetings_ = 0;  // queued
  bool attended_ = false;
  std::condition_variable progress_;  // others ran something
};

// To options.report (run_report.cc).
void write_run_report(const Machine& machine) noexcept;

}  // namespace berth::standin
