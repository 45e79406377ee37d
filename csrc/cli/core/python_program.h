#pragma once

#include <string>
#include <utility>
#include <vector>

namespace berth::cli {

// Whether a program is Python, or a script that Python runs (torchrun). Looked up in PATH.
[[nodiscard]] bool is_python(const std::string& program);

// The Python that runs it: the program, or what the first line of the script names. Empty where
// that is not known.
[[nodiscard]] std::string interpreter_of(const std::string& program);

// The path of a shared library of berth's ("libberth_torch_cuda.so") that lies beside this program
// or in the folders around it. Throws Error(kUsage) where it is missing.
[[nodiscard]] std::string berth_library(const std::string& name);

// The folder of berth's Python package, of this build or around this program. Empty where it is
// missing.
[[nodiscard]] std::string python_package();

// Variables that bring berth into a program in Python, for "cpu", "cuda", "all" or "auto" (CUDA
// where this machine has a GPU, else the CPU): LD_PRELOAD with the libraries that lie beside this
// program or in the folders around it. Throws Error(kUsage) where they are missing.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> python_variables(
    const std::string& device);

}  // namespace berth::cli
