# cmake -B build/release -C cmake/release.cmake
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
set(BERTH_WITH_TORCH ON CACHE STRING "")  # not AUTO: a release without it would surprise
set(BERTH_UNITY_BUILD ON CACHE BOOL "")
