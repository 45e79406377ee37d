# cmake -B build/tsan -C cmake/tsan.cmake: thread sanitizer, without libtorch.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g" CACHE STRING "")
set(BERTH_SANITIZE "thread" CACHE STRING "")
set(BERTH_WITH_TORCH OFF CACHE STRING "")
set(BERTH_BUILD_BENCH OFF CACHE BOOL "")
