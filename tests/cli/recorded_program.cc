// A program that is linked to berth, for tests of `berth record`: a few equal steps, set by its
// arguments.
//   steps=N       steps to make, 4 where not given
//   exit=N        exit code
//   raise=N       signal that it ends itself with, after its steps
//   wait=FILE     makes FILE, then waits for SIGTERM and exits with 7
//   odd=N         every N-th step asks for another size as its third request
//   echo=TEXT     prints TEXT and a line end
#include "csrc/core/file.h"
#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"

#include <berth/config.h>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  int steps = 4, code = 0, raised = 0, odd = 0;
  std::string wait;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string value(argument.substr(argument.find('=') + 1));
    if (argument.starts_with("steps=")) steps = std::atoi(value.c_str());
    if (argument.starts_with("exit=")) code = std::atoi(value.c_str());
    if (argument.starts_with("raise=")) raised = std::atoi(value.c_str());
    if (argument.starts_with("odd=")) odd = std::atoi(value.c_str());
    if (argument.starts_with("wait=")) wait = value;
    if (argument.starts_with("echo=")) std::printf("%s\n", value.c_str());
  }
  const auto device = berth::make_host_device();
  berth::Allocator::Options options;
  options.config = berth::Config::from_environment();
  berth::Allocator allocator(*device, options);
  for (int step = 0; step < steps; ++step) {
    std::vector<void*> blocks;
    for (int i = 1; i <= 10; ++i) {
      const bool other = i == 2 && odd != 0 && step % odd == odd - 1;
      blocks.push_back(allocator.allocate(static_cast<berth::Bytes>(other ? 99 : i) * 10'000, 0));
      allocator.free(allocator.allocate(512, 0));
    }
    for (void* block : blocks) allocator.free(block);
    allocator.mark_step(0);
  }
  if (!wait.empty()) {
    static volatile std::sig_atomic_t terminated = 0;
    std::signal(SIGTERM, [](int) { terminated = 1; });
    berth::write_file_atomically(wait, {});
    while (terminated == 0) ::usleep(1000);
    code = 7;
  }
  allocator.shut_down();
  std::fflush(stdout);
  if (raised != 0) {
    std::signal(raised, SIG_DFL);
    std::raise(raised);
  }
  return code;
}
