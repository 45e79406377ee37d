#include "csrc/core/setup_mutex.h"

#include "tests/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

using namespace berth;

TEST_CASE("A set-up mutex lets one thread in at a time", "[setup_mutex]") {
  SetupMutex mutex;
  int inside = 0, most = 0, turns = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 1000; ++turn) {
        const std::lock_guard lock(mutex);
        most = std::max(most, ++inside);
        ++turns;
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(most == 1);
  REQUIRE(turns == 4000);
}

TEST_CASE("A child forked while another thread sets up is told so instead of waiting",
          "[setup_mutex][fork]") {
  SetupMutex mutex;
  std::atomic<int> stage{0};
  std::thread other([&] {
    const std::lock_guard lock(mutex);
    stage = 1;
    stage.notify_all();
    stage.wait(1);
  });
  stage.wait(0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    int told = 1;
    try {
      mutex.lock();
    } catch (const Error& error) {
      told = error.kind() == ErrorKind::kUsage ? 0 : 2;
    }
    ::_exit(told);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  stage = 2;
  stage.notify_all();
  other.join();
  REQUIRE(status == 0);
  const std::lock_guard lock(mutex);
}
