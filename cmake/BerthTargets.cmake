# How every target of berth is made: one function for a layer, one for its tests.

# As a flag: a name alone may be a target of a project that links an installed berth.
set(BERTH_DL_LIBS ${CMAKE_DL_LIBS})
list(TRANSFORM BERTH_DL_LIBS PREPEND "-l" REGEX "^[^/-]")

# Warnings, sanitizers and the include root, private to berth's own targets.
function(berth_configure_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wnon-virtual-dtor -Wimplicit-fallthrough)
  # Of files that are compiled together: names of one hide those of another, and what is in an anonymous namespace is not in the main file.
  target_compile_options(${target} PRIVATE
    $<IF:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>,-Wshadow=local;$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>,-Wshadow>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)  # GCC bug 105651: false for std::string's operators
  endif()
  if(BERTH_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(BERTH_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${BERTH_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${BERTH_SANITIZE})
  endif()
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
endfunction()

# Headers take half of the time of compiling a file. Layers are compiled several files at a time (CMAKE_UNITY_BUILD), so their files do
# not repeat names of anonymous namespaces; where a target says nothing, each file is compiled alone.
#
# berth_precompile(TARGET HEADER ...): headers that most of its sources include are compiled once, where sources are several. For tests and
# benchmarks: of optimized code that inlines precompiled headers GCC 12 gives warnings that are false. Sources include what they use
# all the same. ccache keeps such objects with CCACHE_SLOPPINESS=pch_defines,time_macros.
function(berth_precompile target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(count GREATER 2)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    berth_keep_precompiled(${target})
  endif()
endfunction()

# berth_keep_precompiled(TARGET): ccache keeps what is compiled with precompiled headers.
function(berth_keep_precompiled target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()

# berth_configure_slow_code(TARGET): code whose speed is of no matter. It is compiled in less time: two thirds, under sanitizers half.
# Checks of undefined behaviour are as much again, so where only the kernel is built it alone has them.
function(berth_configure_slow_code target)
  if(BERTH_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
    if(BERTH_KERNEL_ONLY)
      target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
    endif()
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# berth_layer(NAME SOURCES a.cc b.cc [HEADERS <berth/x.h>...] [LINK berth::lower ...] [PRIVATE_LINK ...])
#
# One folder of csrc: the static library berth_NAME, alias berth::NAME. SOURCES are relative to
# csrc/NAME, HEADERS (public ones) to include/.
function(berth_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;LINK;PRIVATE_LINK" ${ARGN})
  set(target berth_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(berth::${name} ALIAS ${target})
  if(ARG_HEADERS)
    list(TRANSFORM ARG_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/")
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${ARG_HEADERS})
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  endif()
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  berth_configure_target(${target})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${BERTH_UNITY_BUILD})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(${target} PUBLIC ${ARG_LINK} PRIVATE $<BUILD_INTERFACE:berth_headers> ${BERTH_FMT} ${ARG_PRIVATE_LINK})
  set_property(GLOBAL APPEND PROPERTY BERTH_LAYERS ${target})
endfunction()

# berth_use_papers(TARGET): it has the planners of papers as engines, where they are built (csrc/schedule/use_papers.h).
function(berth_use_papers target)
  if(TARGET berth_papers)
    target_link_libraries(${target} PRIVATE berth::papers berth::schedule_ilp)
    target_compile_definitions(${target} PRIVATE BERTH_WITH_PAPERS=1)
  endif()
endfunction()

# berth_test(NAME SOURCES a_test.cc ... LINK berth::layer ... [LABELS l] [SKIPPED_WHERE regex])
#
# A Catch2 executable whose test cases are CTest entries; one whose output has the expression counts as skipped.
function(berth_test name)
  cmake_parse_arguments(ARG "" "SKIPPED_WHERE" "SOURCES;LINK;LABELS" ${ARGN})
  set(target berth_${name}_test)
  # No empty values: they are lost on the way, and the next word becomes one.
  set(properties "")
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  if(ARG_SKIPPED_WHERE)
    list(APPEND properties SKIP_REGULAR_EXPRESSION "${ARG_SKIPPED_WHERE}")
  endif()
  add_executable(${target} ${ARG_SOURCES})
  berth_configure_target(${target})
  berth_configure_slow_code(${target})
  target_link_libraries(${target} PRIVATE berth_catch_main berth_headers ${ARG_LINK})
  # libtorch's macros change what the headers mean.
  if("berth::torch" IN_LIST ARG_LINK)
    berth_precompile(${target} ${BERTH_TEST_HEADERS})
  else()
    target_precompile_headers(${target} REUSE_FROM berth_test_headers)
    berth_keep_precompiled(${target})
  endif()
  # In single quotes, or the prefix loses its space on the way.
  catch_discover_tests(${target} TEST_PREFIX "'${name}: '" EXTRA_ARGS --warn NoTests
    PROPERTIES ${properties})
endfunction()
