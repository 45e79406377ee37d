// Linked into a program as the object library berth::torch_auto, this installs berth before main,
// and only where BERTH_MODE is set (as `berth record` sets it).
#include <berth/error.h>
#include <berth/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

// Before main nobody can catch: wrong settings end the program with the exit code of `berth`, since
// somebody set BERTH_MODE to have them followed.
[[maybe_unused]] const bool done = [] {
  if (std::getenv("BERTH_MODE") == nullptr) return false;
  int exit_code = 4;
  try {
    berth::torch::install();
    return true;
  } catch (const berth::Error& error) {
    std::fprintf(stderr, "berth: %s\n", error.what());
    if (error.kind() == berth::ErrorKind::kUsage) exit_code = 2;
    if (error.kind() == berth::ErrorKind::kInput) exit_code = 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "berth: %s\n", error.what());
  }
  std::_Exit(exit_code);
}();

}  // namespace
