// The unpickler, and what is made of the memory snapshots that it reads.
#include "csrc/core/check.h"
#include "csrc/trace/file.h"
#include "csrc/trace/gzip.h"
#include "csrc/trace/pickle.h"
#include "csrc/trace/snapshot.h"
#include "csrc/trace/write.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/pickled.h"

#include <cstdio>
#include <cstdlib>

namespace berth {
namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// Walks what a pickle holds, as deep as a snapshot is.
std::size_t walk(const Pickle& pickle, Pickle::Value value, int depth) {
  std::size_t seen = 1 + pickle.text(value).value_or("").size();
  (void)pickle.natural(value);
  if (depth == 0) return seen;
  for (const Pickle::Value member : pickle.members(value)) {
    seen += walk(pickle, member, depth - 1);
    if (seen > 100'000) break;  // members may be each other
  }
  return seen;
}

template <class Function>
void refuses_by_error(Function function) {
  try {
    function();
  } catch (const Error& e) {
    require(e.kind() == ErrorKind::kInput || e.kind() == ErrorKind::kUsage,
            "refusals are errors of the input or ask for a device");
  }
}

fuzz::Input as_input(const std::string& text) { return {text.begin(), text.end()}; }

std::string small_snapshot() {
  using namespace test::pickled;
  const auto entry = [](const char* action, std::int64_t addr, std::int64_t size) {
    return dict({{"action", text(action)},
                 {"addr", number(addr)},
                 {"size", number(size)},
                 {"stream", number(0)},
                 {"time_us", number(addr)},
                 {"user_metadata", text("weights")}});
  };
  const std::string block = dict({{"size", number(512)},
                                  {"requested_size", number(100)},
                                  {"state", text("active_allocated")},
                                  {"frames", list({})}});
  return file(dict(
      {{"segments", list({dict({{"device", number(0)},
                                {"address", number(4096)},
                                {"total_size", number(2097152)},
                                {"blocks", list({block})}})})},
       {"device_traces", list({list({entry("segment_alloc", 4096, 2097152),
                                     entry("alloc", 4608, 100), entry("free_requested", 4608, 100),
                                     entry("free_completed", 4608, 100), entry("oom", 1, 5)})})},
       {"external_annotations", list({dict({{"name", text("Optimizer.step#SGD.step")},
                                            {"stage", text("END")},
                                            {"device", number(0)},
                                            {"time_us", number(5000)}})})}}));
}

}  // namespace

namespace fuzz {

std::vector<std::pair<std::string, Input>> seeds() {
  std::vector<std::pair<std::string, Input>> all;
  all.emplace_back("small", as_input(small_snapshot()));
  all.emplace_back("lines",
                   as_input("(dp0\nVsegments\np1\n(lp2\nsVdevice_traces\np3\n(lp4\nS'\\x41'\n"
                            "aI01\naL5L\naF1.5\nasg3\ng4\ns."));
  all.emplace_back("code", as_input("cos\nsystem\n(S'id'\ntR."));
#ifdef BERTH_TEST_ZLIB
  for (const char* name : {"python", "cpp", "cut"}) {
    const std::vector<std::byte> data =
        gunzip(std::string(BERTH_SNAPSHOTS "/") + name + ".pickle.gz", Bytes{1} << 20);
    const auto* first = reinterpret_cast<const std::uint8_t*>(data.data());
    all.emplace_back(name, Input(first, first + data.size()));
  }
#endif
  return all;
}

void repair(Input&) {}

}  // namespace fuzz
}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace berth;
  // A copy of its own, so that a read beyond the end is seen.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  (void)begins_as_pickle(file);
  refuses_by_error([&] {
    const Pickle pickle = Pickle::parse(file, "input");
    require(pickle.containers() <= size, "containers come from bytes");
    (void)walk(pickle, pickle.root(), 6);
  });
  for (const std::optional<std::uint32_t> device : {std::optional<std::uint32_t>{}, {1}}) {
    refuses_by_error([&] {
      const Snapshot snapshot = parse_snapshot(file, "input", device);
      (void)snapshot.notes();
      const Trace again = parse_trace(serialize_trace(snapshot.trace), "again");
      require(again.entries.size() == snapshot.trace.entries.size(), "what is written reads back");
    });
  }
  return 0;
}
