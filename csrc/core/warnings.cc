#include <berth/warnings.h>

#include <pthread.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace berth {
namespace {

using Sink = std::shared_ptr<const WarningSink>;

// Never destroyed, since warnings may come from static destructors.
constinit std::mutex mutex;
constinit const Sink* current = nullptr;  // null: the default

// Held over forks, so that a child may warn. Registered before main, while there is one thread: no
// fork comes between.
[[maybe_unused]] const int registered =
    ::pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });

// False where the user has set none. A warning must never become a failure: what the sink throws is
// dropped.
bool give_to_sink(std::string_view name, const std::string& text) noexcept {
  Sink sink;
  {
    const std::lock_guard lock(mutex);
    if (current != nullptr) sink = *current;
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
  const Sink* replaced = nullptr;
  if (sink) replaced = new Sink(std::make_shared<const WarningSink>(std::move(sink)));
  {
    const std::lock_guard lock(mutex);
    std::swap(current, replaced);
  }
  delete replaced;
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
