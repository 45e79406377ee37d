// The shared library libberth_torch_cuda.so: loaded into a program, by LD_PRELOAD or by ctypes, it
// makes berth libtorch's CUDA allocator where BERTH_MODE is set.
#include <berth/error.h>
#include <berth/torch.h>
#include <berth/torch_cuda.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace {

int install(char* message, std::size_t size) noexcept {
  int exit_code = 4;
  try {
    berth::torch::install_cuda();
    return 0;
  } catch (const berth::Error& error) {
    std::snprintf(message, size, "%s", error.what());
    if (error.kind() == berth::ErrorKind::kUsage) exit_code = 2;
    if (error.kind() == berth::ErrorKind::kInput) exit_code = 3;
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
  }
  return exit_code;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// 0, or an exit code of berth's and a message of at most `size` bytes with its end.
int berth_torch_install_cuda(char* message, std::size_t size) { return install(message, size); }

void berth_torch_mark_step() { berth::torch::mark_step(); }

// Counters of a GPU as a JSON object, cut to `size` bytes with the end; returns the bytes of all of
// it, 0 where there is no memory for it.
std::size_t berth_torch_cuda_stats(int device, char* text, std::size_t size) {
  try {
    const std::string all = berth::torch::cuda_stats(device).to_json();
    if (size > 0) std::snprintf(text, size, "%s", all.c_str());
    return all.size();
  } catch (const std::exception&) {
    return 0;
  }
}

}  // extern "C"
#pragma GCC visibility pop

namespace {

// Before main nobody can catch: wrong settings end the program with the exit code of `berth`, since
// somebody set BERTH_MODE to have them followed.
[[maybe_unused]] const bool done = [] {
  if (std::getenv("BERTH_MODE") == nullptr) return false;
  char message[1024] = "";
  const int exit_code = install(message, sizeof message);
  if (exit_code == 0) return true;
  std::fprintf(stderr, "berth: %s\n", message);
  std::_Exit(exit_code);
}();

}  // namespace
