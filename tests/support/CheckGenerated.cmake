# berth_check_generated(NAME SCHEMA HEADER): a test that the committed header is what flatc makes of the schema. None where
# there is no flatc. Paths are relative to the project.
function(berth_check_generated name schema header)
  find_program(BERTH_FLATC flatc)
  mark_as_advanced(BERTH_FLATC)
  if(NOT BERTH_FLATC)
    return()
  endif()
  add_test(NAME "${name}: the committed header is what flatc makes of the schema"
    COMMAND "${CMAKE_COMMAND}" -D "FLATC=${BERTH_FLATC}" -D "SCHEMA=${PROJECT_SOURCE_DIR}/${schema}"
      -D "HEADER=${PROJECT_SOURCE_DIR}/${header}" -P "${PROJECT_SOURCE_DIR}/tests/support/check_generated.cmake")
  set_tests_properties("${name}: the committed header is what flatc makes of the schema" PROPERTIES
    SKIP_REGULAR_EXPRESSION "SKIPPED")
endfunction()
