// What commands read and write: pipes, standard streams, and no file over another.
#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

const char* const kRows = "id,lower,upper,size\na,0,4,100\nb,2,6,50\n";
const char* const kLayers =
    "node1 -- Input -- forward_compute_time=2.000, backward_compute_time=0.000, "
    "activation_size=10.0, parameter_size=0.000\n"
    "node2 -- Linear(3, 4) -- forward_compute_time=1.500, backward_compute_time=3.000, "
    "activation_size=40.0, parameter_size=8.000\n"
    "node3 -- LSTM(4) -- forward_compute_time=1.000, backward_compute_time=2.000, "
    "activation_size=[20.0; 5.0], parameter_size=0.000\n"
    "\tnode1 -- node2\n\tnode2 -- node3\n";

// A file of each kind: its name, and the commands that read it.
struct Input {
  std::string name;
  std::vector<std::vector<std::string>> commands;  // "@" is the file
};

std::vector<Input> make_inputs(const TemporaryFolder& folder) {
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "rows.csv", kRows);
  write_text(folder / "graph.txt", kLayers);
  REQUIRE(run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"}).code == 0);
  REQUIRE(run_berth({"graph", folder / "graph.txt", "-o", folder / "x.graph"}).code == 0);
  REQUIRE(run_berth({"graph", folder / "graph.txt", "-o", folder / "x.json"}).code == 0);
  REQUIRE(run_berth({"schedule", folder / "x.graph", "--order-only", "-o", folder / "x.schedule"})
              .code == 0);
  std::vector<Input> inputs = {
      {"run.csv",
       {{"plan", "@"},
        {"show", "@"},
        {"doctor", "@"},
        {"replay", "@", "--allocator", "pool"},
        {"verify", folder / "run.plan", "@"},
        {"show", "@", "--plan", folder / "run.plan"}}},
      {"rows.csv", {{"plan", "@"}, {"show", "@"}}},
      {"run.plan", {{"show", "@"}, {"verify", "@"}, {"show", folder / "run.csv", "--plan", "@"}}},
      {"graph.txt", {{"graph", "@"}, {"schedule", "@", "--order-only"}}},
      {"x.graph", {{"graph", "@"}, {"verify", folder / "x.schedule", "@"}}},
      {"x.json", {{"graph", "@"}, {"schedule", "@", "--budget", "100%"}}},
      {"x.schedule", {{"show", "@"}, {"verify", "@", folder / "x.graph"}}}};
#ifdef BERTH_TEST_ZLIB
  std::filesystem::copy(BERTH_SNAPSHOTS "/cpp.pickle.gz", folder / "x.pickle.gz");
  inputs.push_back(
      {"x.pickle.gz", {{"doctor", "@"}, {"import", "@", "-o", folder / "imported.trace"}}});
#endif
  return inputs;
}

std::vector<std::string> with(std::vector<std::string> command, const std::string& file) {
  for (std::string& word : command)
    if (word == "@") word = file;
  return command;
}

// A command that writes: its words before the option, the option, a name for what it writes.
struct Output {
  std::vector<std::string> command;
  std::string option, input;
};

std::vector<Output> outputs(const TemporaryFolder& folder) {
  std::vector<Output> all = {{{"plan", "@"}, "-o", "run.csv"},
                             {{"plan", "@"}, "-o", "rows.csv"},
                             {{"graph", "@"}, "-o", "graph.txt"},
                             {{"graph", "@"}, "-o", "x.json"},
                             {{"schedule", "@", "--order-only"}, "-o", "x.graph"},
                             {{"show", "@"}, "--svg", "run.csv"},
                             {{"show", "@"}, "--html", "run.plan"},
                             {{"show", folder / "run.csv", "--plan", "@"}, "--svg", "run.plan"},
                             {{"show", folder / "x.schedule", "@"}, "--svg", "x.graph"}};
#ifdef BERTH_TEST_ZLIB
  all.push_back({{"import", "@"}, "-o", "x.pickle.gz"});
#endif
  return all;
}

}  // namespace

TEST_CASE("Every command that reads a file reads a pipe", "[cli][files][pipe]") {
  const TemporaryFolder folder;
  for (const Input& input : make_inputs(folder)) {
    const std::string content = read_text(folder / input.name);
    for (const auto& command : input.commands) {
      INFO(input.name << ": " << fmt::format("{}", fmt::join(command, " ")));
      const Ran file = run_berth(with(command, folder / input.name));
      REQUIRE(file.code == 0);
      RunOptions piped;
      piped.input = content;
      for (const char* name : {"-", "/dev/stdin"}) {
        const Ran ran = run_berth(with(command, name), piped);
        INFO(ran.err);
        REQUIRE(ran.code == 0);
        REQUIRE(std::count(ran.out.begin(), ran.out.end(), '\n') ==
                std::count(file.out.begin(), file.out.end(), '\n'));
      }
      // What a shell makes of <(..), or a fifo.
      const std::string fifo = folder / "fifo";
      REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
      std::thread writer([&] { write_text(fifo, content); });
      const Ran ran = run_berth(with(command, fifo));
      writer.join();
      std::filesystem::remove(fifo);
      INFO(ran.err);
      REQUIRE(ran.code == 0);
    }
  }
}

TEST_CASE("A pipe that is empty, or is damaged, is told by its name", "[cli][files][pipe]") {
  RunOptions piped;
  piped.input = "";
  Ran ran = run_berth({"plan", "-"}, piped);
  REQUIRE(ran.code == 3);
  REQUIRE_THAT(ran.err, Contains("'-' is empty"));
  piped.input = "id,lower,upper,size\na,0,x,100\n";
  ran = run_berth({"plan", "/dev/stdin"}, piped);
  REQUIRE(ran.code == 3);
  REQUIRE_THAT(ran.err, Contains("'/dev/stdin' line 2"));
  ran = run_berth({"plan", "/dev/zero"});  // it would never end
  REQUIRE(ran.code == 3);
  REQUIRE_THAT(ran.err, Contains("is not a regular file"));
}

TEST_CASE("No command writes over what it reads", "[cli][files]") {
  const TemporaryFolder folder;
  static_cast<void>(make_inputs(folder));
  for (const Output& one : outputs(folder)) {
    const std::string file = folder / one.input, content = read_text(file);
    const std::string symlink = folder / "symlink", link = folder / "link";
    std::filesystem::create_symlink(one.input, symlink);
    std::filesystem::create_hard_link(file, link);
    for (const auto& [read, written] :
         std::vector<std::pair<std::string, std::string>>{{file, file},
                                                          {file, folder.path() + "/./" + one.input},
                                                          {file, symlink},
                                                          {symlink, file},
                                                          {file, link},
                                                          {link, symlink}}) {
      std::vector<std::string> command = with(one.command, read);
      command.insert(command.end(), {one.option, written});
      const Ran ran = run_berth(command);
      INFO(fmt::format("{}", fmt::join(command, " ")) << ": " << ran.err);
      REQUIRE(ran.code == 2);
      REQUIRE_THAT(ran.err, Contains(one.option + " '") && Contains("which this command reads"));
      REQUIRE(read_text(file) == content);
    }
    std::filesystem::remove(symlink);
    std::filesystem::remove(link);
  }
}

TEST_CASE("No output is written over another", "[cli][files]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "there", "kept");
  std::filesystem::create_symlink("there", folder / "symlink");
  std::filesystem::create_symlink("new", folder / "dangling");
  std::filesystem::create_hard_link(folder / "there", folder / "link");
  for (const auto& [one, other] : std::vector<std::pair<std::string, std::string>>{
           {folder / "new", folder / "new"},
           {folder / "new", folder.path() + "/../" +
                                std::filesystem::path(folder.path()).filename().string() + "/new"},
           {folder / "new", folder / "dangling"},
           {folder / "there", folder / "symlink"},
           {folder / "link", folder / "there"},
           {"/dev/stdout", "/dev/stdout"},
           {"-", "/dev/stdout"},
           {"/dev/stdout", "/proc/self/fd/1"}}) {
    const Ran ran = run_berth({"show", folder / "run.csv", "--svg", one, "--html", other});
    INFO(one << " and " << other << ": " << ran.err);
    REQUIRE(ran.code == 2);
    REQUIRE(ran.out.empty());
    REQUIRE_THAT(ran.err, Contains("--html and --svg"));
    REQUIRE(read_text(folder / "there") == "kept");
    REQUIRE_FALSE(exists(folder / "new"));
  }
  REQUIRE(
      run_berth({"show", folder / "run.csv", "--svg", "/dev/null", "--html", "/dev/null"}).code ==
      0);
}

TEST_CASE("Recording does not write over the program, its script or its statistics",
          "[cli][files][record]") {
  const TemporaryFolder folder;
  const std::string script = folder / "script.sh";
  write_text(script, "#!/bin/sh\n");
  Ran ran = run_berth({"record", "-o", script, "--", "sh", script});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("which this command reads"));
  REQUIRE(read_text(script) == "#!/bin/sh\n");
  ran =
      run_berth({"record", "-o", folder / "x", "--stats", folder / "x", "--", recorded_program()});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("-o and --stats"));
}

TEST_CASE("A file on standard output comes alone and the report goes to standard error",
          "[cli][files]") {
  const TemporaryFolder folder;
  static_cast<void>(make_inputs(folder));
  for (const char* name : {"-", "/dev/stdout"}) {
    for (const Output& one : outputs(folder)) {
      std::vector<std::string> command = with(one.command, folder / one.input);
      const bool to_file = one.option == "-o";
      command.insert(command.end(), {one.option, folder / "x.out"});
      REQUIRE(run_berth(command).code == 0);
      command.back() = name;
      const Ran ran = run_berth(command);
      INFO(fmt::format("{}", fmt::join(command, " ")) << ": " << ran.err);
      REQUIRE(ran.code == 0);
      // Seconds and random numbers in it differ.
      const std::string written = read_text(folder / "x.out");
      REQUIRE(ran.out.substr(0, 8) == written.substr(0, 8));
      if (to_file) REQUIRE(ran.out.size() == written.size());
      REQUIRE_THAT(ran.err, Contains(std::string("wrote ") + name));
      command.emplace_back("--json");
      const Ran both = run_berth(command);
      REQUIRE(both.code == 2);
      REQUIRE_THAT(both.err, Contains("standard output") && Contains("--json"));
    }
  }
  RunOptions piped;  // import | plan
  piped.input = read_text(folder / "run.csv");
  const Ran planned = run_berth({"plan", "-", "-o", "-"}, piped);
  REQUIRE(planned.code == 0);
  piped.input = planned.out;
  REQUIRE(run_berth({"verify", "-", folder / "run.csv"}, piped).code == 0);
}

TEST_CASE("A file that no reader knows is told with the forms that the command reads",
          "[cli][files]") {
  const TemporaryFolder folder;
  write_text(folder / "what.txt", "what is this\n");
  write_text(folder / "object.json", R"({"layers": []})");
  const auto said = [&](std::vector<std::string> command, const char* file) {
    const Ran ran = run_berth(with(std::move(command), folder / file));
    REQUIRE(ran.code == 3);
    return ran.err;
  };
  const char* const kCsv = "'action,id,bytes,stream'";
  REQUIRE_THAT(said({"plan", "@"}, "what.txt"),
               Contains("it begins with 'what is this'") && Contains(kCsv) &&
                   Contains("'id,lower,upper,size'") && !Contains("Moccasin"));
  REQUIRE_THAT(said({"replay", "@"}, "what.txt"), Contains(kCsv));
  REQUIRE_THAT(said({"show", "@"}, "what.txt"),
               Contains(kCsv) && Contains("a schedule") && Contains("BERTH_STATS"));
  for (const char* file : {"what.txt", "object.json"}) {
    for (const char* form :
         {"dnn-partitioning", "DTR", "MONeT", "Moccasin", "PipeDream", "berth's"})
      REQUIRE_THAT(said({"graph", "@"}, file), Contains(form));
  }
  REQUIRE_THAT(said({"schedule", "@", "--order-only"}, "what.txt"), Contains("PipeDream"));
  REQUIRE_THAT(said({"verify", "@"}, "what.txt"), Contains("a plan or a schedule"));
  REQUIRE_THAT(said({"import", "@", "-o", folder / "x.trace"}, "what.txt"),
               Contains("torch.cuda.memory._dump_snapshot()"));
}

TEST_CASE("Ctrl-C while a file is read ends the command", "[cli][files][interrupt]") {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo";  // whose writer never comes
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  RunOptions options;
  options.signal = SIGINT;
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"plan", fifo},
                                             {"schedule", fifo, "--budget", "60%"},
                                             {"show", fifo},
                                             {"graph", fifo}}) {
    const Ran ran = run_berth(command, options);
    REQUIRE(ran.code == 130);
    REQUIRE(ran.err == "berth: interrupted\n");
  }
}
