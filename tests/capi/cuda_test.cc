// The C ABI on a GPU, the stand-in's: which streams are one lane, and what a block waits for.

#include "csrc/capi/devices.h"
#include "tests/cuda/fixture.h"

#include <berth/berth.h>

#include <cstdint>
#include <cstdlib>
#include <string>
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
      options.memory = std::getenv("TEST_MEMORY");  // null: auto
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

// A capture of a stream from here to end(), which gives what replays it.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  }
  [[nodiscard]] cudaGraphExec_t end() const {
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream_, &graph) == cudaSuccess);
    cudaGraphExec_t replay = nullptr;
    REQUIRE(cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    return replay;
  }

 private:
  cudaStream_t stream_;
};

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

TEST_CASE("A replay meets no byte that is reused while its graph is there", "[capi][cuda][graph]") {
  const Process process;
  const Stream own, other, replays;
  std::uint64_t graph = 0;
  REQUIRE(berth_begin_capture(0, own, &graph) == BERTH_OK);
  REQUIRE(graph != 0);
  const Capture capture(own);
  void* const freed_inside = request(own);
  use(own, freed_inside, kSize);
  release(freed_inside, own);
  void* const freed_later = request(own);
  use(own, freed_later, kSize);
  void* const beside = request(other);  // another stream's, which is not captured
  cudaGraphExec_t const replay = capture.end();
  REQUIRE(berth_end_capture(0, graph) == BERTH_OK);
  release(freed_later, own);
  release(beside, other);
  for (int i = 0; i < 8; ++i) {
    void* const next = request(i % 2 == 0 ? own : other);
    CHECK((next != freed_inside && next != freed_later));
    use(i % 2 == 0 ? own : other, next, kSize);
    REQUIRE(cudaGraphLaunch(replay, replays) == cudaSuccess);
    release(next, i % 2 == 0 ? own : other);
    if (i == 4) berth_trim_all();
  }
  const std::size_t held = berth_standin_used(0);
  REQUIRE(cudaGraphExecDestroy(replay) == cudaSuccess);
  REQUIRE(berth_release_graph(0, graph) == BERTH_OK);
  void* const again[] = {request(own), request(own)};
  CHECK(berth_standin_used(0) == held);  // the graph's bytes serve others again
  for (void* const block : again) {
    CHECK(hand_out(own, block, kSize));
    release(block, own);
  }
}

TEST_CASE("A capture uses the bytes of its own freed blocks again, in the order of a stream",
          "[capi][cuda][graph]") {
  const Process process;
  const Stream own, side;
  std::uint64_t graph = 0;
  REQUIRE(berth_begin_capture(0, own, &graph) == BERTH_OK);
  REQUIRE(berth_begin_capture(0, side, &graph) == BERTH_OK);
  void* const first = request(own);
  release(first, own);
  CHECK(berth_release(first, 0, 0, own) == BERTH_USAGE);  // twice
  CHECK(request(own) == first);
  release(first, own);
  void* const elsewhere = request(side);
  CHECK(elsewhere != first);
  void* const other_size = request(own, 2 * kSize);
  CHECK(other_size != first);
  CHECK(request(own) == first);
  REQUIRE(berth_record_stream(first, 0, side) == BERTH_OK);
  release(first, own);
  void* const next = request(own);  // what another stream used does not come back
  CHECK(next != first);
  REQUIRE(berth_end_capture(0, graph) == BERTH_OK);
  for (void* const block : {elsewhere, other_size, next}) release(block, own);
  void* const later = request(own);
  CHECK((later != first && later != elsewhere && later != next));
  release(later, own);
  REQUIRE(berth_release_graph(0, graph) == BERTH_OK);
  REQUIRE(berth_release_graph(0, graph) == BERTH_OK);  // as often as it was begun
}

TEST_CASE("A graph that is released while another is captured goes when that capture has ended",
          "[capi][cuda][graph]") {
  const Process process;
  const Stream own;
  std::uint64_t first = 0, second = 0;
  REQUIRE(berth_begin_capture(0, own, &first) == BERTH_OK);
  cudaGraphExec_t replay = nullptr;
  {
    const Capture capture(own);
    release(request(own), own);
    replay = capture.end();
  }
  REQUIRE(berth_end_capture(0, first) == BERTH_OK);
  REQUIRE(berth_begin_capture(0, own, &second) == BERTH_OK);
  {
    const Capture capture(own);
    REQUIRE(cudaGraphExecDestroy(replay) == cudaSuccess);
    REQUIRE(berth_release_graph(0, first) == BERTH_OK);
    cudaGraphExecDestroy(capture.end());  // and no capture is void
  }
  REQUIRE(berth_end_capture(0, second) == BERTH_OK);
  REQUIRE(berth_release_graph(0, second) == BERTH_OK);
  const std::size_t held = berth_standin_used(0);
  release(request(own), own);
  CHECK(berth_standin_used(0) == held);
}

TEST_CASE("Misuse of captures is named", "[capi][cuda][graph][misuse]") {
  const Process process;
  const Stream own;
  release(request(own), own);  // so that the device is there
  std::uint64_t graph = 0;
  CHECK(berth_begin_capture(0, own, nullptr) == BERTH_USAGE);
  CHECK(berth_begin_capture(BERTH_HOST, nullptr, &graph) == BERTH_USAGE);
  CHECK(berth_end_capture(0, 77) == BERTH_USAGE);
  CHECK(std::string(berth_last_error()).find("graph 77, which is not being captured") !=
        std::string::npos);
  CHECK(berth_release_graph(0, 77) == BERTH_USAGE);
  CHECK(berth_release_graph(5, 77) == BERTH_NO);
  REQUIRE(berth_begin_capture(0, own, &graph) == BERTH_OK);
  CHECK(berth_release_graph(0, graph) == BERTH_USAGE);
  REQUIRE(berth_end_capture(0, graph) == BERTH_OK);
  CHECK(berth_end_capture(0, graph) == BERTH_USAGE);
  REQUIRE(berth_release_graph(0, graph) == BERTH_OK);
  CHECK(berth_release_graph(0, graph) == BERTH_USAGE);
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

TEST_CASE("The device of a block of the C ABI is known by its address", "[capi][cuda]") {
  const Process process;
  void* const on_gpu = request(nullptr);
  void* const on_host = berth_malloc(kSize, BERTH_HOST, nullptr);
  CHECK(capi::likely_device(on_gpu) == capi::existing_device(0));
  CHECK(capi::likely_device(on_host) == capi::existing_device(BERTH_HOST));
  CHECK(capi::likely_device(&on_host) == nullptr);
  berth_free(on_host, kSize, BERTH_HOST, nullptr);
  release(on_gpu, nullptr);
}
