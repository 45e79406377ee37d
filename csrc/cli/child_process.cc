#include "csrc/cli/child_process.h"

#include "csrc/core/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace berth::cli {
namespace {

constexpr std::array<int, 6> kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

std::atomic<pid_t> forward_to{0};
static_assert(std::atomic<pid_t>::is_always_lock_free, "read in a signal handler");

void forward(int signal, siginfo_t* info, void* /*context*/) {
  const int saved = errno;
  const pid_t child = forward_to.load();
  // The terminal sends to the child too, and what the child sends it has had.
  if (child > 0 && info->si_code != SI_KERNEL && info->si_pid != child) ::kill(child, signal);
  errno = saved;
}

// Forwards signals while it lives.
class Forwarding {
 public:
  Forwarding() noexcept {
    struct sigaction action {};
    action.sa_sigaction = forward;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < kForwarded.size(); ++i) {
      ::sigaction(kForwarded[i], nullptr, &before_[i]);
      // What nohup or a shell in the background made us ignore stays ignored, in the child too.
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kForwarded[i], &action, nullptr);
    }
  }
  ~Forwarding() {
    forward_to.store(0);
    restore();
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  void restore() const noexcept {
    for (std::size_t i = 0; i < kForwarded.size(); ++i)
      ::sigaction(kForwarded[i], &before_[i], nullptr);
  }

 private:
  std::array<struct sigaction, kForwarded.size()> before_{};
};

}  // namespace

ChildExit run_child(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, std::string>>& variables) {
  BERTH_CHECK(!arguments.empty(), kUsage, "no program to run");
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  int pipe_ends[2];  // carries errno of a failing exec; closed by one that works
  BERTH_CHECK(::pipe2(pipe_ends, O_CLOEXEC) == 0, kSystem, "cannot make a pipe: {}",
              std::strerror(errno));
  ChildExit result;
  int exec_error = 0;
  {
    const Forwarding forwarding;
    const pid_t child = ::fork();
    if (child == 0) {
      forwarding.restore();
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      ::execvp(argv[0], argv.data());
      const int error = errno;
      [[maybe_unused]] const ssize_t ignored = ::write(pipe_ends[1], &error, sizeof error);
      ::_exit(127);
    }
    const int fork_error = errno;
    ::close(pipe_ends[1]);
    if (child < 0) {
      ::close(pipe_ends[0]);
      throw Error(ErrorKind::kSystem, fmt::format("cannot fork: {}", std::strerror(fork_error)));
    }
    forward_to.store(child);
    ssize_t got;
    while ((got = ::read(pipe_ends[0], &exec_error, sizeof exec_error)) < 0 && errno == EINTR) {
    }
    if (got != static_cast<ssize_t>(sizeof exec_error)) exec_error = 0;
    ::close(pipe_ends[0]);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
      BERTH_CHECK(errno == EINTR, kSystem, "cannot wait for '{}': {}", arguments[0],
                  std::strerror(errno));
    }
    if (WIFSIGNALED(status)) {
      result.signal = WTERMSIG(status);
    } else {
      result.code = WEXITSTATUS(status);
    }
  }
  BERTH_CHECK(exec_error == 0, kSystem, "cannot run '{}': {}", arguments[0],
              std::strerror(exec_error));
  return result;
}

}  // namespace berth::cli
