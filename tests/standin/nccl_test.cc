#include "csrc/standin/nccl/reduction.h"
#include "tests/catch.h"
#include "tests/standin/fixture.h"

#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <thread>

extern char** environ;

namespace berth::standin {
namespace {

constexpr int kInt64 = 4, kHalf = 6, kFloat = 7;
constexpr int kSum = 0, kAverage = 4;
constexpr int kInvalidUsage = 5, kRemoteError = 6;

// Two ranks in this process, each on a device and a stream of its own.
struct TwoRanks {
  TwoRanks() {
    REQUIRE(ncclCommInitAll(communicators, 2, nullptr) == 0);
    for (const int rank : {0, 1}) {
      cudaSetDevice(rank);
      streams[rank] = make_stream();
    }
    cudaSetDevice(0);
  }
  ~TwoRanks() {
    for (const int rank : {0, 1}) {
      ncclCommAbort(communicators[rank]);
      cudaStreamDestroy(streams[rank]);
    }
  }
  void wait() const {
    for (const int rank : {0, 1}) CHECK(cudaStreamSynchronize(streams[rank]) == kSuccess);
  }

  CommunicatorHandle communicators[2] = {};
  StreamHandle streams[2] = {};
};

template <class T>
T* values(int device, std::vector<T> wanted) {
  cudaSetDevice(device);
  T* memory = device_memory<T>(wanted.size() * sizeof(T));
  cudaMemcpy(memory, wanted.data(), wanted.size() * sizeof(T), kHostToDevice);
  cudaSetDevice(0);
  return memory;
}

template <class T>
std::vector<T> read(const T* memory, std::size_t count) {
  std::vector<T> found(count);
  cudaMemcpy(found.data(), memory, count * sizeof(T), kDeviceToHost);
  return found;
}

}  // namespace

TEST_CASE("The devices of one process add up what they hold", "[standin][nccl]") {
  const Fixture fixture(GENERATE(kRandomPace, kLazyPace, kEagerPace));
  const TwoRanks ranks;
  std::int64_t* data[2] = {values<std::int64_t>(0, {1, 2, 3}),
                           values<std::int64_t>(1, {10, 20, 30})};
  REQUIRE(ncclGroupStart() == 0);
  for (const int rank : {0, 1}) {
    REQUIRE(ncclAllReduce(data[rank], data[rank], 3, kInt64, kSum, ranks.communicators[rank],
                          ranks.streams[rank]) == 0);
  }
  REQUIRE(ncclGroupEnd() == 0);
  ranks.wait();
  for (const int rank : {0, 1}) CHECK(read(data[rank], 3) == std::vector<std::int64_t>{11, 22, 33});
  CHECK(berth_standin_violations() == 0);
}

TEST_CASE("Each thread may be a rank", "[standin][nccl]") {
  const Fixture fixture(kLazyPace);
  UniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == 0);
  std::vector<float> gathered[2];
  const auto run = [&](int rank) {
    cudaSetDevice(rank);
    CommunicatorHandle communicator = nullptr;
    if (ncclCommInitRank(&communicator, 2, id, rank) != 0) return;
    const auto number = static_cast<float>(rank);
    auto* from = device_memory<float>(2 * sizeof(float));
    auto* to = device_memory<float>(4 * sizeof(float));
    const float own[] = {number, 10 + number};
    cudaMemcpy(from, own, sizeof own, kHostToDevice);
    for (int step = 0; step < 100; ++step)  // far more than a rank may run ahead
      ncclAllGather(from, to, 2, kFloat, communicator, nullptr);
    gathered[rank] = read(to, 4);
    ncclCommDestroy(communicator);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  cudaSetDevice(0);
  for (const auto& values : gathered) CHECK(values == std::vector<float>{0, 10, 1, 11});
}

TEST_CASE("Messages of a group cross, however many", "[standin][nccl]") {
  const Fixture fixture(kRandomPace);
  const TwoRanks ranks;
  constexpr int kMessages = 100;
  std::vector<float*> from[2], to[2];
  ncclGroupStart();
  for (int i = 0; i < kMessages; ++i) {
    for (const int rank : {0, 1}) {
      from[rank].push_back(values<float>(rank, {static_cast<float>(1000 * rank + i)}));
      to[rank].push_back(values<float>(rank, {-1}));
      CHECK(ncclSend(from[rank][static_cast<std::size_t>(i)], 1, kFloat, 1 - rank,
                     ranks.communicators[rank], ranks.streams[rank]) == 0);
    }
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    for (const int rank : {0, 1}) {
      CHECK(ncclRecv(to[rank][i], 1, kFloat, 1 - rank, ranks.communicators[rank],
                     ranks.streams[rank]) == 0);
    }
  }
  REQUIRE(ncclGroupEnd() == 0);
  ranks.wait();
  for (std::size_t i = 0; i < kMessages; ++i) {
    CHECK(read(to[0][i], 1).front() == static_cast<float>(1000 + i));
    CHECK(read(to[1][i], 1).front() == static_cast<float>(i));
  }
}

TEST_CASE("A buffer that NCCL registers is one allocation, and stays", "[standin][nccl]") {
  const Fixture fixture;
  const int devices[] = {0};
  CommunicatorHandle communicator = nullptr;
  REQUIRE(ncclCommInitAll(&communicator, 1, devices) == 0);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4 << 20) == kSuccess);
  void* registered = nullptr;
  CHECK(ncclCommRegister(communicator, memory, 5 << 20, &registered) == 5);
  REQUIRE(ncclCommRegister(communicator, memory, 4 << 20, &registered) == 0);
  REQUIRE(ncclCommDeregister(communicator, registered) == 0);
  CHECK(ncclCommDeregister(communicator, registered) == 4);
  REQUIRE(ncclCommRegister(communicator, memory, 4 << 20, &registered) == 0);
  cudaFree(memory);
  CHECK(berth_standin_violations() == 1);
  berth_standin_forget_violations();
  REQUIRE(ncclCommDestroy(communicator) == 0);
}

TEST_CASE("A collective runs in its turn", "[standin][nccl]") {
  const Fixture fixture(kLazyPace);
  const TwoRanks ranks;
  float* data[2] = {values<float>(0, {0}), values<float>(1, {0})};
  float* fresh[2] = {values<float>(0, {3}), values<float>(1, {4})};
  for (const int rank : {0, 1}) {
    cudaSetDevice(rank);
    cudaMemcpyAsync(data[rank], fresh[rank], sizeof(float), kDeviceToDevice, ranks.streams[rank]);
    ncclAllReduce(data[rank], data[rank], 1, kFloat, kAverage, ranks.communicators[rank],
                  ranks.streams[rank]);
  }
  cudaSetDevice(0);
  ranks.wait();
  CHECK(read(data[0], 1).front() == 3.5F);
  CHECK(read(data[1], 1).front() == 3.5F);
}

TEST_CASE("A collective that another stream's work meets unordered is a race", "[standin][nccl]") {
  const Fixture fixture(kLazyPace);
  const TwoRanks ranks;
  const StreamHandle side = make_stream();
  float* data[2] = {values<float>(0, {0}), values<float>(1, {0})};
  const auto reduce = [&] {
    for (const int rank : {0, 1}) {
      ncclAllReduce(data[rank], data[rank], 1, kFloat, kSum, ranks.communicators[rank],
                    ranks.streams[rank]);
    }
  };
  SECTION("a write while it runs") {
    reduce();
    writes(side, data[0], sizeof(float));
    REQUIRE(berth_standin_violations() == 1);
    CHECK(violation(0).find("ncclAllReduce") != std::string::npos);
  }
  SECTION("ordered by an event") {
    const EventHandle event = make_event();
    writes(side, data[0], sizeof(float));
    cudaEventRecord(event, side);
    cudaStreamWaitEvent(ranks.streams[0], event, 0);
    reduce();
    CHECK(berth_standin_violations() == 0);
  }
  ranks.wait();
}

TEST_CASE("A graph meets the others anew at each launch", "[standin][nccl]") {
  const Fixture fixture(kRandomPace);
  const TwoRanks ranks;
  float* data[2] = {values<float>(0, {1}), values<float>(1, {1})};
  Opaque executables[2] = {};
  for (const int rank : {0, 1}) {
    Opaque graph = nullptr;
    REQUIRE(cudaStreamBeginCapture(ranks.streams[rank], kCaptureGlobal) == kSuccess);
    REQUIRE(ncclAllReduce(data[rank], data[rank], 1, kFloat, kSum, ranks.communicators[rank],
                          ranks.streams[rank]) == 0);
    REQUIRE(cudaStreamEndCapture(ranks.streams[rank], &graph) == kSuccess);
    REQUIRE(cudaGraphInstantiate(&executables[rank], graph, 0) == kSuccess);
  }
  for (int i = 0; i < 20; ++i) {
    for (const int rank : {0, 1})
      REQUIRE(cudaGraphLaunch(executables[rank], ranks.streams[rank]) == kSuccess);
  }
  ranks.wait();
  CHECK(read(data[0], 1).front() == 0x1p20F);
}

TEST_CASE("Ranks that disagree get an error that says how", "[standin][nccl]") {
  const Fixture fixture(kEagerPace);
  const TwoRanks ranks;
  float* data[2] = {values<float>(0, {1, 1}), values<float>(1, {1, 1})};
  for (const int rank : {0, 1}) {
    ncclAllReduce(data[rank], data[rank], static_cast<std::size_t>(1 + rank), kFloat, kSum,
                  ranks.communicators[rank], ranks.streams[rank]);
  }
  int status = 0;
  REQUIRE(ncclCommGetAsyncError(ranks.communicators[1], &status) == 0);
  CHECK(status == kInvalidUsage);
  const std::string text = ncclGetLastError(ranks.communicators[1]);
  CHECK(text.find("ncclAllReduce of 2 elements") != std::string::npos);
  CHECK(text.find("ncclAllReduce of 1 of") != std::string::npos);
}

TEST_CASE("Streams fail where nobody aborts for a rank that is gone", "[standin][nccl]") {
  const Fixture fixture(kLazyPace);
  TwoRanks ranks;
  float* data = values<float>(0, {1});
  REQUIRE(ncclAllReduce(data, data, 1, kFloat, kSum, ranks.communicators[0], ranks.streams[0]) ==
          0);
  REQUIRE(ncclCommDestroy(ranks.communicators[1]) == 0);
  SECTION("without an abort") {
    cudaStreamSynchronize(ranks.streams[0]);
    CHECK(cudaStreamSynchronize(ranks.streams[0]) == kLaunchFailure);
    int status = 0;
    berth_standin_clear_faults();
    REQUIRE(ncclCommGetAsyncError(ranks.communicators[0], &status) == 0);
    CHECK(status == kRemoteError);
    CHECK(ncclAllReduce(data, data, 1, kFloat, kSum, ranks.communicators[0], ranks.streams[0]) ==
          kRemoteError);
  }
  SECTION("with one") {
    REQUIRE(ncclCommAbort(ranks.communicators[0]) == 0);
    CHECK(cudaStreamSynchronize(ranks.streams[0]) == kSuccess);
  }
}

TEST_CASE("Splits order their ranks by key", "[standin][nccl]") {
  const Fixture fixture;
  UniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == 0);
  int new_ranks[3] = {-1, -1, -1}, sizes[3] = {};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorHandle all = nullptr, part = nullptr;
      ncclCommInitRank(&all, 3, id, rank);
      for (int twice = 0; twice < 2; ++twice) {
        ncclCommSplit(all, rank == 1 ? -1 : 7, -rank, &part, nullptr);
        if (part == nullptr) continue;
        ncclCommUserRank(part, &new_ranks[rank]);
        ncclCommCount(part, &sizes[rank]);
        ncclCommDestroy(part);
      }
      ncclCommDestroy(all);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::ranges::equal(new_ranks, std::vector{1, -1, 0}));
  CHECK(std::ranges::equal(sizes, std::vector{2, 0, 2}));
}

TEST_CASE("What makes no communicator is refused", "[standin][nccl]") {
  const Fixture fixture;
  UniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == 0);
  CommunicatorHandle communicator = nullptr;
  CHECK(ncclCommInitRank(&communicator, 2, id, 2) == 4);
  CHECK(ncclCommInitRank(&communicator, 65, id, 0) == kInvalidUsage);
  CHECK(std::string(ncclGetLastError(nullptr)).find("at most 64") != std::string::npos);
  CHECK(ncclCommInitRank(&communicator, 1, UniqueId{}, 0) == 4);
  REQUIRE(ncclCommInitRank(&communicator, 1, id, 0) == 0);
  CommunicatorHandle second = nullptr;
  CHECK(ncclCommInitRank(&second, 1, id, 0) != 0);
  float host = 0;
  CHECK(ncclAllReduce(&host, &host, 1, kFloat, kSum, communicator, nullptr) == 4);
  CHECK(ncclCommDestroy(communicator) == 0);
  CHECK(ncclCommDestroy(communicator) == 4);
}

// Rank 1 of the test below; BERTH_TEST_RANK holds the id, BERTH_TEST_DIES when it ends early.
TEST_CASE("Rank of another process", "[.rank]") {
  const char* text = std::getenv("BERTH_TEST_RANK");
  REQUIRE(text != nullptr);
  UniqueId id;
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    const char digits[] = {text[2 * i], text[2 * i + 1], '\0'};
    id.bytes[i] = static_cast<char>(std::strtol(digits, nullptr, 16));
  }
  CommunicatorHandle communicator = nullptr;
  REQUIRE(ncclCommInitRank(&communicator, 2, id, 1) == 0);
  float* data = values<float>(0, {5, 6});
  REQUIRE(ncclAllReduce(data, data, 2, kFloat, kSum, communicator, nullptr) == 0);
  CHECK(read(data, 2) == std::vector<float>{6, 8});
  if (std::getenv("BERTH_TEST_DIES") != nullptr) std::_Exit(3);
  ncclCommDestroy(communicator);
}

TEST_CASE("A process may be a rank, and one that dies is an error of the others",
          "[standin][nccl]") {
  const Fixture fixture(kRandomPace);
  const bool dies = GENERATE(false, true);
  UniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == 0);
  std::string text = "BERTH_TEST_RANK=";
  for (const char byte : id.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  std::string program = "/proc/self/exe", which = "[.rank]", death = "BERTH_TEST_DIES=1";
  char* arguments[] = {program.data(), which.data(), nullptr};
  std::vector<char*> variables{text.data()};
  if (dies) variables.push_back(death.data());
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  pid_t process = 0;
  REQUIRE(posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments, variables.data()) ==
          0);
  CommunicatorHandle communicator = nullptr;
  REQUIRE(ncclCommInitRank(&communicator, 2, id, 0) == 0);
  float* data = values<float>(0, {1, 2});
  REQUIRE(ncclAllReduce(data, data, 2, kFloat, kSum, communicator, nullptr) == 0);
  CHECK(read(data, 2) == std::vector<float>{6, 8});
  if (dies) {
    REQUIRE(ncclAllReduce(data, data, 2, kFloat, kSum, communicator, nullptr) == 0);
    int status = 0;
    for (int tries = 0; tries < 2000 && status == 0; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ncclCommGetAsyncError(communicator, &status);
    }
    CHECK(status == kRemoteError);
    CHECK(ncclCommAbort(communicator) == 0);
  } else {
    CHECK(ncclCommDestroy(communicator) == 0);
  }
  int answer = -1;
  REQUIRE(waitpid(process, &answer, 0) == process);
  CHECK(answer == (dies ? 3 << 8 : 0));
}

TEST_CASE("Halves are added and rounded to the nearest, ties to even", "[standin][nccl]") {
  Reducer reducer(kHalf, Reduction::kSum);
  const auto sum = [&](std::uint16_t a, std::uint16_t b) {
    reducer.add(reinterpret_cast<const std::byte*>(&a), 1);
    reducer.add(reinterpret_cast<const std::byte*>(&b), 1);
    std::uint16_t result = 0;
    reducer.finish(reinterpret_cast<std::byte*>(&result));
    return result;
  };
  CHECK(sum(0x3c00, 0x3c00) == 0x4000);  // 1 + 1 = 2
  CHECK(sum(0x3c00, 0xbc00) == 0x0000);
  CHECK(sum(0x0001, 0x0001) == 0x0002);  // the smallest
  CHECK(sum(0x03ff, 0x0001) == 0x0400);  // up to the smallest that is normal
  CHECK(sum(0x6800, 0x3c00) == 0x6800);  // 2048 + 1: a tie
  CHECK(sum(0x6801, 0x3c00) == 0x6802);  // 2050 + 1: a tie, to even
  CHECK(sum(0x7bff, 0x7bff) == 0x7c00);  // out of range
}

TEST_CASE("Each rank's elements are multiplied before they are added", "[standin][nccl]") {
  const Fixture fixture(kEagerPace);
  const TwoRanks ranks;
  float* data[2] = {values<float>(0, {2}), values<float>(1, {8})};
  for (const int rank : {0, 1}) {
    const float factor = rank == 0 ? 0.5F : 0.25F;
    int operation = 0;
    REQUIRE(ncclRedOpCreatePreMulSum(&operation, &factor, kFloat, 1, ranks.communicators[rank]) ==
            0);
    REQUIRE(ncclAllReduce(data[rank], data[rank], 1, kFloat, operation, ranks.communicators[rank],
                          ranks.streams[rank]) == 0);
    REQUIRE(ncclRedOpDestroy(operation, ranks.communicators[rank]) == 0);
  }
  ranks.wait();
  CHECK(read(data[0], 1).front() == 3);
}

}  // namespace berth::standin
