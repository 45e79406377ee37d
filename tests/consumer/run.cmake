# Installs a build of berth into a temporary prefix, then configures, builds and runs one small project against it, as a
# user would: cmake -DBUILD=... -DPROJECT=planner|trainer|trainer_cuda -DSCRATCH=... [-DWITHOUT_TORCH=ON]
# [-DBEFORE=a launcher of the program] -P run.cmake
file(REMOVE_RECURSE "${SCRATCH}")
set(torch "")
if(WITHOUT_TORCH)
  set(torch "-DBERTH_TORCH_BUILT_WITH=")
endif()
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}):\n${output}")
  endif()
endfunction()
run("installing" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix")
# The stubs of NVIDIA's libraries are used even where the real ones are installed, so that they are tested everywhere.
# No libtorch is named: it is the one that the installed berth was built with, or none.
run("configuring" "${CMAKE_COMMAND}" -E env --unset=VIRTUAL_ENV --unset=CONDA_PREFIX --unset=Torch_DIR --unset=BERTH_PYTHON
  "${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}/${PROJECT}" -B "${SCRATCH}/build"
  -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_PREFIX_PATH=${SCRATCH}/prefix" ${torch} -DBERTH_TORCH_STUBS=ALWAYS
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run("building" "${CMAKE_COMMAND}" --build "${SCRATCH}/build" -j2)
run("running" ${BEFORE} "${SCRATCH}/build/${PROJECT}")
file(REMOVE_RECURSE "${SCRATCH}")
