#include "csrc/core/spin_mutex.h"

#include "tests/catch.h"

#include <mutex>
#include <thread>
#include <vector>

using namespace berth;

TEST_CASE("One thread at a time is in the section", "[spin_mutex][threads]") {
  SpinMutex mutex;
  std::uint64_t count = 0;  // not atomic: the mutex alone keeps it whole
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const std::lock_guard lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(count == 80000);
}

TEST_CASE("A held mutex is not taken and a thread that waits long gets it at last",
          "[spin_mutex][threads]") {
  SpinMutex mutex;
  mutex.lock();
  REQUIRE_FALSE(mutex.try_lock());
  bool entered = false;
  std::thread waiting([&] {
    const std::lock_guard lock(mutex);
    entered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  mutex.unlock();
  waiting.join();
  REQUIRE(entered);
  REQUIRE(mutex.try_lock());
  mutex.unlock();
}
