# Makes the C++ header of a FlatBuffers schema again and compares it with the committed one.
#
#   cmake -D FLATC=flatc -D SCHEMA=plans/x.fbs -D HEADER=csrc/x/generated/x_generated.h -P check_generated.cmake
#
# Other versions of flatc write other code: they print SKIPPED, which the test takes for a skip.
set(expected_version "2.0.8")
execute_process(COMMAND "${FLATC}" --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT version MATCHES " ${expected_version}$")
  message("SKIPPED: the committed header is of flatc ${expected_version}, this is '${version}'")
  return()
endif()
get_filename_component(name "${HEADER}" NAME)
set(folder "${CMAKE_CURRENT_BINARY_DIR}/generated/${name}.again")
file(MAKE_DIRECTORY "${folder}")
execute_process(COMMAND "${FLATC}" --cpp --scoped-enums -o "${folder}" "${SCHEMA}" RESULT_VARIABLE result)
if(result)
  message(FATAL_ERROR "flatc refuses ${SCHEMA}")
endif()
execute_process(COMMAND "${CMAKE_COMMAND}" -E compare_files "${folder}/${name}" "${HEADER}" RESULT_VARIABLE differs)
if(differs)
  message(FATAL_ERROR "${HEADER} is not what flatc makes of ${SCHEMA}: run flatc --cpp --scoped-enums again")
endif()
