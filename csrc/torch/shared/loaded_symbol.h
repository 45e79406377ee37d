#pragma once

#include <dlfcn.h>

namespace berth::torch {

// The function or variable `name` of the libraries that the process has loaded, or null. `Symbol`
// is its pointer type.
template <class Symbol>
[[nodiscard]] Symbol loaded_symbol(const char* name) noexcept {
  return reinterpret_cast<Symbol>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace berth::torch
