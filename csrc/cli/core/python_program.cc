#include "csrc/cli/core/python_program.h"

#include "csrc/core/check.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace berth::cli {
namespace {

namespace fs = std::filesystem;

bool named_python(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("python");
}

// The file that a shell would run; empty where there is none.
std::string found_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, end)) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return {};
}

// Of a script, what follows "#!"; empty where it is none.
std::string first_line(const std::string& file) {
  std::ifstream script(file, std::ios::binary);
  std::string line;
  if (script.get() != '#' || script.get() != '!' || !std::getline(script, line)) return {};
  return line.size() < 4096 ? line : std::string();
}

bool has_gpu() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return false;
  auto* const init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  auto* const count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  return init != nullptr && count != nullptr && init(0) == 0 && count(&devices) == 0 && devices > 0;
}

}  // namespace

std::string berth_library(const std::string& name) {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  // Of a build, of Python's package, of an installed berth.
  const std::array<fs::path, 4> folders = {here, here / "..", here / "../lib", here / BERTH_LIBDIR};
  for (const fs::path& folder : folders) {
    const fs::path file = folder / name;
    if (fs::exists(file, ignored)) return fs::canonical(file).string();
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("'{}' does not lie beside {} nor in ../lib: this berth was built without "
                          "libtorch, or without its CUDA",
                          name, here.string()));
}

std::string python_package() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& folder : {here / "..", here / "python/berth"})
    if (fs::exists(folder / "start/sitecustomize.py", ignored))
      return fs::canonical(folder).string();
  return {};
}

bool is_python(const std::string& program) {
  const std::string file = found_in_path(program);
  return named_python(program) || named_python(file) ||
         first_line(file).find("python") != std::string::npos;
}

std::string interpreter_of(const std::string& program) {
  const std::string file = found_in_path(program);
  if (named_python(program) || named_python(file)) return program;
  // "/usr/bin/python3 -B" or "/usr/bin/env python3".
  std::istringstream words(first_line(file));
  for (std::string word; words >> word;)
    if (named_python(word)) return word;
  return {};
}

std::vector<std::pair<std::string, std::string>> python_variables(const std::string& device) {
  const bool cuda = device == "cuda" || device == "all" || (device == "auto" && has_gpu());
  const bool cpu = device == "cpu" || device == "all" || (device == "auto" && !cuda);
  std::string preload;
  if (cuda) preload = berth_library("libberth_torch_cuda.so");
  if (cpu) preload += (preload.empty() ? "" : ":") + berth_library("libberth_torch_cpu.so");
  if (const char* const others = std::getenv("LD_PRELOAD"); others != nullptr && *others != '\0')
    preload += std::string(":") + others;
  return {{"LD_PRELOAD", preload}};
}

}  // namespace berth::cli
