# Where HiGHS is, the solver behind the engine `ilp`. Only its header is compiled in: the library is loaded at the first
# integer program, so that nothing of berth asks for it otherwise. Searched, first one wins:
#
#   BERTH_HIGHS_ROOT             a prefix with include/highs and lib/libhighs.so
#   CMAKE_PREFIX_PATH, system    the same
#   VIRTUAL_ENV, CONDA_PREFIX    the Python package highsbox
#   .venv                        beside the top-level CMakeLists.txt, where cmake/setup puts that package
#
# Sets BERTH_HIGHS_INCLUDE and BERTH_HIGHS_LIBRARY; where one of them is false the engine says what is missing.
set(BERTH_WITH_HIGHS AUTO CACHE STRING "The engine ilp: AUTO where HiGHS is found, ON to insist on it, OFF")
set_property(CACHE BERTH_WITH_HIGHS PROPERTY STRINGS AUTO ON OFF)

if(BERTH_WITH_HIGHS)
  set(_berth_highs_prefixes "")
  foreach(folder IN ITEMS "$ENV{VIRTUAL_ENV}" "$ENV{CONDA_PREFIX}" "${PROJECT_SOURCE_DIR}/.venv")
    if(folder)
      file(GLOB _berth_highs_found LIST_DIRECTORIES ON "${folder}/lib/python3*/site-packages/highsbox/highs_dist")
      list(APPEND _berth_highs_prefixes "${folder}" ${_berth_highs_found})
    endif()
  endforeach()
  find_path(BERTH_HIGHS_INCLUDE interfaces/highs_c_api.h
    HINTS "${BERTH_HIGHS_ROOT}" "$ENV{BERTH_HIGHS_ROOT}" PATHS ${_berth_highs_prefixes} PATH_SUFFIXES include/highs highs)
  find_library(BERTH_HIGHS_LIBRARY highs
    HINTS "${BERTH_HIGHS_ROOT}" "$ENV{BERTH_HIGHS_ROOT}" PATHS ${_berth_highs_prefixes} PATH_SUFFIXES lib lib64)
  mark_as_advanced(BERTH_HIGHS_INCLUDE BERTH_HIGHS_LIBRARY)
  if(NOT BERTH_WITH_HIGHS STREQUAL "AUTO" AND NOT (BERTH_HIGHS_INCLUDE AND BERTH_HIGHS_LIBRARY))
    message(FATAL_ERROR "BERTH_WITH_HIGHS is ${BERTH_WITH_HIGHS}, and HiGHS is not found: run cmake/setup, which installs "
                        "it, or name its prefix by -DBERTH_HIGHS_ROOT")
  endif()
endif()

# berth_use_highs(TARGET FILE): compiles one source of a target with HiGHS where it is found.
function(berth_use_highs target file)
  if(BERTH_WITH_HIGHS AND BERTH_HIGHS_INCLUDE AND BERTH_HIGHS_LIBRARY)
    target_include_directories(${target} SYSTEM PRIVATE "${BERTH_HIGHS_INCLUDE}")
    set_property(SOURCE "${file}" APPEND PROPERTY COMPILE_DEFINITIONS BERTH_HIGHS_LIBRARY="${BERTH_HIGHS_LIBRARY}")
  endif()
endfunction()
