// The C ABI on a GPU, the stand-in's: which streams are one lane, and what a block waits for.

#include "tests/cuda/fixture.h"

#include <berth/berth.h>

#include <thread>
#include <vector>

using namespace berth;
using namespace berth::test;

namespace {

constexpr Bytes kSize = 8 * kMiB;

// The devices of the process stay from one case to the next: what they hold free goes back.
struct Process {
  Process() {
    static const berth_status status = [] {
      berth_options options{};
      options.size = sizeof options;
      options.mode = "off";
      return berth_init(&options);
    }();
    REQUIRE(status == BERTH_OK);
    settle();
    berth_standin_set_pace(kLazyPace);
    berth_standin_seed(1);
    berth_standin_forget_violations();
  }
  ~Process() {
    settle();
    CHECK(first_violation() == "");
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  static void settle() {
    Standin::settle();
    berth_trim_all();
  }
};

void* request(cudaStream_t stream, Bytes size = kSize) {
  void* const block = berth_malloc(size, 0, stream);
  REQUIRE(block != nullptr);
  return block;
}

void release(void* block, cudaStream_t stream) {
  REQUIRE(berth_release(block, 0, 0, stream) == BERTH_OK);
}

// Work of `later` comes after what `earlier` has queued.
void order(cudaStream_t earlier, cudaStream_t later) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, earlier);
  cudaStreamWaitEvent(later, event, 0);
  cudaEventDestroy(event);
}

}  // namespace

TEST_CASE("A block that was freed on another stream waits for what is queued there",
          "[capi][cuda]") {
  const Process process;
  const Stream own, other;
  void* const block = request(own);
  use(own, block, kSize);
  order(own, other);
  use(other, block, kSize);
  release(block, other);
  void* const next = request(own);
  CHECK(hand_out(own, next, kSize));
  release(next, own);
}

TEST_CASE("A block that was used on another stream waits for what is queued there",
          "[capi][cuda]") {
  const Process process;
  const Stream own, other;
  void* const block = request(own);
  use(own, block, kSize);
  order(own, other);
  REQUIRE(berth_record_stream(block, 0, other) == BERTH_OK);
  use(other, block, kSize);
  release(block, own);
  void* const next = request(own);
  CHECK(hand_out(own, next, kSize));
  release(next, own);
}

TEST_CASE("The two handles of the legacy default stream are one lane of the C ABI",
          "[capi][cuda]") {
  const Process process;
  void* const block = request(nullptr);
  release(block, cudaStreamLegacy);
  void* const again = request(cudaStreamLegacy);
  CHECK(again == block);
  release(again, nullptr);
}

TEST_CASE("The per-thread default stream is another lane of the C ABI in each thread",
          "[capi][cuda][threads]") {
  const Process process;
  void* const block = request(cudaStreamPerThread);
  use(cudaStreamPerThread, block, kSize);
  release(block, cudaStreamPerThread);
  std::thread([] {
    void* const theirs = berth_malloc(kSize, 0, cudaStreamPerThread);
    CHECK(hand_out(cudaStreamPerThread, theirs, kSize));
    use(cudaStreamPerThread, theirs, kSize);
    berth_free(theirs, 0, 0, cudaStreamPerThread);
  }).join();
  void* const mine = request(cudaStreamPerThread);
  CHECK(mine == block);
  CHECK(hand_out(cudaStreamPerThread, mine, kSize));
  release(mine, cudaStreamPerThread);
}

TEST_CASE("A handle that comes back after its stream was forgotten is another lane of the C ABI",
          "[capi][cuda]") {
  const Process process;
  const Stream stream;  // stands for two streams of one handle
  void* const block = request(stream);
  release(block, stream);
  REQUIRE(berth_forget_stream(0, stream) == BERTH_OK);
  void* const next = request(stream);
  CHECK(next != block);
  release(next, stream);
}

TEST_CASE("A handle whose stream was forgotten proves nothing about that stream's work",
          "[capi][cuda]") {
  const Process process;
  constexpr Bytes kMost = 96 * kMiB;
  const Stream own, gone;  // the latter's handle stands for that of a later stream, too
  void* const block = request(gone, kMost);
  use(gone, block, kMost);
  release(block, gone);
  REQUIRE(berth_forget_stream(0, gone) == BERTH_OK);
  const std::uint64_t waits = berth_standin_calls("cudaStreamWaitEvent");
  // There is no other memory: it comes after a wait for the whole device.
  void* const next = request(own, kMost);
  CHECK(hand_out(own, next, kMost));
  CHECK(berth_standin_calls("cudaStreamWaitEvent") == waits);
  release(next, own);
}
