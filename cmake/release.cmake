# cmake -B build/release -C cmake/release.cmake
set(CMAKE_BUILD_TYPE Release CACHE STRING "")
