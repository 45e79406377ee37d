#include "csrc/trace/recorder.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/trace/chunk_frame.h"
#include "csrc/trace/file.h"
#include "csrc/trace/thread_buffer.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

#include <berth/warnings.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <thread>

using namespace berth;
using Catch::Matchers::Contains;

#if defined(__SANITIZE_THREAD__)
#define BERTH_TEST_FORK_WITH_THREADS \
  0  // the thread sanitizer cannot follow threads made after fork
#else
#define BERTH_TEST_FORK_WITH_THREADS 1
#endif

namespace {

std::unique_ptr<Recorder> open(const std::string& path) {
  trace::Program program;
  program.torch_version = "2.11.0";
  return Recorder::open(path, program, 64);
}

const trace::Request& request_at(const Trace& trace, std::size_t index) {
  return std::get<trace::Request>(trace.entries.at(index).event);
}

// Runs `body` in a child process and returns its exit status as waitpid() gives it.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(99);
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("What is recorded reads back in order with program and times", "[trace][recorder]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  const trace::LaneId lane = recorder->lane(7);
  for (trace::BlockId id = 1; id <= 5000; ++id) {
    REQUIRE(recorder->append(trace::Request{id, 10 * id, lane, 3}) == 2 * id - 2);
    (void)recorder->append(trace::Free{id});
  }
  REQUIRE(recorder->counts().recorded == 10000);
  recorder->close();
  const Trace trace = read_trace(folder / "a.trace");
  REQUIRE(trace.closed);
  REQUIRE(trace.cut_bytes == 0);
  REQUIRE(trace.program.torch_version == "2.11.0");
  REQUIRE(trace.alignment == 64);
  REQUIRE(trace.entries.size() == 10000);
  for (std::size_t i = 0; i < trace.entries.size(); ++i) {
    REQUIRE(trace.entries[i].tick == i);
    if (i != 0) REQUIRE(trace.entries[i].time_ns >= trace.entries[i - 1].time_ns);
  }
  REQUIRE(request_at(trace, 84).bytes == 430);
  REQUIRE(trace.lanes.at(request_at(trace, 84).lane).key == 7);
  REQUIRE(recorder->counts().lost == 0);
}

TEST_CASE("A recording belongs to its user alone", "[trace][recorder]") {
  const test::TemporaryFolder folder;
  (void)open(folder / "a.trace");
  struct stat info {};
  REQUIRE(::stat((folder / "a.trace").c_str(), &info) == 0);
  REQUIRE((info.st_mode & 0777) == 0600);
}

TEST_CASE("An earlier recording is replaced and what is no file is left alone",
          "[trace][recorder]") {
  const test::TemporaryFolder folder;
  for (int i = 0; i < 2; ++i) open(folder / "a.trace")->close();
  REQUIRE(read_trace(folder / "a.trace").entries.empty());
  std::filesystem::create_symlink(folder / "a.trace", folder / "link");
  REQUIRE_THROWS_WITH(open(folder / "link"), Contains("link") && Contains("no regular file"));
  REQUIRE_THROWS_WITH(open(folder.path()), Contains("no regular file"));
  REQUIRE_THROWS_WITH(open(folder / "none/a.trace"),
                      Contains("none/a.trace") && Contains("No such file"));
  REQUIRE_THROWS_AS(Recorder::open(folder / "b.trace", {}, 48), Error);
}

TEST_CASE("Threads record without a lock and each keeps its order", "[trace][recorder][threads]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  constexpr int kThreads = 6, kEach = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&recorder, t] {
      for (int i = 0; i < kEach; ++i)
        (void)recorder->append(
            trace::Request{static_cast<trace::BlockId>(t * kEach + i + 1), 1, 0, 0});
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder->close();
  const Trace trace = read_trace(folder / "a.trace");
  REQUIRE(trace.entries.size() == kThreads * kEach);
  std::map<trace::ThreadId, trace::BlockId> last;
  for (std::size_t i = 0; i < trace.entries.size(); ++i) {
    REQUIRE(trace.entries[i].tick == i);
    const trace::BlockId id = request_at(trace, i).id;
    const auto [it, first] = last.emplace(trace.entries[i].thread, id);
    if (first) {
      REQUIRE(id % kEach == 1);
    } else {
      REQUIRE(id == ++it->second);
    }
  }
  REQUIRE(last.size() == kThreads);
}

TEST_CASE("Equal names get equal numbers from any thread", "[trace][recorder][threads]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  REQUIRE(recorder->intern("") == 0);
  REQUIRE(recorder->intern_shape(nullptr, 0) == 0);
  REQUIRE(recorder->lane(0) == 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&recorder] {
      for (int i = 0; i < 2000; ++i) {
        const std::int64_t shape[] = {i % 100, 3};
        const trace::StringId name = recorder->intern("layer." + std::to_string(i));
        (void)recorder->append(trace::RangeBegin{1, name, trace::RangeKind::kModule});
        (void)recorder->append(trace::Operand{.op = 1, .shape = recorder->intern_shape(shape, 2)});
        (void)recorder->append(trace::StepMark{recorder->lane(static_cast<std::uint64_t>(i % 50))});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder->close();
  const Trace trace = read_trace(folder / "a.trace");
  REQUIRE(trace.strings.size() == 2001);
  REQUIRE(std::set(trace.strings.begin(), trace.strings.end()).size() == 2001);
  REQUIRE(trace.shapes.size() == 101);
  REQUIRE(trace.lanes.size() == 50);
  REQUIRE(trace.entries.size() == 4 * 3 * 2000);
}

TEST_CASE("More names than a chunk takes come before the entries that use them",
          "[trace][recorder]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  for (int i = 0; i < 300; ++i) {
    const trace::StringId name = recorder->intern(std::string(1000 + i, 'x'));
    (void)recorder->append(trace::RangeBegin{1, name, trace::RangeKind::kUser});
  }
  recorder->close();
  REQUIRE(read_trace(folder / "a.trace").strings.size() == 301);
}

TEST_CASE("After close nothing more is recorded and closing again does nothing",
          "[trace][recorder]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  (void)recorder->append(trace::Free{1});
  recorder->close();
  const auto size = std::filesystem::file_size(folder / "a.trace");
  REQUIRE(recorder->append(trace::Free{2}) == 0);
  recorder->close();
  REQUIRE(std::filesystem::file_size(folder / "a.trace") == size);
  REQUIRE(recorder->counts().recorded == 1);
  REQUIRE(recorder->counts().lost == 0);
  REQUIRE(read_trace(folder / "a.trace").entries.size() == 1);
}

TEST_CASE("Two recorders of one thread do not mix", "[trace][recorder]") {
  const test::TemporaryFolder folder;
  const auto a = open(folder / "a.trace");
  const auto b = open(folder / "b.trace");
  for (trace::BlockId id = 1; id <= 100; ++id) {
    (void)a->append(trace::Free{id});
    (void)b->append(trace::Free{id + 1000});
  }
  a->close();
  b->close();
  const Trace trace = read_trace(folder / "b.trace");
  REQUIRE(trace.entries.size() == 100);
  for (const trace::Entry& e : trace.entries) REQUIRE(std::get<trace::Free>(e.event).id > 1000);
}

TEST_CASE("Threads may outlive their recorder and recorders their threads",
          "[trace][recorder][threads]") {
  const test::TemporaryFolder folder;
  for (int round = 0; round < 20; ++round) {
    auto recorder = open(folder / "a.trace");
    std::atomic<bool> appended{false}, go_on{false};
    std::thread longer([&] {
      (void)recorder->append(trace::Free{1});
      appended = true;
      while (!go_on) std::this_thread::yield();
    });
    std::thread shorter([&] { (void)recorder->append(trace::Free{2}); });
    shorter.join();
    while (!appended) std::this_thread::yield();
    recorder.reset();
    go_on = true;
    longer.join();
    REQUIRE(read_trace(folder / "a.trace").entries.size() == 2);
  }
}

TEST_CASE("What a thread frees while it ends is recorded", "[trace][recorder][threads]") {
  struct AtExit {
    Recorder* recorder = nullptr;
    ~AtExit() {
      if (recorder != nullptr) (void)recorder->append(trace::Free{99});
    }
  };
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  std::thread([&] {
    // Made before the recorder's own thread-local objects, so it goes after them.
    static thread_local AtExit at_exit;
    at_exit.recorder = recorder.get();
    (void)recorder->append(trace::Free{1});
  }).join();
  recorder->close();
  const Trace trace = read_trace(folder / "a.trace");
  REQUIRE(trace.entries.size() == 2);
  REQUIRE(std::get<trace::Free>(trace.entries[1].event).id == 99);
}

TEST_CASE("Entries reach the file while the program runs", "[trace][recorder]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  (void)recorder->append(trace::Free{1});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Trace trace;
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    trace = read_trace(folder / "a.trace");
  } while (trace.entries.empty() && std::chrono::steady_clock::now() < deadline);
  REQUIRE(trace.entries.size() == 1);
  REQUIRE_FALSE(trace.closed);
}

TEST_CASE("In a forked child nothing is recorded and nothing blocks", "[trace][recorder][fork]") {
  const test::TemporaryFolder folder;
  auto recorder = open(folder / "a.trace");
  (void)recorder->append(trace::Free{1});
  const int status = in_child([&] {
    if (recorder->append(trace::Free{2}) != 0) ::_exit(1);
    if (recorder->intern("child") != 0) ::_exit(2);
    recorder->close();
    recorder.reset();
  });
  REQUIRE(status == 0);
  (void)recorder->append(trace::Free{3});
  recorder->close();
  const Trace trace = read_trace(folder / "a.trace");
  REQUIRE(trace.entries.size() == 2);
  REQUIRE(std::get<trace::Free>(trace.entries[1].event).id == 3);
  REQUIRE(trace.strings.size() == 1);
}

#if BERTH_TEST_FORK_WITH_THREADS
TEST_CASE("A recording killed at any time lacks 100 ms a thread at most",
          "[trace][recorder][kill]") {
  struct Progress {
    std::atomic<std::uint64_t> last_time_ns[2];
    std::atomic<std::uint64_t> last_id[2];
  };
  auto* progress = static_cast<Progress*>(
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(progress != MAP_FAILED);
  const test::TemporaryFolder folder;
  const std::string path = folder / "a.trace";
  for (int round = 0; round < 6; ++round) {
    new (progress) Progress();
    const pid_t child = ::fork();
    if (child == 0) {
      const auto start = std::chrono::steady_clock::now();
      const auto recorder = open(path);
      const auto work = [&](int thread) {
        for (std::uint64_t i = 1;; ++i) {
          (void)recorder->append(trace::Request{2 * i + static_cast<unsigned>(thread), 1, 0, 0});
          progress->last_id[thread] = i;
          progress->last_time_ns[thread] =
              static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start).count());
          if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
      };
      std::thread other([&] { work(1); });
      work(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + 37 * round));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);

    const Trace trace = read_trace(path);
    REQUIRE_FALSE(trace.closed);
    std::uint64_t last_id[2] = {0, 0}, last_time[2] = {0, 0};
    for (const trace::Entry& e : trace.entries) {
      const auto& request = std::get<trace::Request>(e.event);
      const auto thread = request.id % 2;
      REQUIRE(request.id / 2 == ++last_id[thread]);
      last_time[thread] = e.time_ns;
    }
    for (int thread = 0; thread < 2; ++thread) {
      const std::uint64_t lost =
          progress->last_id[thread] - std::min(progress->last_id[thread].load(), last_id[thread]);
      const std::uint64_t lost_ns =
          progress->last_time_ns[thread] -
          std::min(progress->last_time_ns[thread].load(), last_time[thread]);
      CAPTURE(round, thread, lost, lost_ns);
      REQUIRE(last_id[thread] > 0);
      // A request takes 48 bytes in the file.
      REQUIRE((lost_ns <= 100'000'000 || lost * 48 <= 64 * 1024));
    }
  }
  ::munmap(progress, sizeof(Progress));
}

TEST_CASE("Where the disk is full the program goes on with one warning and a readable file",
          "[trace][recorder][full]") {
  const test::TemporaryFolder folder;
  const std::string path = folder / "a.trace";
  const int status = in_child([&] {
    static std::atomic<int> warnings{0}, named{0};
    set_warning_sink([](std::string_view name, const std::string& text) {
      ++warnings;
      if (name == "trace-write" && text.find("a.trace") != std::string::npos) ++named;
    });
    // A limit in the middle of a chunk stands for a full disk. SIGXFSZ keeps its default, which
    // would kill: the recorder must not let it.
    const rlimit limit{100'000, 100'000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    const auto recorder = open(path);
    for (trace::BlockId id = 1; id <= 50'000; ++id) {
      (void)recorder->append(trace::Request{id, 1, 0, 0});
      if (id % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    const Recorder::Counts before = recorder->counts();
    recorder->close();
    const Recorder::Counts counts = recorder->counts();
    if (before.recorded + before.lost != 50'000) ::_exit(2);
    if (counts.lost == 0 || counts.recorded + counts.lost != 50'000) ::_exit(3);
    if (warnings != 1 || named != 1) ::_exit(4);
    if (read_trace(path).entries.size() != counts.recorded) ::_exit(5);
  });
  REQUIRE(status == 0);
  const Trace trace = read_trace(path);
  REQUIRE(trace.cut_bytes == 0);
  REQUIRE_FALSE(trace.closed);
  REQUIRE(trace.entries.size() > 100);
  for (std::size_t i = 0; i < trace.entries.size(); ++i) REQUIRE(trace.entries[i].tick == i);
}
#endif

TEST_CASE("Of more than a thousand threads that live at once no entry is lost",
          "[trace][recorder][threads]") {
  constexpr std::size_t kThreads = 1200;
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  std::latch all_recorded(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (trace::BlockId id = 3 * i + 1; id <= 3 * i + 3; ++id)
        (void)recorder->append(trace::Request{id, 64, 0, 0});
      all_recorded.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder->close();
  CHECK(recorder->counts().lost == 0);
  const Trace trace = read_trace(folder / "a.trace");
  REQUIRE(trace.entries.size() == 3 * kThreads);
  std::set<trace::ThreadId> seen;
  for (const trace::Entry& entry : trace.entries) seen.insert(entry.thread);
  REQUIRE(seen.size() == kThreads);
}

TEST_CASE("A thread for which no room is left records again after each drain",
          "[trace][recorder]") {
  trace::ThreadBuffer buffer(0, std::make_shared<trace::ThreadBuffer::Budget>(0));
  for (int round = 0; round < 3; ++round) {
    std::size_t pushed = 0, drained = 0;
    while (buffer.push(pushed, 0, trace::Free{1})) ++pushed;
    buffer.drain([&](const trace::Entry&) { ++drained; });
    REQUIRE(pushed >= trace::ThreadBuffer::kBatchEntries);
    REQUIRE(drained == pushed);
  }
}

TEST_CASE("Room that a burst took is another thread's after it is drained", "[trace][recorder]") {
  using trace::ThreadBuffer;
  const auto budget = std::make_shared<ThreadBuffer::Budget>(4 * ThreadBuffer::kBatchBytes);
  const auto fill = [](ThreadBuffer& buffer) {
    std::size_t pushed = 0;
    while (buffer.push(pushed, 0, trace::Free{1})) ++pushed;
    return pushed / ThreadBuffer::kBatchEntries;
  };
  ThreadBuffer first(0, budget), second(1, budget);
  REQUIRE(fill(first) == 2 + 4);
  REQUIRE(fill(second) == 2);  // its own
  first.drain([](const trace::Entry&) {});
  REQUIRE(fill(second) >= 3);
}

TEST_CASE("Entries that are lost are counted and warned of once", "[trace][recorder]") {
  static std::atomic<int> warnings{0}, named{0};
  warnings = named = 0;
  set_warning_sink([](std::string_view name, const std::string& text) {
    ++warnings;
    if (name == "trace-lost" && text.find("a.trace' loses entries") != std::string::npos) ++named;
  });
  const test::TemporaryFolder folder;
  const auto recorder = Recorder::open(folder / "a.trace", {}, 64, 0);
  std::uint64_t appended = 0;
  while (recorder->counts().lost < 1000) (void)recorder->append(trace::Free{++appended});
  recorder->close();
  set_warning_sink({});
  const Recorder::Counts counts = recorder->counts();
  REQUIRE(counts.recorded + counts.lost == appended);
  REQUIRE(read_trace(folder / "a.trace").entries.size() == counts.recorded);
  REQUIRE(warnings == 1);
  REQUIRE(named == 1);
}

TEST_CASE("The recorder's chunks keep to 64 KiB", "[trace][recorder]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  for (trace::BlockId id = 1; id <= 20000; ++id) {
    (void)recorder->append(trace::Request{id, 1, 0, 0});
    (void)recorder->append(trace::Operand{.op = id});
  }
  recorder->close();
  const auto file = read_file(folder / "a.trace", 1 << 30);
  std::size_t at = trace_file::kFileHeaderBytes;
  while (at < file.size()) {
    const auto chunk = trace_file::parse_chunk(file, at);
    REQUIRE(chunk);
    const std::size_t size = trace_file::kChunkHeaderBytes + chunk->payload.size();
    REQUIRE(size <= trace_file::kChunkBytes);
    at += size;
  }
}

TEST_CASE("The main thread's number is that of its entries", "[trace][recorder]") {
  const test::TemporaryFolder folder;
  const auto recorder = open(folder / "a.trace");
  trace::ThreadId other = 0;
  const trace::ThreadId own = recorder->thread();
  std::thread([&] { other = recorder->thread(); }).join();
  REQUIRE(own != other);
  (void)recorder->append(trace::Free{1});
  recorder->close();
  REQUIRE(read_trace(folder / "a.trace").entries.at(0).thread == own);
}
