# The package `berth` for Python, in build/python/berth: what lies in python_shim/berth, the module berth._core, the adapters of torch and
# the program. `pip install ./python_shim` builds the same, see python_shim/CMakeLists.txt.
set(berth_python_reason "")
if(NOT BERTH_WITH_TORCH)
  set(berth_python_reason "it is built where libtorch is found")
elseif(NOT Python_EXECUTABLE)
  find_program(Python_EXECUTABLE NAMES python3 PATHS "${BerthTorch_ROOT}/../../../../bin" NO_DEFAULT_PATH)
  if(NOT Python_EXECUTABLE)
    set(berth_python_reason "the libtorch in ${BerthTorch_ROOT} lies in no environment of Python's")
  endif()
endif()
if(NOT berth_python_reason)
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
  if(NOT Python_Development.Module_FOUND)
    set(berth_python_reason "${Python_EXECUTABLE} has no headers: install python3-dev")
  else()
    execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
      OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      set(berth_python_reason "${Python_EXECUTABLE} has no nanobind: run cmake/setup")
    endif()
  endif()
endif()
if(berth_python_reason)
  if(BERTH_BUILD_PYTHON STREQUAL "AUTO")
    message(STATUS "berth: no package for Python: ${berth_python_reason}")
    return()
  endif()
  message(FATAL_ERROR "berth: no package for Python: ${berth_python_reason}")
endif()
find_package(nanobind CONFIG REQUIRED)

set(berth_shim "${PROJECT_SOURCE_DIR}/python_shim")
nanobind_add_module(berth_python_module NOMINSIZE
  "${berth_shim}/module/core.cc" "${berth_shim}/module/errors.cc" "${berth_shim}/module/place_module.cc"
  "${berth_shim}/module/order_module.cc" "${berth_shim}/module/plan_module.cc" "${berth_shim}/module/schedule_module.cc" "${berth_shim}/module/search.cc" "${berth_shim}/module/step.cc"
  "${berth_shim}/module/trace_module.cc")
berth_configure_target(berth_python_module)
set_target_properties(berth_python_module PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/python/module")
target_include_directories(berth_python_module SYSTEM PRIVATE "${NB_DIR}/include")  # whose names shadow each other
target_link_libraries(berth_python_module PRIVATE berth_headers berth::cli berth::schedule berth::graph berth::place berth::plan berth::trace berth::core)
berth_use_papers(berth_python_module)

# What the package was built with, which it compares with what is imported.
set(BERTH_PYTHON_CUDA False)
set(berth_adapters berth_torch_cpu_allocator berth_torch_cpu_preload)
if(TARGET berth_torch_cuda_allocator)
  set(BERTH_PYTHON_CUDA True)
  list(APPEND berth_adapters berth_torch_cuda_allocator berth_torch_cuda_preload)
endif()
configure_file("${berth_shim}/_build.py.in" "${PROJECT_BINARY_DIR}/python/module/_build.py" @ONLY)

# The stand-in runtime, for `python -m berth dry-run`.
get_property(berth_standin GLOBAL PROPERTY BERTH_STANDIN_TARGETS)
set(berth_standin_files "")
set(berth_copy_standin "")
if(berth_standin)
  foreach(library IN LISTS berth_standin)
    list(APPEND berth_standin_files "$<TARGET_FILE:${library}>")
  endforeach()
  set(berth_copy_standin
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/python/berth/standin/lib"
    COMMAND "${CMAKE_COMMAND}" -E copy ${berth_standin_files} "${PROJECT_BINARY_DIR}/python/berth/standin/lib"
    COMMAND "${CMAKE_COMMAND}" -E copy "${PROJECT_SOURCE_DIR}/csrc/standin/berth-standin" "${PROJECT_BINARY_DIR}/python/berth/standin")
endif()

# What `python -m berth doctor --device` starts.
set(berth_device_report "")
set(berth_device_report_file "")
if(TARGET berth_device_report)
  set(berth_device_report berth_device_report)
  set(berth_device_report_file "$<TARGET_FILE:berth_device_report>")
endif()

# The package as it is imported, made of copies.
set(package "${PROJECT_BINARY_DIR}/python/berth")
file(GLOB berth_python_files CONFIGURE_DEPENDS "${berth_shim}/berth/*.py" "${berth_shim}/berth/py.typed")
set(berth_start "${berth_shim}/berth/start/sitecustomize.py")
set(berth_adapter_files "")
foreach(adapter IN LISTS berth_adapters)
  list(APPEND berth_adapter_files "$<TARGET_FILE:${adapter}>")
endforeach()
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/python/package.stamp"
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${package}"
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${package}/bin"
  COMMAND "${CMAKE_COMMAND}" -E copy ${berth_python_files} "${PROJECT_BINARY_DIR}/python/module/_build.py"
          "$<TARGET_FILE:berth_python_module>" ${berth_adapter_files} "${package}"
  COMMAND "${CMAKE_COMMAND}" -E copy "$<TARGET_FILE:berth>" ${berth_device_report_file} "${package}/bin"
  COMMAND "${CMAKE_COMMAND}" -E make_directory "${package}/start"
  COMMAND "${CMAKE_COMMAND}" -E copy "${berth_start}" "${package}/start"
  ${berth_copy_standin}
  COMMAND "${Python_EXECUTABLE}" -m nanobind.stubgen -q -i "${PROJECT_BINARY_DIR}/python" -m berth._core -o "${package}/_core.pyi"
  COMMAND "${CMAKE_COMMAND}" -E touch "${PROJECT_BINARY_DIR}/python/package.stamp"
  DEPENDS ${berth_python_files} "${berth_start}" "${PROJECT_BINARY_DIR}/python/module/_build.py" berth_python_module ${berth_adapters} ${berth_standin} berth ${berth_device_report}
  VERBATIM)
add_custom_target(berth_package ALL DEPENDS "${PROJECT_BINARY_DIR}/python/package.stamp")

# Of a wheel: its folder `berth`, which scikit-build-core fills with python_shim/berth.
install(TARGETS berth_python_module ${berth_adapters} LIBRARY DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS berth ${berth_device_report} RUNTIME DESTINATION bin COMPONENT python EXCLUDE_FROM_ALL)
if(berth_standin)
  install(TARGETS ${berth_standin} LIBRARY DESTINATION standin/lib COMPONENT python EXCLUDE_FROM_ALL)
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/csrc/standin/berth-standin" DESTINATION standin COMPONENT python EXCLUDE_FROM_ALL)
endif()
install(FILES "${PROJECT_BINARY_DIR}/python/module/_build.py" "${package}/_core.pyi" DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
