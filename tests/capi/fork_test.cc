// What a fork means to the C ABI: the child has nothing of it, the parent notices nothing.

#include "tests/catch.h"

#include <berth/berth.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

void* lane(std::uintptr_t number) { return reinterpret_cast<void*>(number); }

// Called by each fork of this program between berth's handlers: registered before berth's is.
std::atomic<void (*)()> between_handlers{nullptr};
[[maybe_unused]] const int registered = ::pthread_atfork(
    [] {
      if (void (*const act)() = between_handlers.load()) act();
    },
    nullptr, nullptr);

// Ends the program where a lock is held for ever.
struct Watch {
  Watch() { ::alarm(30); }
  ~Watch() { ::alarm(0); }
};

int exit_code_of_child(int (*act)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(act());
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

void* parents_block = nullptr;

// 0 where each function answers a forked child as it should, else the number of the one that does
// not.
int ask_everything() {
  const auto refused = [] {
    return std::string(berth_last_error()).find("forked child") != std::string::npos;
  };
  if (berth_malloc(1000, BERTH_HOST, nullptr) != nullptr || !refused()) return 1;
  if (berth_release(parents_block, 0, BERTH_HOST, lane(3)) != BERTH_OK) return 2;
  if (berth_record_stream(parents_block, BERTH_HOST, lane(3)) != BERTH_NO) return 3;
  berth_use_on_stream(parents_block, lane(3));
  if (berth_forget_stream(BERTH_HOST, lane(3)) != BERTH_NO) return 4;
  if (berth_mark_step(BERTH_HOST, lane(3)) != BERTH_NO) return 5;
  if (berth_init(nullptr) != BERTH_USAGE || !refused()) return 6;
  if (berth_save_plan(BERTH_HOST, "/nowhere/at.plan") != BERTH_NO) return 7;
  berth_statistics statistics{};
  statistics.size = sizeof statistics;
  if (berth_get_statistics(BERTH_HOST, &statistics) != BERTH_NO) return 8;
  if (berth_statistics_json(BERTH_HOST, nullptr, 0, nullptr) != BERTH_NO) return 9;
  if (berth_trim(BERTH_HOST) != BERTH_NO) return 10;
  berth_trim_all();
  return *static_cast<char*>(parents_block) == 7 ? 0 : 11;
}

}  // namespace

TEST_CASE("A forked child has nothing of the C ABI and waits for no thread of its parent",
          "[capi][fork]") {
  parents_block = berth_malloc(1000, BERTH_HOST, nullptr);
  *static_cast<char*>(parents_block) = 7;
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (std::uintptr_t i = 1; i < 4; ++i) {
    others.emplace_back([&over, i] {
      while (!over) {
        void* const block = berth_malloc(1000, BERTH_HOST, lane(i));
        berth_free(block, 1000, BERTH_HOST, lane(i));
        berth_forget_stream(BERTH_HOST, lane(i));
      }
    });
  }
  int codes = 0;
  for (int i = 0; i < 200 && codes == 0; ++i) codes = exit_code_of_child(&ask_everything);
  over = true;
  for (std::thread& other : others) other.join();
  CHECK(codes == 0);
  berth_free(parents_block, 1000, BERTH_HOST, nullptr);
}

TEST_CASE("A fork holds nothing that its parent's blocks need", "[capi][fork]") {
  void* const block = berth_malloc(1000, BERTH_HOST, nullptr);
  static std::atomic<int> served{0};
  served = 0;
  const Watch watch;
  between_handlers = [] {
    void* const other = berth_malloc(1000, BERTH_HOST, nullptr);
    served += other != nullptr;
    berth_free(other, 1000, BERTH_HOST, nullptr);
  };
  const int code = exit_code_of_child([] { return 0; });
  between_handlers = nullptr;
  CHECK(code == 0);
  CHECK(served == 1);
  berth_free(block, 1000, BERTH_HOST, nullptr);
}
