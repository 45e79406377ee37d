#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_files.h"

#include <sys/stat.h>

using namespace berth::test;
namespace trace = berth::trace;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

// Three equal steps with ranges and operators: in each a forward operator of module "encoder" makes
// 1 MiB, a backward one of "decoder" 3 MiB while the first is alive.
trace::Trace operator_trace() {
  trace::Trace run;
  run.program.torch_version = "2.11.0";
  run.program.device_name = "cpu";
  run.lanes = {{0}};
  run.strings = {"", "encoder", "decoder", "aten::addmm", "aten::empty", "aten::mm", "my scope"};
  trace::Tick tick = 0;
  const auto add = [&](const trace::Event& event) { run.entries.push_back({tick++, 0, 0, event}); };
  std::uint64_t op = 1, range = 1;
  trace::BlockId block = 1;
  const trace::BlockId weights = block++;
  add(trace::Request{weights, 1000, 0, 0});
  for (int step = 0; step < 3; ++step) {
    const auto forward = block++, backward = block++;
    add(trace::RangeBegin{range, 1, trace::RangeKind::kModule});
    add(trace::OperatorBegin{.op = op, .name = 3});
    add(trace::OperatorBegin{.op = op + 1, .name = 4});
    add(trace::Request{forward, 1 << 20, 0, 0});
    add(trace::OperatorEnd{op + 1});
    add(trace::OperatorEnd{op});
    add(trace::RangeEnd{range});
    add(trace::RangeBegin{range + 1, 2, trace::RangeKind::kModule});
    add(trace::RangeBegin{range + 2, 6, trace::RangeKind::kUser});
    add(trace::OperatorBegin{.op = op + 2, .name = 5, .backward = true});
    add(trace::Request{backward, 3 << 20, 0, 0});
    add(trace::OperatorEnd{op + 2});
    add(trace::RangeEnd{range + 2});
    add(trace::RangeEnd{range + 1});
    add(trace::Free{forward});
    add(trace::Free{backward});
    add(trace::StepMark{});
    op += 3;
    range += 3;
  }
  return run;
}

}  // namespace

TEST_CASE("The peak of a trace is told with its tick and its holders", "[cli][show]") {
  const TemporaryFolder folder;
  berth::write_trace(folder / "run.trace", operator_trace());
  const nlohmann::json json = run_berth_json({"show", folder / "run.trace"});
  REQUIRE(json["kind"] == "trace");
  REQUIRE(json["requests"] == 7);
  REQUIRE(json["peak_bytes"] == 1024 + (4 << 20));
  REQUIRE(json["peak_tick"] == 11);
  REQUIRE(json["resident_bytes"] == 1024);
  const auto& holders = json["holders"];
  REQUIRE(holders["module"][0]["name"] == "decoder");
  REQUIRE(holders["module"][0]["bytes"] == 3 << 20);
  REQUIRE(holders["module"][1]["name"] == "encoder");
  REQUIRE(holders["operator"][0]["name"] == "aten::mm");
  REQUIRE(holders["operator"][1]["name"] == "aten::addmm");
  REQUIRE(holders["phase"][0]["name"] == "backward");
  REQUIRE(holders["phase"][1]["name"] == "forward");
  REQUIRE(holders["scope"][0]["name"] == "my scope");
  REQUIRE(json["largest"].size() == 2);
  REQUIRE(json["largest"][0]["operator"] == "aten::mm");
  REQUIRE(json["steps"]["found"] == true);
  REQUIRE(json["steps"]["requests"] == 2);
  REQUIRE(json["steps"]["marked"] == 3);

  const Ran ran = run_berth({"show", folder / "run.trace"});
  REQUIRE(ran.code == 0);
  for (const char* text :
       {"decoder", "aten::mm", "backward", "my scope", "residents", "torch 2.11.0"})
    REQUIRE_THAT(ran.out, Contains(text));
}

TEST_CASE("A trace without operators says what was not recorded", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  const Ran ran = run_berth({"show", folder / "run.csv"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, Contains("not recorded: phase, module, operator"));
}

TEST_CASE("A trace whose steps do not repeat says why", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "one.csv", events_csv(1));
  const nlohmann::json json = run_berth_json({"show", folder / "one.csv"});
  REQUIRE(json["steps"]["found"] == false);
  REQUIRE_FALSE(json["steps"]["reason"].get<std::string>().empty());
}

TEST_CASE("A trace of nothing is shown", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "none.csv", "action,id,bytes,stream\n");
  REQUIRE(run_berth({"show", folder / "none.csv"}).code == 0);
  REQUIRE(run_berth_json({"show", folder / "none.csv"})["peak_bytes"] == 0);
}

TEST_CASE("A plan is shown with its slots by size and its lanes", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"}).code == 0);
  const nlohmann::json json = run_berth_json({"show", folder / "run.plan"});
  REQUIRE(json["kind"] == "plan");
  REQUIRE(json["gap"] == 0.0);
  REQUIRE(json["sequences"].size() == 1);
  REQUIRE(json["sequences"][0]["period"] == 16);
  std::uint64_t count = 0;
  for (const auto& size_class : json["size_classes"])
    count += size_class["count"].get<std::uint64_t>();
  REQUIRE(count == 16);
  const Ran ran = run_berth({"show", folder / "run.plan"});
  REQUIRE_THAT(ran.out, Contains("lower bound"));
  REQUIRE_THAT(ran.out, Contains("Slots by size"));
}

TEST_CASE("Lifetimes are shown with their bound", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", "id,lower,upper,size\na,0,4,100\nb,2,6,50\nc,4,8,100\n");
  const nlohmann::json json = run_berth_json({"show", folder / "rows.csv"});
  REQUIRE(json["kind"] == "lifetimes");
  REQUIRE(json["buffers"] == 3);
  REQUIRE(json["lower_bound_bytes"] == 150);
  REQUIRE(json["total_bytes"] == 250);
}

TEST_CASE("A plan is drawn as one self-contained picture", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"}).code == 0);
  REQUIRE(run_berth({"show", folder / "run.plan", "--svg", folder / "run.svg"}).code == 0);
  const std::string svg = read_text(folder / "run.svg");
  REQUIRE_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  REQUIRE_THAT(svg, Catch::Matchers::EndsWith("</svg>\n"));
  REQUIRE_THAT(svg, Contains("lower bound"));
  REQUIRE_THAT(svg, Contains("MiB"));
  REQUIRE_THAT(svg, !Contains("href"));
}

TEST_CASE("A run and lifetimes are drawn, statistics cannot be", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(6));
  REQUIRE(run_berth({"show", folder / "run.csv", "--svg", folder / "run.svg"}).code == 0);
  const std::string svg = read_text(folder / "run.svg");
  for (const char* word : {"berth, learning in place", "PyTorch's caching allocator"})
    REQUIRE_THAT(svg, Contains(word));
  write_text(folder / "rows.csv", "id,lower,upper,size\na,5,10,4\nb,7,12,4\n");
  REQUIRE(run_berth({"show", folder / "rows.csv", "--svg", folder / "rows.svg"}).code == 0);
  REQUIRE_THAT(read_text(folder / "rows.svg"), Contains("lower bound"));
  write_text(folder / "stats.json", R"({"requests": 10, "hits": 10})");
  const Ran ran = run_berth({"show", folder / "stats.json", "--svg", folder / "stats.svg"});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("--svg and --png draw requests or a plan of them"));
  REQUIRE_FALSE(exists(folder / "stats.svg"));
}

TEST_CASE("A picture is written as a PNG, or one error names the package that it takes",
          "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(6));
  // What librsvg keeps for the process (fonts) is not ours to free.
  RunOptions options;
  options.variables = {{"ASAN_OPTIONS", "detect_leaks=0"}};
  const Ran ran = run_berth({"show", folder / "run.csv", "--png", folder / "run.png"}, options);
  if (ran.code == 4) {
    REQUIRE_THAT(ran.err, Contains("librsvg2-2"));
    REQUIRE_FALSE(exists(folder / "run.png"));
    return;
  }
  REQUIRE(ran.code == 0);
  const std::string png = read_text(folder / "run.png");
  // The signature, then width and height of twice the 1200 by 640 points.
  REQUIRE(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  REQUIRE(png.substr(16, 8) == std::string("\0\0\x09\x60\0\0\x05\0", 8));
}

TEST_CASE("Names from a trace cannot speak to the terminal or break the JSON", "[cli][show]") {
  const TemporaryFolder folder;
  trace::Trace run = operator_trace();
  run.strings[1] = "evil\033[2J\xff module";
  berth::write_trace(folder / "run.trace", run);
  const Ran ran = run_berth({"show", folder / "run.trace"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, !Contains("\033"));
  REQUIRE(run_berth_json({"show", folder / "run.trace"})["holders"]["module"].size() == 2);
}

TEST_CASE("Of a folder of plans each one is told, and what cannot be read", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "long.csv", events_csv(4, 20));
  const std::string plans = folder / "plans/";
  for (const char* run : {"run.csv", "long.csv"})
    REQUIRE(run_berth({"plan", folder / run, "-o", plans}).code == 0);
  write_text(plans + "broken.plan", "no plan");
  write_text(plans + "notes.txt", "not looked at");
  REQUIRE(::mkfifo((plans + "pipe.plan").c_str(), 0600) == 0);
  const nlohmann::json json = run_berth_json({"show", plans});
  REQUIRE(json["kind"] == "folder");
  REQUIRE(json["plans"].size() == 2);
  for (const auto& plan : json["plans"]) {
    CHECK(plan["kinds"] == 1);
    CHECK(plan["arena_bytes"].get<std::uint64_t>() > 0);
  }
  REQUIRE(json["problems"].size() == 2);
  const Ran ran = run_berth({"show", plans});
  REQUIRE_THAT(ran.out, Contains("2 plans"));
  REQUIRE_THAT(ran.out, Contains("broken.plan"));
  REQUIRE(run_berth({"show", plans, "--svg", folder / "x.svg"}).code == 2);
}

TEST_CASE("A trace is shown as one page that asks for nothing", "[cli][show]") {
  const TemporaryFolder folder;
  trace::Trace run = operator_trace();
  run.strings[1] = "</script><script>alert(1)</script>";
  berth::write_trace(folder / "run.trace", run);
  const Ran plain = run_berth({"show", folder / "run.trace"});
  const Ran ran = run_berth({"show", folder / "run.trace", "--html", folder / "run.html"});
  REQUIRE(ran.code == 0);
  REQUIRE(ran.out == plain.out + "wrote " + folder / "run.html" + "\n");
  const std::string page = read_text(folder / "run.html");
  REQUIRE_THAT(page, StartsWith("<!doctype html>"));
  REQUIRE_THAT(page, Catch::Matchers::EndsWith("</html>\n"));
  REQUIRE_THAT(page, Contains("default-src 'none'"));
  REQUIRE_THAT(page, Contains("PyTorch's caching allocator"));
  for (const char* word : {"http://", "https://", "src=", "</script><script>alert", "{{"})
    REQUIRE_THAT(page, !Contains(word));
  // As a page is left out of what --json prints.
  REQUIRE(run_berth_json({"show", folder / "run.trace", "--html", folder / "run.html"}) ==
          run_berth_json({"show", folder / "run.trace"}));
}

TEST_CASE("A run in which nothing repeats has a page without a plan", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "one.csv", events_csv(1));
  REQUIRE(run_berth({"show", folder / "one.csv", "--html", folder / "one.html"}).code == 0);
  REQUIRE_THAT(read_text(folder / "one.html"), Contains("No plan to draw"));
  write_text(folder / "none.csv", "action,id,bytes,stream\n");
  REQUIRE(run_berth({"show", folder / "none.csv", "--html", folder / "none.html"}).code == 0);
}

TEST_CASE("A page is refused of what it cannot show, and where it cannot be", "[cli][show]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  const Ran nowhere = run_berth({"show", folder / "run.csv", "--html", folder / "no/x.html"});
  REQUIRE(nowhere.code == 2);
  REQUIRE_THAT(nowhere.err, Contains("there is no folder"));
  const Ran plans = run_berth({"show", folder.path(), "--html", folder / "x.html"});
  REQUIRE(plans.code == 2);
  REQUIRE_THAT(plans.err, Contains("is a folder of plans"));
  REQUIRE_FALSE(exists(folder / "x.html"));
}
