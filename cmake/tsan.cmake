# cmake -B build/tsan -C cmake/tsan.cmake: thread sanitizer, of the layers that threads
# use: without libtorch, graphs, schedules and the program.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1" CACHE STRING "")
set(BERTH_SANITIZE "thread" CACHE STRING "")
set(BERTH_WITH_TORCH OFF CACHE STRING "")
set(BERTH_BUILD_BENCH OFF CACHE BOOL "")
set(BERTH_UNITY_BUILD ON CACHE BOOL "")
