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

}  // namespace

void set_warning_sink(WarningSink sink) {
  auto replacement = sink ? std::make_shared<const WarningSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(holder().mutex);
  holder().sink = std::move(replacement);
}

void warn(std::string_view name, const std::string& text) noexcept {
  try {
    std::shared_ptr<const WarningSink> sink;
    {
      const std::lock_guard lock(holder().mutex);
      sink = holder().sink;
    }
    if (sink) {
      (*sink)(name, text);
    } else {
      std::fprintf(stderr, "berth: warning: %s [%.*s]\n", text.c_str(),
                   static_cast<int>(name.size()), name.data());
    }
  } catch (...) {
    // A warning must never become a failure.
  }
}

}  // namespace berth
