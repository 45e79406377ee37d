#include "csrc/torch/adapter.h"

#include "csrc/core/check.h"
#include "csrc/core/setup_mutex.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/settings.h"
#include "csrc/runtime/stats_members.h"
#include "csrc/torch/adapted.h"
#include "csrc/torch/recording/operator_recorder.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/step/step_program_members.h"

#include <berth/berth.h>
#include <berth/torch.h>
#include <berth/warnings.h>

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth::torch {
namespace {

// Runs what returns 0 or 1; an exception becomes its number and a message.
template <class Function>
int answer(char* message, std::size_t size, const Function& function) noexcept {
  int code = BERTH_SYSTEM;
  const char* text = "";
  std::string kept;
  try {
    try {
      return function();
    } catch (const Error& error) {
      switch (error.kind()) {
        case ErrorKind::kUsage:
          code = BERTH_USAGE;
          break;
        case ErrorKind::kInput:
          code = BERTH_INPUT;
          break;
        case ErrorKind::kSystem:
          break;
        case ErrorKind::kOutOfMemory:
          code = BERTH_OUT_OF_MEMORY;
          break;
      }
      kept = error.what();
      text = kept.c_str();
    } catch (const c10::Error& error) {
      kept = error.what_without_backtrace();
      text = kept.c_str();
    } catch (const std::bad_alloc&) {
      code = BERTH_OUT_OF_MEMORY;
      text = "out of host memory";
    } catch (const std::exception& error) {
      kept = error.what();
      text = kept.c_str();
    }
  } catch (...) {  // no memory for the text
    text = "out of host memory";
  }
  if (size > 0) std::snprintf(message, size, "%s", text);
  return code;
}

std::vector<GivenSetting> read_settings(const char* text) {
  std::vector<GivenSetting> given;
  if (text == nullptr) return given;
  while (*text != '\0') {
    std::string name = text;
    text += name.size() + 1;
    given.emplace_back(std::move(name), text);
    text += given.back().second.size() + 1;
  }
  return given;
}

// What this library was installed with, for later calls that ask for something else.
struct Installed {
  Config config;
  bool unasked = false;
};
SetupMutex installing;
const Installed* installed_with = nullptr;  // never destroyed

// The fields in which two differ.
std::string differences(const Config& a, const Config& b) {
  std::string names;
  const auto compare = [&names](bool equal, const char* name) {
    if (!equal) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  compare(a.mode == b.mode, "mode");
  compare(a.trace == b.trace, "trace");
  compare(a.plan == b.plan, "plan");
  compare(a.record == b.record, "record");
  compare(a.check == b.check, "check");
  compare(a.stats == b.stats, "stats");
  compare(a.verbose == b.verbose, "verbose");
  compare(a.tag == b.tag, "tag");
  compare(a.plan_time_limit_seconds == b.plan_time_limit_seconds, "plan_time_limit_seconds");
  compare(a.memory_limit == b.memory_limit, "memory_limit");
  compare(a.memory == b.memory, "memory");
  compare(a.handle == b.handle, "handle");
  return names;
}

// Python that is interrupted (Ctrl-C) ends itself by that signal, which runs no handlers of C's
// exit(); Python's own come before. In other programs there is no such function.
void shut_down_with_python() {
  using AtExit = int (*)(void (*)());
  auto* const at_exit = reinterpret_cast<AtExit>(::dlsym(RTLD_DEFAULT, "Py_AtExit"));
  if (at_exit != nullptr) (void)at_exit([] { adapted().shut_down(); });
}

int install_with(const char* settings, bool unasked) {
  const Config config = config_with(read_settings(settings));
  const std::lock_guard lock(installing);
  if (installed_with == nullptr) {
    if (config.mode == Mode::kOff) return BERTH_NO;
    adapted().install(config);
    installed_with = new Installed{config, unasked};
    shut_down_with_python();
    return BERTH_OK;
  }
  const std::string different = differences(installed_with->config, config);
  if (different.empty()) return BERTH_OK;
  const std::string text = fmt::format(
      "berth is installed on {} already, with other settings ({}), which stay for the "
      "life of the process",
      adapted().name(), different);
  if (!installed_with->unasked) throw Error(ErrorKind::kUsage, text + ": install it once");
  warn("installed-already", text + ": they came from the environment before the program began");
  return BERTH_OK;
}

int install(const char* settings, int unasked, char* message, std::size_t size) {
  return answer(message, size, [&] { return install_with(settings, unasked != 0); });
}

int installed() { return adapted().installed() ? 1 : 0; }

// Values and the memory of their texts; names are literals. `fill` adds them by its arguments
// number(name, value) and text(name, value).
struct Values : berth_values {
  std::vector<berth_value> all;
  std::deque<std::string> texts;
};
template <class Fill>
const berth_values* make_values(const Fill& fill) noexcept {
  try {
    auto made = std::make_unique<Values>();
    fill(
        [&](const char* name, std::uint64_t value) {
          made->all.push_back({name, nullptr, value});
        },
        [&](const char* name, std::string_view value) {
          std::string& text = made->texts.emplace_back(value);
          for (char& letter : text)  // as in JSON
            if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
          made->all.push_back({name, text.c_str(), 0});
        });
    made->values = made->all.data();
    made->count = made->all.size();
    return made.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

const berth_values* stats(int device) {
  return make_values([&](const auto& number, const auto& text) {
    const Stats stats = adapted().installed() ? adapted().stats(device) : Stats{};
    for_each_member(stats, number, text);
    number("misses", stats.misses.size());
    for (const Miss& miss : stats.misses) for_each_member(miss, number, text);
  });
}

void free_values(const berth_values* values) { delete static_cast<const Values*>(values); }

std::size_t stats_json(int device, char* text, std::size_t size) {
  try {
    if (!adapted().installed()) return 0;
    const std::string all = adapted().stats(device).to_json();
    if (size > 0) std::snprintf(text, size, "%s", all.c_str());
    return all.size();
  } catch (const std::exception&) {
    return 0;
  }
}

int load_plan(int device, const char* path, char* message, std::size_t size) {
  return answer(message, size, [&] {
    Plan plan = read_plan(path);
    adapted().allocator(device).load_plan(std::move(plan));
    return BERTH_OK;
  });
}

int save_plan(int device, const char* path, char* message, std::size_t size) {
  return answer(message, size, [&] {
    const std::optional<Plan> plan = adapted().allocator(device).plan();
    if (!plan) return BERTH_NO;
    write_plan(path, *plan);
    return BERTH_OK;
  });
}

int begin_recording(int device, const char* path, int operators, char* message, std::size_t size) {
  return answer(message, size, [&] {
    Allocator& allocator = adapted().allocator(device);
    Recorder& recorder = allocator.begin_recording(path);
    if (operators == 0) return BERTH_OK;
    try {
      record_operators(allocator, recorder, adapted().device(device));
    } catch (...) {
      (void)allocator.end_recording();
      throw;
    }
    return BERTH_OK;
  });
}

int end_recording(int device, char* message, std::size_t size) {
  return answer(message, size, [&] {
    Allocator& allocator = adapted().allocator(device);
    end_operators(allocator);
    return allocator.end_recording() ? BERTH_OK : BERTH_NO;
  });
}

int release(int device, int keep_contents, std::uint64_t* bytes, char* message, std::size_t size) {
  return answer(message, size, [&] {
    *bytes = adapted().release(device, keep_contents != 0);
    return BERTH_OK;
  });
}

int resume(int device, std::uint64_t* bytes, char* message, std::size_t size) {
  return answer(message, size, [&] {
    *bytes = adapted().resume(device);
    return BERTH_OK;
  });
}

void* begin_scope(const char* name) { return new (std::nothrow) Scope(name); }

void end_scope(void* scope) { delete static_cast<Scope*>(scope); }

int make_step_program(const char* engine, const char* schedule, std::uint64_t memory_budget,
                      double memory_share, double time_budget, std::uint64_t copy_rate,
                      std::uint64_t host_memory, int other_bits, int second_thread,
                      double plan_wait_seconds, void** program, char* message, std::size_t size) {
  return answer(message, size, [&] {
    adapted().serve_step_programs();
    *program = new StepProgram({.engine = engine,
                                .memory_budget = memory_budget,
                                .memory_share = memory_share,
                                .time_budget = time_budget,
                                .copy_rate = copy_rate,
                                .host_memory = host_memory,
                                .schedule = schedule,
                                .other_bits = other_bits != 0,
                                .second_thread = second_thread != 0,
                                .plan_wait_seconds = plan_wait_seconds,
                                .other_threads = false});
    return BERTH_OK;
  });
}

void free_step_program(void* program) { delete static_cast<StepProgram*>(program); }

int begin_step(void* program, char* message, std::size_t size) {
  return answer(message, size, [&] {
    static_cast<StepProgram*>(program)->begin();
    return BERTH_OK;
  });
}

int end_step(void* program, int failed, int* takes_over, char* message, std::size_t size) {
  int kind = BERTH_OK;
  const int code = answer(message, size, [&] {
    StepProgram& step = *static_cast<StepProgram*>(program);
    try {
      *takes_over = step.end(failed != 0) ? 1 : 0;
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const c10::OutOfMemoryError&) {
      kind = BERTH_OUT_OF_MEMORY;
      throw;
    } catch (const c10::IndexError&) {
      kind = BERTH_INDEX_ERROR;
      throw;
    } catch (const c10::ValueError&) {
      kind = BERTH_VALUE_ERROR;
      throw;
    } catch (const c10::TypeError&) {
      kind = BERTH_TYPE_ERROR;
      throw;
    } catch (const c10::NotImplementedError&) {
      kind = BERTH_NOT_IMPLEMENTED_ERROR;
      throw;
    } catch (const std::exception&) {
      kind = BERTH_RUNTIME_ERROR;
      throw;
    }
    return BERTH_OK;
  });
  return kind != BERTH_OK ? kind : code;
}

void program_step_ended(int takes_over) {
  if (takes_over != 0) expect_other_steps();
  mark_step_by_program();
}

const berth_values* step_program_stats(void* program) {
  return make_values([&](const auto& number, const auto& text) {
    for_each_member(static_cast<StepProgram*>(program)->stats(), number, text);
  });
}

int save_step_graph(void* program, const char* path, int as_written, char* message,
                    std::size_t size) {
  return answer(message, size, [&] {
    static_cast<StepProgram*>(program)->save_graph(path, as_written != 0);
    return BERTH_OK;
  });
}

int declare_pure(const char* name, char* message, std::size_t size) {
  return answer(message, size, [&] {
    pure(name);
    return BERTH_OK;
  });
}

void note_kernels() { torch::note_kernels(); }

int watch_threads(char* message, std::size_t size) {
  return answer(message, size, [] {
    torch::watch_threads();
    return BERTH_OK;
  });
}

void watch_thread() { torch::watch_thread(); }

int allow_spills(std::uint64_t host_memory, char* message, std::size_t size) {
  return answer(message, size, [&] {
    adapted().serve_step_programs();
    torch::allow_spills(host_memory);
    return BERTH_OK;
  });
}

std::uint64_t known_to_spills(int device) { return torch::known_to_spills(device); }

#define BERTH_DECLARATION(result, name, parameters) #result " " #name #parameters ";"
#define BERTH_POINTER(result, name, parameters) .name = name,
constexpr berth_torch_table kTable = {.version = BERTH_VERSION,
                                      .size = sizeof(berth_torch_table),
                                      .declarations = BERTH_TORCH_FUNCTIONS(BERTH_DECLARATION),
                                      BERTH_TORCH_FUNCTIONS(BERTH_POINTER)};
#undef BERTH_POINTER
#undef BERTH_DECLARATION

}  // namespace
}  // namespace berth::torch

#pragma GCC visibility push(default)
extern "C" const berth_torch_table* berth_torch_adapter(void) { return &berth::torch::kTable; }
#pragma GCC visibility pop
