# cmake -B build/asan -C cmake/asan.cmake: address and undefined-behaviour sanitizers, without libtorch.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1" CACHE STRING "")
set(BERTH_SANITIZE "address,undefined" CACHE STRING "")
set(BERTH_WITH_TORCH OFF CACHE STRING "")
set(BERTH_BUILD_BENCH OFF CACHE BOOL "")
set(BERTH_UNITY_BUILD ON CACHE BOOL "")
