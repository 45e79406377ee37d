# Makes the imported target berth_libtorch::torch_cpu of the libtorch in a PyTorch wheel or a libtorch archive, and
# berth_libtorch::torch_cuda where that is built for CUDA.
# BerthTorchLocate.cmake says where it is searched. The wheel's own TorchConfig.cmake is not used: for a CUDA build of
# PyTorch it insists on a CUDA toolkit.
#
# Sets BerthTorch_FOUND, BerthTorch_ROOT, BerthTorch_VERSION. Executables get a run path to libtorch and, where NVIDIA's
# libraries are absent, to the stubs that let a CUDA wheel be loaded without them.
include("${CMAKE_CURRENT_LIST_DIR}/BerthTorchLocate.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/BerthTorchStubs.cmake")

if(NOT TARGET berth_libtorch::torch_cpu)
  berth_locate_torch()
  set(BERTH_TORCH_LAST_ROOT "${BerthTorch_ROOT}" CACHE INTERNAL "The libtorch of the last configuration")
  set(BERTH_TORCH_LAST_VERSION "${BerthTorch_VERSION}" CACHE INTERNAL "Its version")
else()
  set(BerthTorch_ROOT "${BERTH_TORCH_LAST_ROOT}")
  set(BerthTorch_VERSION "${BERTH_TORCH_LAST_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(BerthTorch
  REQUIRED_VARS BerthTorch_ROOT VERSION_VAR BerthTorch_VERSION REASON_FAILURE_MESSAGE "${BerthTorch_REASON}")

if(BerthTorch_FOUND AND NOT TARGET berth_libtorch::torch_cpu)
  add_library(berth_libtorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(berth_libtorch::c10 PROPERTIES IMPORTED_LOCATION "${BerthTorch_ROOT}/lib/libc10.so")
  add_library(berth_libtorch::torch_cpu SHARED IMPORTED GLOBAL)
  set_target_properties(berth_libtorch::torch_cpu PROPERTIES IMPORTED_LOCATION "${BerthTorch_ROOT}/lib/libtorch_cpu.so")
  target_include_directories(berth_libtorch::torch_cpu SYSTEM INTERFACE
    "${BerthTorch_ROOT}/include" "${BerthTorch_ROOT}/include/torch/csrc/api/include")
  # RecordFunction has one member more without NDEBUG: a debug build would disagree with the library about its layout.
  target_compile_definitions(berth_libtorch::torch_cpu INTERFACE NDEBUG)
  # libtorch's own dependencies are found by the loader, not by the linker; and its operators register themselves in
  # static constructors, so it must be loaded even by a program that names none of its symbols.
  target_link_options(berth_libtorch::torch_cpu INTERFACE "LINKER:--allow-shlib-undefined" "LINKER:--no-as-needed")
  berth_torch_stubs("${BerthTorch_ROOT}/lib/libtorch_cpu.so" _berth_torch_stub_targets)
  target_link_libraries(berth_libtorch::torch_cpu INTERFACE berth_libtorch::c10 ${_berth_torch_stub_targets})
  # A program that links this wants NVIDIA's libraries when it runs, or the stand-in's launcher.
  if(EXISTS "${BerthTorch_ROOT}/lib/libtorch_cuda.so")
    add_library(berth_libtorch::c10_cuda SHARED IMPORTED GLOBAL)
    set_target_properties(berth_libtorch::c10_cuda PROPERTIES IMPORTED_LOCATION "${BerthTorch_ROOT}/lib/libc10_cuda.so")
    add_library(berth_libtorch::torch_cuda SHARED IMPORTED GLOBAL)
    set_target_properties(berth_libtorch::torch_cuda PROPERTIES IMPORTED_LOCATION "${BerthTorch_ROOT}/lib/libtorch_cuda.so")
    target_link_libraries(berth_libtorch::torch_cuda INTERFACE berth_libtorch::c10_cuda berth_libtorch::torch_cpu)
  endif()
endif()
