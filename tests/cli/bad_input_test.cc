#include "csrc/trace/file.h"
#include "csrc/trace/gzip.h"
#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_files.h"

#include <filesystem>

using namespace berth::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Every command that reads a file, on that file.
std::vector<std::vector<std::string>> readers(const std::string& path) {
  return {
      {"plan", path}, {"show", path}, {"verify", path}, {"replay", path, "--allocator", "pool"}};
}

void refuse(const std::string& path, const std::string& message) {
  for (const auto& arguments : readers(path)) {
    const Ran ran = run_berth(arguments);
    INFO(arguments[0] << ": " << ran.err);
    REQUIRE(ran.code == 3);
    REQUIRE(ran.out.empty());
    REQUIRE_THAT(ran.err, StartsWith("berth: error: "));
    REQUIRE(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
    if (arguments[0] != "verify") REQUIRE_THAT(ran.err, Contains(message));
  }
}

}  // namespace

TEST_CASE("A file that is not there is unreadable input", "[cli][bad-input]") {
  refuse("/nonexistent/x.trace", "cannot open '/nonexistent/x.trace'");
}

TEST_CASE("A folder is no input but to be shown", "[cli][bad-input]") {
  const TemporaryFolder folder;
  for (const auto& arguments : readers(folder.path())) {
    if (arguments[0] == "show") continue;
    const Ran ran = run_berth(arguments);
    INFO(arguments[0] << ": " << ran.err);
    REQUIRE(ran.code == 3);
    REQUIRE(ran.out.empty());
    if (arguments[0] != "verify") REQUIRE_THAT(ran.err, Contains("is not a regular file"));
  }
}

TEST_CASE("A pipe without a writer is refused and not waited for", "[cli][bad-input]") {
  refuse("/dev/zero", "is not a regular file");
}

TEST_CASE("An empty file is refused as empty", "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "empty", "");
  refuse(folder / "empty", "empty");
}

TEST_CASE("A foreign file is refused as foreign", "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "picture", "\x89PNG\r\n\x1a\n and so on");
  refuse(folder / "picture", "picture'");
  write_text(folder / "zeros", std::string(100'000, '\0'));
  refuse(folder / "zeros", "zeros'");
  write_text(folder / "wrong.csv", "name,size\na,1\n");
  refuse(folder / "wrong.csv", "wrong.csv'");
}

TEST_CASE("A damaged gzip file is refused", "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "x.csv.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03rubbish", 17));
  refuse(folder / "x.csv.gz", "x.csv.gz'");
}

#ifdef BERTH_TEST_ZLIB
TEST_CASE("A small file that unpacks to gigabytes is refused without the memory for them",
          "[cli][bad-input]") {
  if (kSanitized) return;  // sanitizers take all addresses
  const TemporaryFolder folder;
  berth::write_gzip(folder / "head", bytes_of("action,id,bytes,stream\n"));
  std::string steps;
  for (int i = 0; i < 1 << 20; ++i) steps += "step,,,\n";
  berth::write_gzip(folder / "steps", bytes_of(steps));
  std::string bomb = read_text(folder / "head");
  for (int i = 0; i < 129; ++i) bomb += read_text(folder / "steps");
  write_text(folder / "bomb.gz", bomb);
  REQUIRE(bomb.size() < 3 << 20);
  RunOptions options;
  options.memory = 256 << 20;
  const Ran ran = run_berth({"plan", folder / "bomb.gz"}, options);
  REQUIRE(ran.code == 3);
  REQUIRE_THAT(ran.err, Contains("bomb.gz' unpacks to more than the limit of 1.0 GiB"));
}
#endif

TEST_CASE("A wrong line of a CSV is named", "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", "id,lower,upper,size\na,0,4,100\nb,2,two,50\n");
  refuse(folder / "rows.csv", "line 3");
  write_text(folder / "run.csv", "action,id,bytes,stream\nalloc,0,64,0\nfree,7,,0\n");
  refuse(folder / "run.csv", "line 3");
  write_text(folder / "huge.csv", "id,lower,upper,size\na,0,4,99999999999999999999\n");
  refuse(folder / "huge.csv", "line 2");
}

TEST_CASE("Every wrong row of lifetimes is named with its line", "[cli][bad-input]") {
  const TemporaryFolder folder;
  const std::string good = "id,lower,upper,size\na,0,4,4611686018427387000\n";
  for (const auto& [row, message] : std::vector<std::pair<std::string, std::string>>{
           {"b,0,4,0\n", "line 3 has size 0"},
           {"b,4,4,1\n", "line 3 has the lifetime [4, 4), which is empty"},
           {"b,4,2,1\n", "line 3 has the lifetime [4, 2), which is reversed"},
           {"b,0,4,4611686018427387000\n", "line 3 brings the sum of sizes above the limit"},
           {"a,0,4,1\n", "line 3 has the id 'a' again"},
           {"b,0,4,18446744073709551616\n", "line 3"}}) {
    write_text(folder / "rows.csv", good + row);
    refuse(folder / "rows.csv", message);
  }
}

TEST_CASE("An alignment that makes the sizes too large is refused with the line",
          "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", "id,lower,upper,size\na,0,4,100\nb,2,5,50\n");
  const Ran ran = run_berth({"plan", folder / "rows.csv", "--alignment", "4611686018427387904"});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("line 3: 50 bytes aligned to 4611686018427387904"));
}

TEST_CASE("Every prefix of a plan is refused", "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "whole.plan"}).code == 0);
  const std::string whole = read_text(folder / "whole.plan");
  for (const double share : {0.02, 0.3, 0.7, 0.99}) {
    write_text(
        folder / "cut.plan",
        whole.substr(0, static_cast<std::size_t>(static_cast<double>(whole.size()) * share)));
    for (const char* command : {"show", "verify"}) {
      const Ran ran = run_berth({command, folder / "cut.plan"});
      INFO(command << " at " << share << ": " << ran.err);
      REQUIRE(ran.code == 3);
    }
  }
}

TEST_CASE("A flipped bit of a plan is found", "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "whole.plan"}).code == 0);
  const std::string whole = read_text(folder / "whole.plan");
  for (std::size_t i = 0; i < whole.size(); i += whole.size() / 40 + 1) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_text(folder / "bad.plan", damaged);
    const Ran ran = run_berth({"verify", folder / "bad.plan"});
    INFO("byte " << i << ": " << ran.err);
    REQUIRE(ran.code == 3);
  }
}

TEST_CASE("A torn trace is read up to the tear and the tear is said", "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(40, 40));
  berth::write_trace(folder / "whole.trace", berth::read_trace(folder / "run.csv"));
  const std::string whole = read_text(folder / "whole.trace");
  write_text(folder / "torn.trace", whole.substr(0, whole.size() - 10));
  const nlohmann::json json = run_berth_json({"show", folder / "torn.trace"});
  REQUIRE(json["cut_bytes"].get<std::uint64_t>() > 0);
  REQUIRE_THAT(run_berth({"show", folder / "torn.trace"}).out, Contains("torn tail"));
}

TEST_CASE("A plan where a trace is wanted and a trace where a plan is are refused by name",
          "[cli][bad-input]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"}).code == 0);
  const Ran plan = run_berth({"plan", folder / "run.plan"});
  REQUIRE(plan.code == 3);
  REQUIRE_THAT(plan.err, Contains("is a plan already"));
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"replay", folder / "run.plan"}, {"verify", folder / "run.plan", folder / "run.plan"}}) {
    const Ran ran = run_berth(arguments);
    REQUIRE(ran.code == 3);
    REQUIRE_THAT(ran.err, Contains("run.plan' is a plan: a trace or a CSV is wanted"));
    REQUIRE_THAT(ran.err, !Contains("?"));
  }
  const Ran verify = run_berth({"verify", folder / "run.csv"});
  REQUIRE(verify.code == 3);
  REQUIRE_THAT(verify.err, Contains("is a trace: a plan or a schedule is wanted"));
}
