#include "csrc/replay/child_process.h"

#include "csrc/core/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace berth::replay {
namespace {

// What is passed on to the child.
constexpr std::array<int, 6> kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// While it lives, the signals that we pass on, and the end of a child, wait for us to ask for them:
// no handler runs in between.
class HeldSignals {
 public:
  HeldSignals() noexcept {
    ::sigemptyset(&held_);
    ::sigaddset(&held_, SIGCHLD);
    for (const int signal : kForwarded) ::sigaddset(&held_, signal);
    ::sigprocmask(SIG_BLOCK, &held_, &mask_before_);
    // Who ignores SIGCHLD, or made us do so, would lose the exit code.
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &action, &action_before_);
  }
  ~HeldSignals() { restore(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // In the child, too: it begins as we did.
  void restore() const noexcept {
    ::sigaction(SIGCHLD, &action_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  // Passes signals on until the child ended, and calls `watch` meanwhile. Returns its status as
  // waitpid() does, -1 where that fails.
  [[nodiscard]] int wait_for(pid_t child, const std::function<void(pid_t)>& watch) const {
    for (;;) {
      int status = 0;
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended == child) return status;
      if (ended < 0 && errno != EINTR) return -1;
      siginfo_t info{};
      int signal = 0;
      if (watch) {
        watch(child);
        const struct timespec pause { 0, 50'000'000 };
        signal = ::sigtimedwait(&held_, &info, &pause);
      } else {
        signal = ::sigwaitinfo(&held_, &info);
      }
      // The terminal sends to the child too, and what the child sends it has had.
      if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL && info.si_pid != child)
        ::kill(child, signal);
    }
  }

 private:
  sigset_t held_{}, mask_before_{};
  struct sigaction action_before_ {};
};

}  // namespace

ChildExit run_child(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, std::string>>& variables,
                    const ChildOptions& options) {
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
    const HeldSignals signals;
    const pid_t child = ::fork();
    if (child == 0) {
      signals.restore();
      if (options.output_to_error) ::dup2(STDERR_FILENO, STDOUT_FILENO);
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
    ssize_t got;
    while ((got = ::read(pipe_ends[0], &exec_error, sizeof exec_error)) < 0 && errno == EINTR) {
    }
    if (got != static_cast<ssize_t>(sizeof exec_error)) exec_error = 0;
    ::close(pipe_ends[0]);
    const int status = signals.wait_for(child, options.watch);
    BERTH_CHECK(status != -1, kSystem, "cannot wait for '{}': {}", arguments[0],
                std::strerror(errno));
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

}  // namespace berth::replay
