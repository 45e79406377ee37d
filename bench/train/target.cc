#include "bench/train/target.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace berth::bench {

void run_program_for(const std::string& device, char** argv) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string program = folder / (device == "cpu" ? "train" : "train_" + device);
  ::execv(program.c_str(), argv);
  throw std::runtime_error(
      fmt::format("--device {} is {}, which does not start ({}): was it built?", device, program,
                  std::strerror(errno)));
}

}  // namespace berth::bench
