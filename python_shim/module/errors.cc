#include "python_shim/module/errors.h"

#include <berth/error.h>

#include <nanobind/nanobind.h>

#include <exception>

namespace berth::python {
namespace {

namespace nb = nanobind;

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "UsageError";
    case ErrorKind::kInput:
      return "InputError";
    case ErrorKind::kOutOfMemory:
      return "OutOfMemoryError";
    case ErrorKind::kSystem:
      break;
  }
  return "SystemFailure";
}

}  // namespace

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const nb::object kind = nb::module_::import_("berth._errors").attr(name_of(error.kind()));
      PyErr_SetString(kind.ptr(), error.what());
    }
  });
}

}  // namespace berth::python
