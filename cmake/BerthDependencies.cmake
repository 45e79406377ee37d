# The header-only libraries that berth is built with, as one target. Found by header, so that a folder of
# headers named in CMAKE_PREFIX_PATH or CMAKE_INCLUDE_PATH does where no packages can be installed. They are compiled
# in: an installed berth asks nothing of its users' machines but threads and, where they were found, zlib and fmt.
add_library(berth_headers INTERFACE)

# fmt's library where there is one: compiling it into every file takes three times as long.
find_package(fmt QUIET)
set(BERTH_FMT "")
if(TARGET fmt::fmt AND NOT BERTH_FMT_HEADER_ONLY)
  set(BERTH_FMT fmt::fmt)
else()
  target_compile_definitions(berth_headers INTERFACE FMT_HEADER_ONLY=1)
endif()
target_link_libraries(berth_headers INTERFACE ${BERTH_FMT})
foreach(header IN ITEMS fmt/format.h flatbuffers/flatbuffers.h xxhash.h nlohmann/json.hpp CLI/CLI.hpp)
  string(MAKE_C_IDENTIFIER "BERTH_INCLUDE_${header}" variable)
  find_path(${variable} ${header})
  mark_as_advanced(${variable})
  if(NOT ${variable})
    message(FATAL_ERROR "berth needs the header <${header}>: run cmake/setup, which installs what is missing, or "
                        "name the folder that has it by CMAKE_PREFIX_PATH")
  endif()
  target_include_directories(berth_headers SYSTEM INTERFACE "${${variable}}")
endforeach()

find_package(Threads REQUIRED)
find_package(ZLIB)  # reading gzip files; without it they are refused by name

include(BerthHighs)  # the solver of integer programs; optional
