# Finds libtorch in a PyTorch wheel or a libtorch archive, and makes the imported target berth_libtorch::torch_cpu of it.
# The wheel's own TorchConfig.cmake is not used: for a CUDA build of PyTorch it insists on a CUDA toolkit.
#
# Searched, first one wins:
#   BERTH_TORCH_ROOT       the folder that holds include/torch and lib/libtorch_cpu.so
#   Torch_DIR              (variable or environment) as find_package(Torch) takes it: ROOT/share/cmake/Torch
#   CMAKE_PREFIX_PATH      (variable or environment) each entry as ROOT, as ROOT/share/cmake, or as a Python prefix
#   BERTH_PYTHON           (variable or environment) an interpreter: the torch it would import
#   VIRTUAL_ENV, CONDA_PREFIX
#   .venv                  beside the top-level CMakeLists.txt, where cmake/setup puts it
#
# Sets BerthTorch_FOUND, BerthTorch_ROOT, BerthTorch_VERSION. Executables get a run path to libtorch and, where NVIDIA's
# libraries are absent, to the stubs that let a CUDA wheel be loaded without them.

include("${CMAKE_CURRENT_LIST_DIR}/BerthTorchStubs.cmake")

function(_berth_torch_is_root folder variable)
  if(EXISTS "${folder}/include/torch/csrc/api/include/torch/torch.h" AND EXISTS "${folder}/lib/libtorch_cpu.so")
    get_filename_component(folder "${folder}" REALPATH)
    set(${variable} "${folder}" PARENT_SCOPE)
  endif()
endfunction()

# The first root among folders, taken as roots themselves and as Python prefixes.
function(_berth_torch_search folders variable)
  foreach(folder IN LISTS folders)
    if(NOT folder)
      continue()
    endif()
    file(GLOB packages LIST_DIRECTORIES ON "${folder}/lib/python3*/site-packages/torch" "${folder}/lib64/python3*/site-packages/torch")
    foreach(candidate IN ITEMS "${folder}" ${packages} "${folder}/../.." "${folder}/../../..")
      set(found "")
      _berth_torch_is_root("${candidate}" found)
      if(found)
        set(${variable} "${found}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()

function(_berth_torch_find_root variable)
  set(root "")
  set(prefix_path "$ENV{CMAKE_PREFIX_PATH}")
  string(REPLACE ":" ";" prefix_path "${prefix_path}")
  set(prefix_path ${CMAKE_PREFIX_PATH} ${prefix_path})
  foreach(name IN ITEMS BERTH_TORCH_ROOT Torch_DIR)
    foreach(value IN ITEMS "${${name}}" "$ENV{${name}}")
      if(value AND NOT value MATCHES "-NOTFOUND$" AND NOT root)
        _berth_torch_search("${value}" root)
        if(NOT root)
          set(BerthTorch_REASON "${name} is '${value}', which holds no include/torch and lib/libtorch_cpu.so" PARENT_SCOPE)
          return()
        endif()
      endif()
    endforeach()
  endforeach()
  if(NOT root)
    _berth_torch_search("${prefix_path}" root)
  endif()
  set(python "${BERTH_PYTHON}")
  if(NOT python)
    set(python "$ENV{BERTH_PYTHON}")
  endif()
  if(NOT root AND python)
    execute_process(
      COMMAND "${python}" -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE package RESULT_VARIABLE status ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0 OR NOT package)
      set(BerthTorch_REASON "BERTH_PYTHON is '${python}', which has no torch ${error}" PARENT_SCOPE)
      return()
    endif()
    _berth_torch_search("${package}" root)
  endif()
  if(NOT root)
    _berth_torch_search("$ENV{VIRTUAL_ENV};$ENV{CONDA_PREFIX};${CMAKE_SOURCE_DIR}/.venv" root)
  endif()
  set(${variable} "${root}" PARENT_SCOPE)
endfunction()

# The version, or why this libtorch is refused.
function(_berth_torch_read_version root)
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/include/${header}")
      file(STRINGS "${root}/include/${header}" lines REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
      string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" version "${lines}")
      if(version MATCHES "^[0-9]+\\.[0-9]+\\.[0-9]+$")
        break()
      endif()
    endif()
    set(version "")
  endforeach()
  set(hip "")
  if(EXISTS "${root}/version.py")
    file(STRINGS "${root}/version.py" hip REGEX "^hip.*= *'")
  endif()
  if(hip OR EXISTS "${root}/lib/libtorch_hip.so")
    set(reason "the libtorch in ${root} is a ROCm build: berth supports the CPU and CUDA builds of PyTorch")
  elseif(NOT version)
    set(reason "the libtorch in ${root} states no version: its headers lack torch/headeronly/version.h")
  elseif(version VERSION_LESS 2.11)
    set(reason "the libtorch in ${root} is ${version}: berth supports 2.11 and newer")
  elseif(version VERSION_GREATER_EQUAL 2.16)
    message(WARNING "libtorch ${version} in ${root} is newer than what berth was tested with: 2.11 to 2.15")
  endif()
  set(BerthTorch_VERSION "${version}" PARENT_SCOPE)
  set(BerthTorch_REASON "${reason}" PARENT_SCOPE)
endfunction()

if(NOT TARGET berth_libtorch::torch_cpu)
  set(BerthTorch_REASON "")
  set(BerthTorch_ROOT "")
  _berth_torch_find_root(BerthTorch_ROOT)
  if(BerthTorch_ROOT)
    _berth_torch_read_version("${BerthTorch_ROOT}")
  elseif(NOT BerthTorch_REASON)
    set(BerthTorch_REASON "no libtorch found: run cmake/setup, or name one by Torch_DIR, CMAKE_PREFIX_PATH or BERTH_PYTHON")
  endif()
  if(BerthTorch_REASON)
    set(BerthTorch_ROOT "")
  endif()
  # Where consumers reconfigure, targets are made anew but these are read again.
  set_property(GLOBAL PROPERTY BERTH_TORCH_ROOT "${BerthTorch_ROOT}")
  set_property(GLOBAL PROPERTY BERTH_TORCH_VERSION "${BerthTorch_VERSION}")
else()
  get_property(BerthTorch_ROOT GLOBAL PROPERTY BERTH_TORCH_ROOT)
  get_property(BerthTorch_VERSION GLOBAL PROPERTY BERTH_TORCH_VERSION)
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
endif()
