# Makes the target berth_cuda::headers, CUDA's headers. BerthCudaLocate.cmake says where they are searched. No library of
# CUDA's is linked: csrc/cuda finds the runtime when the program runs, so that what is built here starts anywhere.
#
# Sets BerthCuda_FOUND, BerthCuda_INCLUDE, BerthCuda_VERSION.
include("${CMAKE_CURRENT_LIST_DIR}/BerthCudaLocate.cmake")
berth_locate_cuda()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(BerthCuda
  REQUIRED_VARS BerthCuda_INCLUDE VERSION_VAR BerthCuda_VERSION REASON_FAILURE_MESSAGE "${BerthCuda_REASON}")

if(BerthCuda_FOUND AND NOT TARGET berth_cuda::headers)
  add_library(berth_cuda::headers INTERFACE IMPORTED GLOBAL)
  set_target_properties(berth_cuda::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${BerthCuda_INCLUDE}")
endif()
