# cmake -B build/fuzz -C tests/fuzz/fuzz.cmake: fuzz targets with libFuzzer under address and undefined-behaviour checks.
set(CMAKE_CXX_COMPILER clang++ CACHE STRING "")
set(CMAKE_C_COMPILER clang CACHE STRING "")
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS "-fsanitize=fuzzer-no-link" CACHE STRING "")
set(BERTH_SANITIZE "address,undefined" CACHE STRING "")
set(BERTH_BUILD_FUZZERS ON CACHE BOOL "")
set(BERTH_WITH_TORCH OFF CACHE STRING "")
set(BERTH_BUILD_BENCH OFF CACHE BOOL "")
