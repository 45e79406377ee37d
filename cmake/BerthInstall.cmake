# What `cmake --install` puts where, and the package that find_package(berth) finds there.
#
# Targets that link libtorch (named berth_torch...) are exported apart from the others, so that a program that uses only
# the planner or the runtime asks for no libtorch; and those that link its CUDA part apart from these.
include(CMakePackageConfigHelpers)

set(berth_package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/berth")
get_property(berth_installed_layers GLOBAL PROPERTY BERTH_LAYERS)
list(REMOVE_ITEM berth_installed_layers berth_replay berth_cli)  # the program's own
set(berth_torch_layers "${berth_installed_layers}")
list(FILTER berth_torch_layers INCLUDE REGEX "^berth_torch")
set(berth_torch_cuda_layers "${berth_torch_layers}")
list(FILTER berth_torch_cuda_layers INCLUDE REGEX "^berth_torch_cuda")
list(FILTER berth_torch_layers EXCLUDE REGEX "^berth_torch_cuda")
list(FILTER berth_installed_layers EXCLUDE REGEX "^berth_torch")

# berth_install_layers(EXPORT_SET TARGET...)
function(berth_install_layers export_set)
  foreach(target IN LISTS ARGN)
    get_target_property(header_sets ${target} INTERFACE_HEADER_SETS)
    set(headers "")
    if(header_sets)
      set(headers FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
    endif()
    install(TARGETS ${target} EXPORT ${export_set}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" OBJECTS DESTINATION "${CMAKE_INSTALL_LIBDIR}/berth" ${headers})
  endforeach()
  install(EXPORT ${export_set} NAMESPACE berth:: DESTINATION "${berth_package_folder}")
endfunction()

berth_install_layers(berthTargets ${berth_installed_layers} berth_shared)
if(berth_torch_layers)
  berth_install_layers(berthTorchTargets ${berth_torch_layers})
  if(berth_torch_cuda_layers)
    berth_install_layers(berthTorchCudaTargets ${berth_torch_cuda_layers})
  elseif(NOT TARGET berth::cuda)
    set(BERTH_NO_TORCH_CUDA "this berth was built without CUDA: ${BerthCuda_REASON}")
  else()
    set(BERTH_NO_TORCH_CUDA "this berth was built with a libtorch without CUDA, ${BerthTorch_ROOT}")
  endif()
  install(FILES "${CMAKE_CURRENT_LIST_DIR}/FindBerthTorch.cmake" "${CMAKE_CURRENT_LIST_DIR}/BerthTorchLocate.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/BerthTorchStubs.cmake" DESTINATION "${berth_package_folder}")
endif()
# What programs load by LD_PRELOAD: libtorch's allocators, which find libtorch by the program.
foreach(library IN ITEMS berth_torch_cpu_allocator berth_torch_cpu_preload berth_torch_cuda_allocator berth_torch_cuda_preload)
  if(TARGET ${library})
    install(TARGETS ${library} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
# The stand-in runtime, for `berth dry-run`.
get_property(berth_standin GLOBAL PROPERTY BERTH_STANDIN_TARGETS)
if(berth_standin)
  install(TARGETS ${berth_standin} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/berth/standin/lib")
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/csrc/standin/berth-standin" DESTINATION "${CMAKE_INSTALL_LIBDIR}/berth/standin")
endif()
if(TARGET berth)
  install(TARGETS berth RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
if(TARGET berth_device_report)  # which `berth doctor --device` starts
  install(TARGETS berth_device_report RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

# What the C++ compiler links by itself and the C compiler does not.
set(BERTH_CXX_LIBRARIES ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(REMOVE_ITEM BERTH_CXX_LIBRARIES ${CMAKE_C_IMPLICIT_LINK_LIBRARIES})
list(TRANSFORM BERTH_CXX_LIBRARIES PREPEND "-l" REGEX "^[^/-]")  # a name alone may be a target of the user's: m
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/berthConfig.cmake.in" "${PROJECT_BINARY_DIR}/berthConfig.cmake"
  INSTALL_DESTINATION "${berth_package_folder}")
# Before 1.0 every minor version may break its users.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/berthConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/berthConfig.cmake" "${PROJECT_BINARY_DIR}/berthConfigVersion.cmake"
  DESTINATION "${berth_package_folder}")

# libberth.so for those who build without CMake.
file(RELATIVE_PATH berth_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${CMAKE_CURRENT_LIST_DIR}/berth.pc.in" "${PROJECT_BINARY_DIR}/berth.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/berth.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
