#include "tests/cli/program.h"

#include "tests/catch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace berth::test {
namespace {

// Reads both descriptors to their ends; false where nothing comes for a minute.
// `heard` is called after each piece.
bool read_both(int out, int err, Ran& ran, const std::function<void()>& heard) {
  struct pollfd ends[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* texts[2] = {&ran.out, &ran.err};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (::poll(ends, 2, 60'000) <= 0) return false;
    for (int i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t got = ::read(ends[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(got));
        heard();
      } else if (got == 0 || errno != EINTR) {  // a terminal ends with EIO
        ends[i].fd = -1;
      }
    }
  }
  return true;
}

struct Ends {
  int ours = -1, theirs = -1;
};

Ends open_ends(Stream stream) {
  int fds[2] = {-1, -1};
  switch (stream) {
    case Stream::kCaptured:
      if (::pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
      return {fds[0], fds[1]};
    case Stream::kTerminal:
      if (::openpty(&fds[0], &fds[1], nullptr, nullptr, nullptr) != 0)
        throw std::runtime_error("openpty failed");
      ::fcntl(fds[0], F_SETFD, FD_CLOEXEC);
      ::fcntl(fds[1], F_SETFD, FD_CLOEXEC);
      return {fds[0], fds[1]};
    case Stream::kFull:
      return {-1, ::open("/dev/full", O_WRONLY | O_CLOEXEC)};
    case Stream::kClosed:
      return {-1, -1};
  }
  return {};
}

// Whether `child` runs berth and has a handler for the signal.
bool catches(pid_t child, int signal) {
  char program[4096];
  const ssize_t size =
      ::readlink(fmt::format("/proc/{}/exe", child).c_str(), program, sizeof program);
  if (size < 0 || std::string_view(program, static_cast<std::size_t>(size)) != BERTH_PROGRAM)
    return false;
  std::ifstream status(fmt::format("/proc/{}/status", child));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

}  // namespace

Ran run_berth(const std::vector<std::string>& arguments, const RunOptions& options) {
  if (options.input) ::signal(SIGPIPE, SIG_IGN);  // where it does not read all
  const Ends out = open_ends(options.output);
  const Ends err = open_ends(options.error);
  const Ends in = options.input ? open_ends(Stream::kCaptured) : Ends{};
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(options.input ? in.ours : null, 0);
    out.theirs < 0 ? ::close(1) : ::dup2(out.theirs, 1);
    err.theirs < 0 ? ::close(2) : ::dup2(err.theirs, 2);
    for (const auto& [name, value] : options.variables) ::setenv(name.c_str(), value.c_str(), 1);
    if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
    const struct rlimit addresses { options.memory, options.memory };
    if (options.memory != 0) ::setrlimit(RLIMIT_AS, &addresses);
    std::vector<char*> argv = {const_cast<char*>("berth")};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(BERTH_PROGRAM, argv.data());
    ::_exit(127);
  }
  ::close(out.theirs);
  ::close(err.theirs);
  ::close(in.ours);
  std::thread writer;
  if (options.input) {
    writer = std::thread([&] {
      std::string_view left = *options.input;
      while (!left.empty()) {
        const ssize_t written = ::write(in.theirs, left.data(), left.size());
        if (written <= 0) break;  // it reads no further
        left.remove_prefix(static_cast<std::size_t>(written));
      }
      ::close(in.theirs);
    });
  }
  std::thread sender;
  if (options.signal != 0 && options.when_said.empty()) {
    sender = std::thread([&] {
      const auto ready = [&] {
        return options.when_exists.empty() ? catches(child, options.signal)
                                           : exists(options.when_exists);
      };
      for (int i = 0; i < 5000 && !ready(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ::kill(child, options.signal);
    });
  }
  Ran ran;
  bool sent = false;
  const bool ended = read_both(out.ours, err.ours, ran, [&] {
    if (sent || options.when_said.empty() || ran.err.find(options.when_said) == std::string::npos)
      return;
    sent = true;
    ::kill(child, options.signal);
  });
  if (!ended) ::kill(child, SIGKILL);
  if (sender.joinable()) sender.join();
  if (writer.joinable()) writer.join();
  int status = 0;
  ::waitpid(child, &status, 0);
  ran.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  ::close(out.ours);
  ::close(err.ours);
  if (!ended) throw std::runtime_error("berth said nothing for a minute: " + ran.err);
  return ran;
}

nlohmann::json run_berth_json(std::vector<std::string> arguments, int expected_code) {
  arguments.emplace_back("--json");
  const Ran ran = run_berth(arguments);
  INFO(ran.err);
  REQUIRE(ran.code == expected_code);
  const nlohmann::json json = nlohmann::json::parse(ran.out);  // throws where more follows
  REQUIRE(json.is_object());
  return json;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string events_csv(int steps, int requests) {
  std::string text = "action,id,bytes,stream\n";
  int id = 0;
  for (int weight = 0; weight < 3; ++weight) text += fmt::format("alloc,{},1048576,0\n", id++);
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < requests; ++i) {
      text += fmt::format("alloc,{},{},0\n", id + 2 * i, 65536 * (i + 1));  // stays
      text += fmt::format("alloc,{},4096,0\nfree,{},,0\n", id + 2 * i + 1, id + 2 * i + 1);
    }
    for (int i = requests - 1; i >= 0; --i) text += fmt::format("free,{},,0\n", id + 2 * i);
    text += "step,,,0\n";
    id += 2 * requests;
  }
  return text;
}

std::string recorded_program() { return BERTH_RECORDED_PROGRAM; }

}  // namespace berth::test
