// NCCL. Its ranks are threads or processes of one machine, and its collectives move real bytes.

#include "csrc/standin/entry.h"
#include "csrc/standin/nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

namespace berth::standin {
namespace {

using Handle = CommunicatorHandle;
using CommunicatorPointer = std::shared_ptr<Communicator>;

constexpr int kFirstFactor = 5;  // ncclNumOps: after the reductions that have a name

// Those the program has, and those it has given up that others still read from. Under the machine's
// lock.
struct Communicators {
  std::unordered_map<Handle, CommunicatorPointer> open;
  std::vector<CommunicatorPointer> leaving;
  std::string problem;

  static Communicators& all() {
    static auto* communicators = new Communicators;
    return *communicators;
  }

  CommunicatorPointer find(Handle handle) {
    const auto found = open.find(handle);
    return found == open.end() ? nullptr : found->second;
  }
  void tidy() {
    for (const auto& [handle, communicator] : open) communicator->tidy();
    std::erase_if(leaving, [](const auto& communicator) {
      return communicator->tidy() && communicator->pending() == 0;
    });
  }
};

int answered(const NcclAnswer& answer) {
  if (answer.status != kNcclSuccess) {
    const Entry entry;
    Communicators::all().problem = answer.text;
  }
  return answer.status;
}

// Collectives of one communicator that go to a stream together: none waits for another one.
class Transfer : public Meeting {
 public:
  Transfer(CommunicatorPointer communicator, const std::vector<CollectiveCall>& calls,
           std::size_t copy_limit)
      : communicator_(std::move(communicator)), copy_limit_(copy_limit) {
    for (const CollectiveCall& call : calls) parts_.push_back(communicator_->begin(call));
  }

  bool proceed() override {
    bool over = true;
    for (Communicator::Part& part : parts_)
      over = communicator_->proceed(part, copy_limit_) && over;
    return over;
  }

 private:
  CommunicatorPointer communicator_;
  std::size_t copy_limit_;
  std::vector<Communicator::Part> parts_;
};

// What is put aside between ncclGroupStart and ncclGroupEnd.
struct Work {
  CommunicatorPointer communicator;
  StreamHandle stream = nullptr;
  std::vector<CollectiveCall> calls;
};

struct Group {
  int depth = 0;
  std::vector<Work> work;
  std::vector<CommunicatorPointer> meetings;  // communicators whose ranks have to meet
  NcclStatus status = kNcclSuccess;
};

Group& group() {
  thread_local Group the_group;
  return the_group;
}

std::chrono::seconds patience() {
  return std::chrono::seconds(Machine::get().options.patience_seconds);
}

// Queues work in its stream, of the communicator's device.
NcclAnswer queue(const Work& work) {
  Entry entry;
  Machine& machine = entry.machine;
  const CommunicatorPointer& communicator = work.communicator;
  const int current = std::exchange(Machine::current_device(), communicator->device());
  const StreamPointer stream = machine.stream_of(work.stream);
  Machine::current_device() = current;
  if (!stream || stream->device != communicator->device())
    return {kNcclInvalidArgument, "the stream is not one of the communicator's device"};
  Operation operation{.kind = Operation::Kind::kKernel,
                      .name = collective_name(work.calls.front().collective)};
  const int rank = communicator->rank(), ranks = communicator->ranks();
  bool alone = ranks == 1;
  for (const CollectiveCall& call : work.calls) {
    const auto uses = [&](const void* pointer, std::size_t size, Accesses::Kind kind) {
      if (size == 0) return true;
      const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
      operation.accesses.push_back({begin, size, kind});
      return machine.space.holding(begin) != nullptr;
    };
    if (!uses(call.from, call.bytes_in(rank, ranks), Accesses::Kind::kRead) ||
        !uses(call.to, call.bytes_out(rank, ranks), Accesses::Kind::kWrite)) {
      return {kNcclInvalidArgument,
              std::string(collective_name(call.collective)) + " of memory that CUDA does not know"};
    }
    alone = alone && call.collective < Collective::kSend;
  }
  const std::size_t limit = machine.options.copy_limit;
  if (alone) {
    operation.work = [calls = work.calls, limit] {
      for (const CollectiveCall& call : calls) {
        if (call.bytes_in(0, 1) <= limit) Communicator::move_alone(call);
      }
    };
  } else {
    operation.meet = [communicator, calls = work.calls, limit] {
      return std::make_shared<Transfer>(communicator, calls, limit);
    };
  }
  const Status status = machine.enqueue(entry.lock, *stream, std::move(operation));
  if (status == kSuccess) return {};
  return {kNcclCudaError, status_text(status)};
}

int submit(Handle handle, CollectiveCall call, int operation, StreamHandle stream) {
  CommunicatorPointer communicator;
  {
    const Entry entry;
    communicator = Communicators::all().find(handle);
    if (communicator != nullptr && call.reduces() && operation >= kFirstFactor) {
      const auto factor = communicator->factors.find(operation);
      if (factor == communicator->factors.end() || factor->second.type != call.type)
        return kNcclInvalidArgument;
      call.multiplied = true;
      call.factor = factor->second.value;
      call.factor_on_device = factor->second.on_device;
    } else {
      call.reduction = static_cast<Reduction>(operation);
    }
  }
  if (communicator == nullptr) return kNcclInvalidArgument;
  if (element_bytes(call.type) == 0 || call.root < 0 || call.root >= communicator->ranks() ||
      operation < 0) {
    return answered(
        {kNcclInvalidArgument, std::string(collective_name(call.collective)) +
                                   " with a type, a rank or an operation that is none"});
  }
  if (communicator->failure().status != kNcclSuccess) return answered(communicator->failure());
  // Nothing to do, and no rank waits; messages of no bytes count.
  if (call.count == 0 && call.collective < Collective::kSend) return kNcclSuccess;
  Group& open = group();
  if (open.depth == 0) return answered(queue({communicator, stream, {call}}));
  const auto same = std::ranges::find_if(open.work, [&](const Work& work) {
    return work.communicator == communicator && work.stream == stream;
  });
  if (same != open.work.end()) {
    same->calls.push_back(call);
  } else {
    open.work.push_back({communicator, stream, {call}});
  }
  return kNcclSuccess;
}

// Makes the program's handle of a communicator.
Handle add(const CommunicatorPointer& made) {
  const auto handle = reinterpret_cast<Handle>(made.get());
  Entry entry;
  Communicators::all().open.emplace(handle, made);
  if (made->ranks() > 1) {
    entry.machine.attend([] { Communicators::all().tidy(); });
    entry.machine.device(made->device()).communicators.push_back(made->ranks());
  }
  return handle;
}

int join(Handle* made, int ranks, const UniqueId& id, int rank) {
  if (made == nullptr) return kNcclInvalidArgument;
  *made = nullptr;
  NcclAnswer answer;
  CommunicatorPointer communicator;
  {
    const Entry entry;
    if (entry.machine.devices.empty()) return kNcclCudaError;
    entry.machine.use(Machine::current_device());
    communicator = Communicator::join(id, ranks, rank, Machine::current_device(), answer);
  }
  if (communicator == nullptr) return answered(answer);
  if (group().depth != 0) {
    group().meetings.push_back(communicator);
  } else if (answer = communicator->meet(patience()); answer.status != kNcclSuccess) {
    return answered(answer);
  }
  *made = add(communicator);
  return kNcclSuccess;
}

int split(Handle handle, int color, int key, const std::vector<int>& excluded, Handle* made) {
  if (made == nullptr) return kNcclInvalidArgument;
  *made = nullptr;
  CommunicatorPointer parent;
  {
    const Entry entry;
    parent = Communicators::all().find(handle);
  }
  if (parent == nullptr) return kNcclInvalidArgument;
  std::vector<bool> takes_part(static_cast<std::size_t>(parent->ranks()), true);
  for (const int rank : excluded) {
    if (rank < 0 || rank >= parent->ranks() || rank == parent->rank()) return kNcclInvalidArgument;
    takes_part[static_cast<std::size_t>(rank)] = false;
  }
  NcclAnswer answer;
  const CommunicatorPointer communicator =
      parent->split(color, key, takes_part, patience(), answer);
  if (communicator != nullptr) *made = add(communicator);
  return answered(answer);
}

// Gives a communicator up; what others have not read yet stays.
int close_communicator(Handle handle, bool abort) {
  Entry entry;
  Communicators& all = Communicators::all();
  const CommunicatorPointer communicator = all.find(handle);
  if (communicator == nullptr) return kNcclInvalidArgument;
  if (!abort) {
    entry.machine.drain_until(entry.lock, [&] { return communicator->pending() == 0; });
    communicator->leave();
  } else {
    communicator->abort();
  }
  std::erase_if(entry.machine.registrations,
                [&](const auto& one) { return one.second.owner == handle; });
  all.open.erase(handle);
  all.leaving.push_back(communicator);
  all.tidy();
  return kNcclSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  BERTH_STANDIN_ENTER_DRIVER();
  *version = BERTH_STANDIN_NCCL_VERSION;
  return kNcclSuccess;
}

const char* ncclGetErrorString(int status) {
  switch (status) {
    case kNcclSuccess:
      return "no error";
    case kNcclCudaError:
      return "unhandled cuda error";
    case kNcclSystemError:
      return "unhandled system error";
    case kNcclInvalidArgument:
      return "invalid argument";
    case kNcclInvalidUsage:
      return "invalid usage";
    case kNcclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(Handle handle) {
  thread_local std::string text;
  const Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  text = communicator != nullptr && communicator->failure().status != kNcclSuccess
             ? communicator->failure().text
             : Communicators::all().problem;
  return text.c_str();
}

int ncclGetUniqueId(UniqueId* id) {
  BERTH_STANDIN_ENTER_DRIVER();
  *id = Communicator::make_id();
  return id->bytes[0] != '\0' ? kNcclSuccess : kNcclSystemError;
}

int ncclCommInitRank(Handle* made, int ranks, UniqueId id, int rank) {
  BERTH_STANDIN_ENTER_DRIVER();
  return join(made, ranks, id, rank);
}

int ncclCommInitRankConfig(Handle* made, int ranks, UniqueId id, int rank, void* /*config*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return join(made, ranks, id, rank);
}

// Several ids spare the real one time; all ranks meet at the first.
int ncclCommInitRankScalable(Handle* made, int ranks, int rank, int count, UniqueId* ids,
                             void* /*config*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (count < 1 || ids == nullptr) return kNcclInvalidArgument;
  return join(made, ranks, ids[0], rank);
}

int ncclCommInitAll(Handle* made, int count, const int* devices) {
  BERTH_STANDIN_ENTER_DRIVER();
  if (made == nullptr || count < 1) return kNcclInvalidArgument;
  const UniqueId id = Communicator::make_id();
  const int current = Machine::current_device();
  std::vector<CommunicatorPointer> members;
  NcclAnswer answer;
  for (int rank = 0; rank < count && answer.status == kNcclSuccess; ++rank) {
    const Entry entry;
    const int device = devices != nullptr ? devices[rank] : rank;
    if (!entry.machine.valid_device(device)) {
      answer.status = kNcclInvalidArgument;
      break;
    }
    entry.machine.use(device);
    if (auto member = Communicator::join(id, count, rank, device, answer))
      members.push_back(std::move(member));
  }
  Machine::current_device() = current;
  for (const CommunicatorPointer& member : members) {
    if (answer.status == kNcclSuccess) answer = member->meet(patience());
  }
  if (answer.status != kNcclSuccess) return answered(answer);
  std::ranges::transform(members, made, add);
  return kNcclSuccess;
}

int ncclCommSplit(Handle from, int color, int key, Handle* made, void* /*config*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return split(from, color, key, {}, made);
}

int ncclCommShrink(Handle from, int* excluded, int count, Handle* made, void* /*config*/,
                   int /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return split(from, 0, 0, std::vector<int>(excluded, excluded + count), made);
}

int ncclCommFinalize(Handle handle) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  if (communicator == nullptr) return kNcclInvalidArgument;
  entry.machine.drain_until(entry.lock, [&] { return communicator->pending() == 0; });
  return kNcclSuccess;
}

int ncclCommDestroy(Handle handle) {
  BERTH_STANDIN_ENTER_DRIVER();
  return close_communicator(handle, false);
}

int ncclCommAbort(Handle handle) {
  BERTH_STANDIN_ENTER_DRIVER();
  return close_communicator(handle, true);
}

int ncclCommGetAsyncError(Handle handle, int* status) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  if (communicator == nullptr || status == nullptr) return kNcclInvalidArgument;
  *status = communicator->failure().status;
  // Which is what is asked for next, without a communicator.
  if (*status != kNcclSuccess) Communicators::all().problem = communicator->failure().text;
  return kNcclSuccess;
}

int ncclCommCount(Handle handle, int* count) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  if (communicator == nullptr) return kNcclInvalidArgument;
  *count = communicator->ranks();
  return kNcclSuccess;
}

int ncclCommUserRank(Handle handle, int* rank) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  if (communicator == nullptr) return kNcclInvalidArgument;
  *rank = communicator->rank();
  return kNcclSuccess;
}

int ncclCommCuDevice(Handle handle, int* device) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  if (communicator == nullptr) return kNcclInvalidArgument;
  *device = communicator->device();
  return kNcclSuccess;
}

int ncclMemAlloc(void** pointer, std::size_t size) {
  BERTH_STANDIN_ENTER_DRIVER();
  return cudaMalloc(pointer, size) == kSuccess ? kNcclSuccess : kNcclCudaError;
}

int ncclMemFree(void* pointer) {
  BERTH_STANDIN_ENTER_DRIVER();
  return cudaFree(pointer) == kSuccess ? kNcclSuccess : kNcclCudaError;
}

// What is registered changes nothing here, but it must be one piece of memory, since NCCL
// mishandles buffers of several (NVIDIA/nccl#1820), and must stay until it is registered no more.
static int register_buffer(Handle handle, const void* buffer, std::size_t size, void** registered) {
  Entry entry;
  if (Communicators::all().find(handle) == nullptr || registered == nullptr || size == 0)
    return kNcclInvalidArgument;
  const auto begin = reinterpret_cast<std::uintptr_t>(buffer);
  const Allocation* const found = entry.machine.space.holding(begin);
  if (found == nullptr || !found->on_device() || size > found->end() - begin) {
    Communicators::all().problem =
        "a buffer is registered that is not one allocation of device memory";
    return kNcclInvalidUsage;
  }
  static std::uintptr_t next = 1;
  *registered = reinterpret_cast<void*>(next++);
  entry.machine.registrations[*registered] = {begin, size, handle};
  return kNcclSuccess;
}

static int deregister_buffer(void* registered) {
  Entry entry;
  return entry.machine.registrations.erase(registered) != 0 ? kNcclSuccess : kNcclInvalidArgument;
}

int ncclCommRegister(Handle handle, void* buffer, std::size_t size, void** registered) {
  BERTH_STANDIN_ENTER_DRIVER();
  return register_buffer(handle, buffer, size, registered);
}

int ncclCommDeregister(Handle /*handle*/, void* registered) {
  BERTH_STANDIN_ENTER_DRIVER();
  return deregister_buffer(registered);
}

int ncclCommWindowRegister(Handle handle, void* buffer, std::size_t size, void** window,
                           int /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return register_buffer(handle, buffer, size, window);
}

int ncclCommWindowDeregister(Handle /*handle*/, void* window) {
  BERTH_STANDIN_ENTER_DRIVER();
  return deregister_buffer(window);
}

// Kernels that communicate by themselves.
int ncclDevCommCreate(Handle /*handle*/, const void* /*requirements*/, void* /*made*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  return answered({kNcclInvalidUsage, "the stand-in's NCCL has no communicators of kernels"});
}

int ncclRedOpCreatePreMulSum(int* operation, const void* factor, int type, int residence,
                             Handle handle) {
  BERTH_STANDIN_ENTER_DRIVER();
  constexpr int kOnDevice = 0;  // ncclScalarDevice: read when the collective runs
  const Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  if (communicator == nullptr || element_bytes(type) == 0 || factor == nullptr)
    return kNcclInvalidArgument;
  Communicator::Factor made{.type = type};
  if (residence == kOnDevice) {
    made.on_device = factor;
  } else {
    std::memcpy(made.value.data(), factor, element_bytes(type));
  }
  const auto& factors = communicator->factors;
  *operation = factors.empty() ? kFirstFactor : factors.rbegin()->first + 1;
  communicator->factors.emplace(*operation, made);
  return kNcclSuccess;
}

int ncclRedOpDestroy(int operation, Handle handle) {
  BERTH_STANDIN_ENTER_DRIVER();
  const Entry entry;
  const CommunicatorPointer communicator = Communicators::all().find(handle);
  if (communicator == nullptr || communicator->factors.erase(operation) == 0)
    return kNcclInvalidArgument;
  return kNcclSuccess;
}

int ncclGroupStart() {
  BERTH_STANDIN_ENTER_DRIVER();
  ++group().depth;
  return kNcclSuccess;
}

int ncclGroupEnd() {
  BERTH_STANDIN_ENTER_DRIVER();
  Group& open = group();
  if (open.depth == 0) return kNcclInvalidUsage;
  if (--open.depth != 0) return kNcclSuccess;
  const std::vector<Work> all = std::exchange(open.work, {});
  NcclAnswer answer;
  for (const CommunicatorPointer& communicator : std::exchange(open.meetings, {})) {
    if (answer.status == kNcclSuccess) answer = communicator->meet(patience());
  }
  for (const Work& work : all) {
    if (answer.status == kNcclSuccess) answer = queue(work);
  }
  return answered(answer);
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation,
                  Handle handle, StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(
      handle,
      {.collective = Collective::kAllReduce, .type = type, .count = count, .from = from, .to = to},
      operation, stream);
}

int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root,
               Handle handle, StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(handle,
                {.collective = Collective::kReduce,
                 .type = type,
                 .root = root,
                 .count = count,
                 .from = from,
                 .to = to},
                operation, stream);
}

int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation,
                      Handle handle, StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(handle,
                {.collective = Collective::kReduceScatter,
                 .type = type,
                 .count = count,
                 .from = from,
                 .to = to},
                operation, stream);
}

int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Handle handle,
                  StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(handle,
                {.collective = Collective::kBroadcast,
                 .type = type,
                 .root = root,
                 .count = count,
                 .from = from,
                 .to = to},
                0, stream);
}

int ncclBcast(void* data, std::size_t count, int type, int root, Handle handle,
              StreamHandle stream) {
  return ncclBroadcast(data, data, count, type, root, handle, stream);
}

int ncclAllGather(const void* from, void* to, std::size_t count, int type, Handle handle,
                  StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(
      handle,
      {.collective = Collective::kAllGather, .type = type, .count = count, .from = from, .to = to},
      0, stream);
}

int ncclAlltoAll(const void* from, void* to, std::size_t count, int type, Handle handle,
                 StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(
      handle,
      {.collective = Collective::kAllToAll, .type = type, .count = count, .from = from, .to = to},
      0, stream);
}

int ncclGather(const void* from, void* to, std::size_t count, int type, int root, Handle handle,
               StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(handle,
                {.collective = Collective::kGather,
                 .type = type,
                 .root = root,
                 .count = count,
                 .from = from,
                 .to = to},
                0, stream);
}

int ncclScatter(const void* from, void* to, std::size_t count, int type, int root, Handle handle,
                StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(handle,
                {.collective = Collective::kScatter,
                 .type = type,
                 .root = root,
                 .count = count,
                 .from = from,
                 .to = to},
                0, stream);
}

int ncclSend(const void* from, std::size_t count, int type, int peer, Handle handle,
             StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(
      handle,
      {.collective = Collective::kSend, .type = type, .root = peer, .count = count, .from = from},
      0, stream);
}

int ncclRecv(void* to, std::size_t count, int type, int peer, Handle handle, StreamHandle stream) {
  BERTH_STANDIN_ENTER_DRIVER();
  return submit(
      handle,
      {.collective = Collective::kReceive, .type = type, .root = peer, .count = count, .to = to}, 0,
      stream);
}

}  // extern "C"
}  // namespace berth::standin
