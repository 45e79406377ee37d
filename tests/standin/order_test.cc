#include "tests/catch.h"
#include "tests/standin/fixture.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

using namespace berth::standin;

namespace {

// Notes in which order host functions run.
struct Log {
  std::vector<int> entries;

  void note(StreamHandle stream, int number) {
    auto* line = new std::pair<Log*, int>(this, number);
    cudaLaunchHostFunc(
        stream,
        [](void* data) {
          auto* entry = static_cast<std::pair<Log*, int>*>(data);
          entry->first->entries.push_back(entry->second);
          delete entry;
        },
        line);
  }

  [[nodiscard]] std::size_t place(int number) const {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i] == number) return i;
    }
    return SIZE_MAX;
  }
};

}  // namespace

TEST_CASE("Work of one stream runs in order", "[order]") {
  const Fixture fixture(kRandomPace);
  const StreamHandle stream = make_stream();
  Log log;
  for (int i = 0; i < 50; ++i) log.note(stream, i);
  REQUIRE(cudaStreamSynchronize(stream) == kSuccess);
  REQUIRE(log.entries.size() == 50);
  REQUIRE(std::is_sorted(log.entries.begin(), log.entries.end()));
  cudaStreamDestroy(stream);
}

TEST_CASE("Streams without an event between them run in an order that the seed decides",
          "[order]") {
  const auto order = [](std::uint64_t seed) {
    const Fixture fixture;
    berth_standin_seed(seed);
    const StreamHandle streams[] = {make_stream(), make_stream(), make_stream()};
    Log log;
    for (int i = 0; i < 30; ++i) log.note(streams[i % 3], i);
    cudaDeviceSynchronize();
    for (const StreamHandle stream : streams) cudaStreamDestroy(stream);
    return log.entries;
  };
  REQUIRE(order(7) == order(7));
  REQUIRE(order(7) != order(8));
}

TEST_CASE("An event is not ready until the scheduler ran the work before it", "[order][event]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  const EventHandle event = make_event();
  REQUIRE(cudaEventQuery(event) == kSuccess);  // never recorded
  writes(stream, "", 0);
  REQUIRE(cudaEventRecord(event, stream) == kSuccess);
  REQUIRE(cudaEventQuery(event) == kNotReady);
  REQUIRE(cudaGetLastError() == kNotReady);
  REQUIRE(berth_standin_run(1) == 1);
  REQUIRE(cudaEventQuery(event) == kNotReady);
  REQUIRE(berth_standin_run(1) == 1);
  REQUIRE(cudaEventQuery(event) == kSuccess);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

TEST_CASE("A stream that waits for an event runs after the work recorded before it",
          "[order][event]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fixture fixture;
    berth_standin_seed(seed);
    const StreamHandle first = make_stream(), second = make_stream();
    const EventHandle event = make_event();
    Log log;
    log.note(first, 1);
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event, 0);
    log.note(second, 2);
    cudaDeviceSynchronize();
    REQUIRE(log.entries == std::vector<int>{1, 2});
    cudaEventDestroy(event);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
  }
}

TEST_CASE("A wait is for the recording that was the last one when the wait was queued",
          "[order][event]") {
  bool waited_for_the_first_only = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fixture fixture;
    berth_standin_seed(seed);
    const StreamHandle first = make_stream(), second = make_stream();
    const EventHandle event = make_event();
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event, 0);
    for (int i = 0; i < 10; ++i) writes(first, "", 0);
    cudaEventRecord(event, first);  // the wait before it does not mean this one
    REQUIRE(cudaStreamSynchronize(second) == kSuccess);
    if (cudaEventQuery(event) == kNotReady) waited_for_the_first_only = true;
    cudaEventDestroy(event);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
  }
  REQUIRE(waited_for_the_first_only);
}

TEST_CASE("The legacy default stream waits for blocking streams and they for it",
          "[order][legacy]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Fixture fixture;
    berth_standin_seed(seed);
    const StreamHandle blocking = make_stream(0), other = make_stream(kStreamNonBlocking);
    Log log;
    log.note(blocking, 1);
    log.note(kDefaultStream, 2);
    log.note(blocking, 3);
    log.note(other, 4);
    log.note(kLegacyStream, 5);
    cudaDeviceSynchronize();
    REQUIRE(log.place(1) < log.place(2));
    REQUIRE(log.place(2) < log.place(3));
    REQUIRE(log.place(3) < log.place(5));
    REQUIRE(log.place(4) < 5);
    cudaStreamDestroy(blocking);
    cudaStreamDestroy(other);
  }
}

TEST_CASE("A non-blocking stream does not wait for the legacy default stream", "[order][legacy]") {
  const Fixture fixture;
  const StreamHandle other = make_stream(kStreamNonBlocking);
  Log log;
  log.note(kDefaultStream, 1);
  log.note(other, 2);
  REQUIRE(cudaStreamSynchronize(other) == kSuccess);
  REQUIRE(log.place(2) == log.entries.size() - 1);
  cudaDeviceSynchronize();
  REQUIRE(log.entries.size() == 2);
  cudaStreamDestroy(other);
}

TEST_CASE("Each thread has a default stream of its own", "[order]") {
  const Fixture fixture;
  unsigned long long mine = 0, others = 0;
  REQUIRE(cudaStreamGetId(kPerThreadStream, &mine) == kSuccess);
  std::thread([&] { cudaStreamGetId(kPerThreadStream, &others); }).join();
  REQUIRE(mine != others);
  unsigned long long again = 0;
  cudaStreamGetId(kPerThreadStream, &again);
  REQUIRE(mine == again);
}

TEST_CASE("A destroyed stream still does its work and its handle is refused", "[order][misuse]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  Log log;
  log.note(stream, 1);
  REQUIRE(cudaStreamDestroy(stream) == kSuccess);
  REQUIRE(cudaStreamQuery(stream) == kInvalidResourceHandle);
  cudaDeviceSynchronize();
  REQUIRE(log.entries == std::vector<int>{1});
}

TEST_CASE("Ids of streams are never used twice", "[order]") {
  const Fixture fixture;
  unsigned long long last = 0;
  for (int i = 0; i < 10; ++i) {
    const StreamHandle stream = make_stream();
    unsigned long long id = 0;
    cudaStreamGetId(stream, &id);
    REQUIRE(id > last);
    last = id;
    cudaStreamDestroy(stream);
  }
}

TEST_CASE("A host function may call the runtime", "[order]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  int device = -1;
  cudaLaunchHostFunc(
      stream, [](void* data) { cudaGetDevice(static_cast<int*>(data)); }, &device);
  REQUIRE(cudaStreamSynchronize(stream) == kSuccess);
  REQUIRE(device == 0);
  cudaStreamDestroy(stream);
}

TEST_CASE("Elapsed time counts the work in between", "[event]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  const EventHandle start = make_event(0), end = make_event(0), untimed = make_event();
  cudaEventRecord(start, stream);
  for (int i = 0; i < 9; ++i) writes(stream, "", 0);
  cudaEventRecord(end, stream);
  float ms = 0;
  REQUIRE(cudaEventElapsedTime(&ms, start, end) == kNotReady);
  cudaEventSynchronize(end);
  REQUIRE(cudaEventElapsedTime(&ms, start, end) == kSuccess);
  REQUIRE(ms == Approx(0.010F));
  cudaEventRecord(untimed, stream);
  REQUIRE(cudaEventElapsedTime(&ms, start, untimed) == kInvalidResourceHandle);
  for (const EventHandle event : {start, end, untimed}) cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

TEST_CASE("Events of two devices have no time between them", "[event]") {
  const Fixture fixture(kEagerPace);
  const EventHandle here = make_event(0);
  REQUIRE(cudaEventRecord(here, nullptr) == kSuccess);
  REQUIRE(cudaSetDevice(1) == kSuccess);
  const EventHandle there = make_event(0);
  REQUIRE(cudaEventRecord(there, nullptr) == kSuccess);
  float ms = 0;
  REQUIRE(cudaEventElapsedTime(&ms, here, there) == kInvalidResourceHandle);
  for (const EventHandle event : {here, there}) cudaEventDestroy(event);
}

TEST_CASE("A kernel that passes time keeps its stream busy for that long, and no other stream",
          "[order]") {
  static const char function = 0;
  __cudaRegisterFunction(nullptr, &function, nullptr, "_ZN2at4cuda11spin_kernelEl", -1, nullptr,
                         nullptr, nullptr, nullptr, nullptr);
  const Fixture fixture(kEagerPace);
  const StreamHandle busy = make_stream();
  const StreamHandle idle = make_stream();
  const EventHandle start = make_event(0);
  const EventHandle end = make_event(0);
  std::int64_t cycles = 50'000'000;
  void* arguments[] = {&cycles};
  REQUIRE(cudaEventRecord(start, busy) == kSuccess);
  const auto before = std::chrono::steady_clock::now();
  REQUIRE(cudaLaunchKernel(&function, {1, 1, 1}, {1, 1, 1}, arguments, 0, busy) == kSuccess);
  REQUIRE(cudaEventRecord(end, busy) == kSuccess);
  REQUIRE(cudaEventQuery(end) == kNotReady);
  REQUIRE(cudaStreamQuery(idle) == kSuccess);
  REQUIRE(cudaEventSynchronize(end) == kSuccess);
  REQUIRE(std::chrono::steady_clock::now() - before >= std::chrono::milliseconds(50));
  REQUIRE(cudaStreamQuery(busy) == kSuccess);
  float ms = 0;
  REQUIRE(cudaEventElapsedTime(&ms, start, end) == kSuccess);
  REQUIRE(ms >= 50);
  REQUIRE(ms < 51);
  for (const EventHandle event : {start, end}) cudaEventDestroy(event);
  for (const StreamHandle stream : {busy, idle}) cudaStreamDestroy(stream);
}
