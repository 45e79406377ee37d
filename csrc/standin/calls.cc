#include "csrc/standin/calls.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace berth::standin {

struct CallRecord {
  std::string name;
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> fail_first{0};  // 0: never
  std::atomic<std::uint64_t> fail_count{0};
  std::atomic<int> error{kSuccess};

  explicit CallRecord(std::string record_name) : name(std::move(record_name)) {}

  // Whether the call that gets `number` is one to fail.
  [[nodiscard]] bool fails(std::uint64_t number) const noexcept {
    const std::uint64_t first = fail_first.load(std::memory_order_acquire);
    return first != 0 && number >= first &&
           number - first < fail_count.load(std::memory_order_relaxed);
  }
};

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<CallRecord>, std::less<>> records;
  CallRecord all{"*"};
  std::FILE* log = nullptr;
};

// Never destroyed: calls come as late as static destructors.
Registry& registry() {
  static auto* the_registry = new Registry;
  return *the_registry;
}

CallRecord& record_of(std::string_view name) {
  Registry& all = registry();
  if (name == "*") return all.all;
  const std::lock_guard lock(all.mutex);
  auto found = all.records.find(name);
  if (found == all.records.end()) {
    found = all.records.emplace(std::string(name), std::make_unique<CallRecord>(std::string(name)))
                .first;
  }
  return *found->second;
}

std::atomic<bool> logging{false};
std::atomic<int> sticky{kSuccess};
std::atomic<bool> unloaded{false};
std::atomic<bool> forked{false};
thread_local Status the_last_error = kSuccess;

bool is_sticky(int error) {
  return error == kIllegalAddress || error == kAssert || error == kLaunchFailure;
}

bool read_number(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

// Before the first call, so that it can be the one to fail.
const bool configured = [] {
  const char* faults = std::getenv("BERTH_STANDIN_FAIL");
  if (faults != nullptr && !fail_calls_by_text(faults)) {
    std::fprintf(stderr,
                 "berth stand-in: BERTH_STANDIN_FAIL is '%s', wanted NAME:N:ERROR[:COUNT],...\n",
                 faults);
    std::_Exit(2);
  }
  const char* log = std::getenv("BERTH_STANDIN_LOG");
  if (log != nullptr && !log_calls_to(log)) {
    std::fprintf(stderr,
                 "berth stand-in: BERTH_STANDIN_LOG is '%s', wanted a file that can be written\n",
                 log);
    std::_Exit(2);
  }
  return true;
}();

}  // namespace

CallSite::CallSite(const char* name) : record_(&record_of(name)) {}

Status CallSite::enter() noexcept {
  const std::uint64_t number = record_->calls.fetch_add(1, std::memory_order_relaxed) + 1;
  CallRecord& all = registry().all;
  const std::uint64_t number_of_all = all.calls.fetch_add(1, std::memory_order_relaxed) + 1;
  int error = sticky.load(std::memory_order_relaxed);
  if (unloaded.load(std::memory_order_relaxed)) {
    error = kCudartUnloading;
  } else if (forked.load(std::memory_order_relaxed)) {
    error = kInitializationError;
  } else if (record_->fails(number)) {
    error = record_->error.load(std::memory_order_relaxed);
  } else if (all.fails(number_of_all)) {
    error = all.error.load(std::memory_order_relaxed);
  }
  if (is_sticky(error)) sticky.store(error, std::memory_order_relaxed);
  if (logging.load(std::memory_order_relaxed)) {
    Registry& shared = registry();
    const std::lock_guard lock(shared.mutex);
    if (error == kSuccess) {
      std::fprintf(shared.log, "%s\n", record_->name.c_str());
    } else {
      std::fprintf(shared.log, "%s = %s\n", record_->name.c_str(), status_name(error));
    }
    std::fflush(shared.log);
  }
  return static_cast<Status>(error);
}

Status remember(Status status) noexcept {
  if (status != kSuccess) the_last_error = status;
  return status;
}

Status last_error(bool clear) noexcept {
  const Status result = the_last_error;
  if (clear) the_last_error = static_cast<Status>(sticky.load(std::memory_order_relaxed));
  return result;
}

void fail_calls(std::string_view name, std::uint64_t first, Status error, std::uint64_t count) {
  CallRecord& record = record_of(name);
  record.error.store(error);
  record.fail_count.store(count);
  record.fail_first.store(first == 0 ? 0 : record.calls.load() + first, std::memory_order_release);
}

void stick(Status error) noexcept { sticky.store(error, std::memory_order_relaxed); }

void clear_faults() {
  Registry& shared = registry();
  const std::lock_guard lock(shared.mutex);
  shared.all.fail_first.store(0);
  for (auto& [name, record] : shared.records) record->fail_first.store(0);
  sticky.store(kSuccess);
  unloaded.store(false);
}

bool fail_calls_by_text(std::string_view text) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(item.size() + (item.size() < text.size() ? 1 : 0));
    std::string_view fields[4];
    std::size_t count = 0;
    for (std::string_view rest = item; count < 4; ++count) {
      fields[count] = count == 3 ? rest : rest.substr(0, rest.find(':'));
      if (fields[count].size() == rest.size()) {
        ++count;
        break;
      }
      rest.remove_prefix(fields[count].size() + 1);
    }
    std::uint64_t first = 0, error = 0, repeat = 1;
    const bool readable = count >= 3 && !fields[0].empty() && read_number(fields[1], first) &&
                          first != 0 && read_number(fields[2], error) && error != 0 &&
                          error < 1000 && (count == 3 || read_number(fields[3], repeat));
    if (!readable) return false;
    fail_calls(fields[0], first, static_cast<Status>(error), repeat);
  }
  return true;
}

std::uint64_t count_calls(std::string_view name) { return record_of(name).calls.load(); }

MemoryCallCounts count_memory_calls() {
  MemoryCallCounts counts;
  for (std::size_t i = 0; i < kMemoryCalls; ++i) {
    const auto call = static_cast<MemoryCall>(i);
    counts.add(call, count_calls(name_of(call)));
  }
  return counts;
}

void reset_counts() {
  Registry& shared = registry();
  const std::lock_guard lock(shared.mutex);
  shared.all.calls.store(0);
  for (auto& [name, record] : shared.records) record->calls.store(0);
}

bool log_calls_to(const char* path) {
  Registry& shared = registry();
  std::FILE* file = std::strcmp(path, "-") == 0 ? stderr : std::fopen(path, "ae");
  if (file == nullptr) return false;
  const std::lock_guard lock(shared.mutex);
  shared.log = file;
  logging.store(true);
  return true;
}

void unload_driver() noexcept { unloaded.store(true); }
void mark_forked() noexcept { forked.store(true); }

}  // namespace berth::standin
