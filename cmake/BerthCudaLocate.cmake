# Finds a folder of CUDA's headers, for FindBerthCuda.cmake and for cmake/setup. No library is searched: the runtime is
# found when a program runs. Searched, first one of CUDA 13 wins:
#
#   CUDAToolkit_ROOT, CUDA_HOME, CUDA_PATH   a toolkit, each a CMake variable or an environment variable
#   /usr/local/cuda
#   beside libtorch                          the headers in NVIDIA's Python packages
#   nvcc                                     the toolkit of the one in PATH
#   .venv/cuda                               beside the top-level CMakeLists.txt, where cmake/setup puts them
#
# As a script, `cmake [-DBerthTorch_ROOT=...] -P cmake/BerthCudaLocate.cmake` prints "INCLUDE_FOLDER VERSION" on standard
# error, or "none REASON".

# CUDA 13 is what the calls are declared by, and what the stand-in that tests them speaks.
set(BERTH_CUDA_MAJOR 13)

# Sets BerthCuda_INCLUDE and BerthCuda_VERSION, or an empty folder and BerthCuda_REASON.
function(berth_locate_cuda)
  set(include "")
  set(version "")
  set(others "")
  find_program(nvcc nvcc NO_CACHE NO_CMAKE_PATH NO_CMAKE_SYSTEM_PATH)
  set(toolkit "")
  if(nvcc)
    get_filename_component(nvcc "${nvcc}" REALPATH)
    get_filename_component(toolkit "${nvcc}/../.." ABSOLUTE)
  endif()
  foreach(folder IN ITEMS "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" "${CUDA_HOME}" "$ENV{CUDA_HOME}" "${CUDA_PATH}"
      "$ENV{CUDA_PATH}" "/usr/local/cuda" "${BerthTorch_ROOT}/../nvidia/cu${BERTH_CUDA_MAJOR}" "${toolkit}"
      "${CMAKE_SOURCE_DIR}/.venv/cuda")
    # crt comes in a package of its own.
    if(NOT folder OR NOT EXISTS "${folder}/include/cuda_runtime_api.h" OR NOT EXISTS "${folder}/include/crt/host_defines.h")
      continue()
    endif()
    file(STRINGS "${folder}/include/cuda_runtime_api.h" line REGEX "^#define CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" number "${line}")  # 13020 is 13.2
    math(EXPR major "0${number} / 1000")
    math(EXPR minor "0${number} % 1000 / 10")
    if(major EQUAL BERTH_CUDA_MAJOR)
      get_filename_component(include "${folder}/include" REALPATH)
      set(version "${major}.${minor}")
      break()
    endif()
    string(APPEND others " (${folder} has ${major}.${minor})")
  endforeach()
  set(BerthCuda_REASON "")
  if(NOT include)
    set(BerthCuda_REASON "no headers of CUDA ${BERTH_CUDA_MAJOR} found${others}: run cmake/setup, or name a toolkit by CUDAToolkit_ROOT")
  endif()
  set(BerthCuda_INCLUDE "${include}" PARENT_SCOPE)
  set(BerthCuda_VERSION "${version}" PARENT_SCOPE)
  set(BerthCuda_REASON "${BerthCuda_REASON}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  berth_locate_cuda()
  if(BerthCuda_INCLUDE)
    message("${BerthCuda_INCLUDE} ${BerthCuda_VERSION}")
  else()
    message("none ${BerthCuda_REASON}")
  endif()
endif()
