// nvrtc: programs compile to PTX that says nothing and holds every kernel that it is asked for
// (module.h).

#include "csrc/standin/control.h"

#include <cctype>
#include <cstring>
#include <map>
#include <string>

namespace berth::standin {
namespace {

constexpr int kInvalidInput = 3;             // NVRTC_ERROR_INVALID_INPUT
constexpr int kNameExpressionNotValid = 10;  // NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID

struct Program {
  std::map<std::string, std::string> names;  // expression, name in the module
  bool compiled = false;
};

constexpr char kPtx[] = "// compiled to nothing by berth's stand-in\n.version 9.0\n";

int copy(Program* program, char* to) {
  if (program == nullptr || to == nullptr || !program->compiled) return kInvalidInput;
  std::memcpy(to, kPtx, sizeof kPtx);
  return 0;
}

int size_of(Program* program, std::size_t* size) {
  if (program == nullptr || size == nullptr || !program->compiled) return kInvalidInput;
  *size = sizeof kPtx;
  return 0;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

int nvrtcCreateProgram(Program** program, const char* source, const char* /*name*/, int /*headers*/,
                       const char* const* /*contents*/, const char* const* /*include_names*/) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (program == nullptr || source == nullptr) return kInvalidInput;
  *program = new Program;
  return 0;
}

int nvrtcDestroyProgram(Program** program) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (program == nullptr) return kInvalidInput;
  delete *program;
  *program = nullptr;
  return 0;
}

int nvrtcAddNameExpression(Program* program, const char* expression) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  // As a compiler would mangle it: a name of letters.
  std::string name = "_Z";
  for (const char* at = expression; *at != '\0'; ++at)
    name += std::isalnum(static_cast<unsigned char>(*at)) != 0 ? *at : '_';
  program->names.emplace(expression, name);
  return 0;
}

int nvrtcCompileProgram(Program* program, int /*count*/, const char* const* /*options*/) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  if (program == nullptr) return kInvalidInput;
  program->compiled = true;
  return 0;
}

int nvrtcGetLoweredName(Program* program, const char* expression, const char** name) {
  if (const int status = berth_standin_enter(__func__); status != 0) return status;
  const auto found = program->names.find(expression);
  if (found == program->names.end()) return kNameExpressionNotValid;
  *name = found->second.c_str();
  return 0;
}

int nvrtcGetPTXSize(Program* program, std::size_t* size) { return size_of(program, size); }
int nvrtcGetPTX(Program* program, char* ptx) { return copy(program, ptx); }
int nvrtcGetCUBINSize(Program* program, std::size_t* size) { return size_of(program, size); }
int nvrtcGetCUBIN(Program* program, char* cubin) { return copy(program, cubin); }

int nvrtcGetProgramLogSize(Program* /*program*/, std::size_t* size) {
  *size = 1;
  return 0;
}

int nvrtcGetProgramLog(Program* /*program*/, char* log) {
  *log = '\0';
  return 0;
}

}  // extern "C"
}  // namespace berth::standin
