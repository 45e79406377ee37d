#pragma once

#include <berth/error.h>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

// Always on: what a caller, a file or the driver can get wrong. Throws an Error of `kind` whose
// text is the formatted rest; the text names asked, had and limit.
#define BERTH_CHECK(condition, kind, ...)                                         \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      throw ::berth::Error(::berth::ErrorKind::kind, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// Debug builds only: what nobody but berth itself can get wrong. Prints the operands and aborts.
#ifdef NDEBUG
#define BERTH_ASSERT(condition, ...) \
  do {                               \
  } while (false)
#else
#define BERTH_ASSERT(condition, ...)                                                            \
  do {                                                                                          \
    if (!(condition)) [[unlikely]] {                                                            \
      ::std::fprintf(stderr, "%s:%d: berth is wrong: %s: %s\n", __FILE__, __LINE__, #condition, \
                     ::fmt::format(__VA_ARGS__).c_str());                                       \
      ::std::abort();                                                                           \
    }                                                                                           \
  } while (false)
#endif
