#include <berth/warnings.h>

#include <cstdio>
#include <memory>
#include <mutex>

namespace berth {
namespace {

struct SinkHolder {
  std::mutex mutex;
  std::shared_ptr<const WarningSink> sink;
};

// Never destroyed: warnings may come from static destructors.
SinkHolder& holder() {
  static SinkHolder* const instance = new SinkHolder;
  return *instance;
}

// False where the user has set none. A warning must never become a failure: what the sink throws is
// dropped.
bool give_to_sink(std::string_view name, const std::string& text) noexcept {
  std::shared_ptr<const WarningSink> sink;
  {
    const std::lock_guard lock(holder().mutex);
    sink = holder().sink;
  }
  if (!sink) return false;
  try {
    (*sink)(name, text);
  } catch (...) {
  }
  return true;
}

}  // namespace

void set_warning_sink(WarningSink sink) {
  auto replacement = sink ? std::make_shared<const WarningSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(holder().mutex);
  holder().sink = std::move(replacement);
}

void warn(std::string_view name, const std::string& text) noexcept {
  if (give_to_sink(name, text)) return;
  std::fprintf(stderr, "berth: warning: %s [%.*s]\n", text.c_str(), static_cast<int>(name.size()),
               name.data());
}

void report(std::string_view name, const std::string& text) noexcept {
  if (give_to_sink(name, text)) return;
  std::fprintf(stderr, "berth: %s\n", text.c_str());
}

}  // namespace berth
