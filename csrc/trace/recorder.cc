#include "csrc/trace/recorder.h"

#include "csrc/core/check.h"
#include "csrc/trace/chunk_encoder.h"
#include "csrc/trace/chunk_frame.h"
#include "csrc/trace/name_table.h"
#include "csrc/trace/thread_buffer.h"

#include <berth/warnings.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace berth {
namespace {

using trace::ThreadBuffer;
using namespace std::chrono_literals;

// A quarter of what may be lost at kill -9, so that a slow write does not use it up.
constexpr auto kFlushInterval = 25ms;

// Counts the forks that led to this process, so that a recorder knows when it is in a child.
std::atomic<std::uint32_t> forks{0};

[[maybe_unused]] const int counting =
    ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

// The buffer that this thread used last, and that of which recorder. Trivially destructible: blocks
// are freed, and recorded, in destructors that run after all others of the thread.
struct CurrentBuffer {
  std::uint64_t recorder = 0;
  ThreadBuffer* buffer = nullptr;
};
constexpr std::uint64_t kThreadEnded = ~std::uint64_t{0};
constinit thread_local CurrentBuffer current_buffer;

// Keeps the buffers of a thread until it ends.
struct ThreadBuffers {
  struct Held {
    std::uint64_t recorder;
    std::weak_ptr<const void> alive;  // of that recorder
    std::shared_ptr<ThreadBuffer> buffer;
  };
  std::vector<Held> held;

  ~ThreadBuffers() {
    for (const Held& h : held) h.buffer->finish();
    current_buffer = {kThreadEnded, nullptr};
  }
};
thread_local ThreadBuffers thread_buffers;

int create_file(const std::string& path) {
  struct stat info {};
  // An earlier trace is replaced; a device or a link is not ours to remove.
  if (::lstat(path.c_str(), &info) == 0) {
    BERTH_CHECK(S_ISREG(info.st_mode), kSystem,
                "cannot record to '{}': it exists and is no regular file", path);
    ::unlink(path.c_str());
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  BERTH_CHECK(fd >= 0, kSystem, "cannot record to '{}': {}", path, std::strerror(errno));
  return fd;
}

class FileRecorder final : public Recorder {
 public:
  FileRecorder(const std::string& path, const trace::Program& program, Bytes alignment,
               Bytes max_waiting)
      : path_(path),
        max_waiting_(max_waiting),
        budget_(std::make_shared<ThreadBuffer::Budget>(max_waiting)) {
    forks_ = forks.load(std::memory_order_relaxed);
    names_.lane(0);  // the default lane is lane 0 in every recording
    fd_ = create_file(path);
    try {
      const trace_file::FileHeader header = trace_file::make_file_header(file_id_);
      output_.assign(header.begin(), header.end());
      encoder_.set_start(program, alignment);
      names_.take_new(encoder_);
      trace_file::append_chunk(output_, file_id_, sequence_++, encoder_.finish());
      const int error = write_output();
      BERTH_CHECK(error == 0, kSystem, "cannot record to '{}': {}", path, std::strerror(error));
      start_thread();
    } catch (...) {
      ::close(fd_);
      ::unlink(path.c_str());
      throw;
    }
  }

  ~FileRecorder() override {
    close();
    // In a forked child the thread does not exist: its handle cannot be joined, nor can what it
    // waited on be destroyed. They are forgotten.
    if (in_child()) {
      (void)writer_.release();
      ::close(fd_);
    }
  }

  trace::Tick append(const trace::Event& event) noexcept override {
    if (state_.load(std::memory_order_relaxed) != State::kOpen || in_child()) [[unlikely]]
      return refuse();
    const trace::Tick tick = next_tick_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t time = time_ns();
    ThreadBuffer* buffer = current_buffer.buffer;
    if (current_buffer.recorder != id_) [[unlikely]] {
      if (current_buffer.recorder == kThreadEnded) return append_late(tick, time, event);
      buffer = find_buffer();
    }
    if (buffer == nullptr || !buffer->push(tick, time, event)) [[unlikely]]
      lost_.fetch_add(1, std::memory_order_relaxed);
    return tick;
  }

  trace::StringId intern(std::string_view text) override {
    return in_child() ? 0 : names_.string(text);
  }
  std::uint32_t intern_shape(const std::int64_t* sizes, std::size_t count) override {
    return in_child() ? 0 : names_.shape({sizes, count});
  }
  trace::LaneId lane(std::uint64_t key) override { return in_child() ? 0 : names_.lane(key); }

  trace::ThreadId thread() override {
    if (in_child() || current_buffer.recorder == kThreadEnded) return 0;
    const ThreadBuffer* buffer =
        current_buffer.recorder == id_ ? current_buffer.buffer : find_buffer();
    return buffer == nullptr ? 0 : buffer->thread();
  }

  void close() noexcept override {
    if (in_child()) return;  // its locks may be held for ever, its file is the parent's
    const std::lock_guard closing(close_mutex_);
    if (closed_) return;
    State open = State::kOpen;
    state_.compare_exchange_strong(open, State::kClosed);
    {
      const std::lock_guard lock(writer_->mutex);
      writer_->stop = true;
    }
    writer_->wake.notify_one();
    writer_->thread.join();
    closed_ = true;
    ::close(fd_);
    state_.store(State::kClosed);
    encoder_ = {};  // a closed recorder may be kept, and keeps little
    names_encoder_ = {};
    output_ = {};
    draining_ = {};
    alive_.reset();
  }

  Counts counts() const noexcept override {
    const std::uint64_t lost = lost_.load();
    const std::uint64_t seen = next_tick_.load();
    return {.recorded = seen < lost ? 0 : seen - lost, .lost = lost};
  }

 private:
  enum class State : int { kOpen, kFailed, kClosed };

  [[nodiscard]] bool in_child() const noexcept {
    return forks.load(std::memory_order_relaxed) != forks_;
  }

  [[nodiscard]] std::uint64_t time_ns() const noexcept {
    return static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start_).count());
  }

  trace::Tick refuse() noexcept {
    if (in_child() || state_.load() != State::kFailed) return 0;
    lost_.fetch_add(1, std::memory_order_relaxed);
    return next_tick_.fetch_add(1, std::memory_order_relaxed);
  }

  // The thread's own buffer, from now on its current one; null where memory is short.
  ThreadBuffer* find_buffer() noexcept {
    try {
      auto& held = thread_buffers.held;
      for (const auto& h : held) {
        if (h.recorder == id_) {
          current_buffer = {id_, h.buffer.get()};
          return h.buffer.get();
        }
      }
      std::erase_if(held, [](const auto& h) { return h.alive.expired(); });
      const std::lock_guard lock(buffers_mutex_);
      auto buffer = std::make_shared<ThreadBuffer>(next_thread_, budget_);
      held.reserve(held.size() + 1);
      buffers_.push_back(buffer);
      ++next_thread_;
      held.push_back({id_, alive_weak_, buffer});
      current_buffer = {id_, buffer.get()};
      return buffer.get();
    } catch (...) {
      return nullptr;
    }
  }

  // From destructors that run when the thread's own buffers are gone: all threads share one.
  trace::Tick append_late(trace::Tick tick, std::uint64_t time,
                          const trace::Event& event) noexcept {
    const std::lock_guard lock(late_mutex_);
    if (late_ == nullptr) {
      try {
        const std::lock_guard buffers(buffers_mutex_);
        auto buffer = std::make_shared<ThreadBuffer>(next_thread_, budget_);
        buffers_.push_back(buffer);
        ++next_thread_;
        late_ = std::move(buffer);
      } catch (...) {
      }
    }
    if (late_ == nullptr || !late_->push(tick, time, event))
      lost_.fetch_add(1, std::memory_order_relaxed);
    return tick;
  }

  // --- The writing thread
  // -------------------------------------------------------------------------

  void start_thread() {
    // Signals are the program's: its handlers run on its own threads, and a write beyond the
    // file-size limit is an error to us rather than SIGXFSZ.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      writer_->thread = std::thread([this] { write_until_closed(); });
    } catch (const std::system_error& e) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw Error(ErrorKind::kSystem,
                  fmt::format("cannot record to '{}': no thread: {}", path_, e.what()));
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void write_until_closed() noexcept {
    std::unique_lock lock(writer_->mutex);
    for (bool last = false; !last;) {
      if (!writer_->stop) writer_->wake.wait_for(lock, kFlushInterval);
      last = writer_->stop;
      lock.unlock();
      flush(last);
      lock.lock();
    }
  }

  void flush(bool last) noexcept {
    try {
      {
        const std::lock_guard lock(buffers_mutex_);
        draining_ = buffers_;
      }
      for (const auto& buffer : draining_) {
        const bool finished = buffer->finished();
        buffer->drain([&](const trace::Entry& entry) {
          encoder_.add(entry);
          ++pending_;
          if (encoder_.bytes() + trace_file::kMaxEntryBytes > kFullTable) emit();
        });
        if (finished) {
          const std::lock_guard lock(buffers_mutex_);
          std::erase(buffers_, buffer);
        }
      }
      draining_.clear();
      if (pending_ != 0 || last) emit(last);
      warn_of_lost();
    } catch (const std::bad_alloc&) {
      fail("out of memory");
    }
  }

  static constexpr std::size_t kFullTable = trace_file::kChunkBytes - 1024;

  // Writes what the encoder holds as one chunk, after chunks of the names that it may use: they
  // were interned before the entries were appended, so all are there by now.
  void emit(bool last = false) {
    if (state_.load() == State::kFailed) {
      (void)encoder_.finish();
      lost_.fetch_add(std::exchange(pending_, 0), std::memory_order_relaxed);
      return;
    }
    output_.clear();
    while (names_.take_new(names_encoder_))
      trace_file::append_chunk(output_, file_id_, sequence_++, names_encoder_.finish());
    trace_file::append_chunk(output_, file_id_, sequence_++, encoder_.finish(last));
    const int error = write_output();
    if (error != 0) {
      lost_.fetch_add(std::exchange(pending_, 0), std::memory_order_relaxed);
      fail(std::strerror(error));
    }
    pending_ = 0;
  }

  // Writes `output_` whole, or cuts the file back to its last whole chunk and returns errno.
  int write_output() noexcept {
    std::span<const std::byte> rest = output_;
    while (!rest.empty()) {
      const ssize_t written = ::write(fd_, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        const int error = written < 0 ? errno : EIO;
        // Where even this fails the reader finds a torn tail.
        if (::ftruncate(fd_, static_cast<off_t>(good_bytes_)) != 0) return error;
        return error;
      }
      rest = rest.subspan(static_cast<std::size_t>(written));
    }
    good_bytes_ += output_.size();
    return 0;
  }

  void warn_of_lost() {
    const std::uint64_t lost = lost_.load(std::memory_order_relaxed);
    if (lost == 0 || warned_ || std::exchange(warned_of_lost_, true)) return;
    warn("trace-lost",
         fmt::format("the trace '{}' loses entries, {} so far: they come faster than they are "
                     "written and more than {} of them wait, the limit, or memory is short. The "
                     "program goes on; a step with a gap is no step to plan",
                     path_, lost, format_bytes(max_waiting_)));
  }

  void fail(std::string_view why) noexcept {
    State open = State::kOpen;
    state_.compare_exchange_strong(open, State::kFailed);
    if (std::exchange(warned_, true)) return;
    try {
      warn("trace-write",
           fmt::format("cannot write the trace '{}': {}. The program goes on, the trace ends "
                       "here, after {}",
                       path_, why, format_bytes(good_bytes_)));
    } catch (...) {
    }
  }

  const std::string path_;
  const Bytes max_waiting_;
  const std::uint64_t id_ = [] {
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1);
  }();
  const std::uint64_t file_id_ = trace_file::make_file_id();
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::uint32_t forks_ = 0;
  std::atomic<State> state_{State::kOpen};
  // Gone when the recorder is closed, so that threads let go of their buffers.
  std::shared_ptr<const void> alive_ = std::make_shared<int>(0);
  const std::weak_ptr<const void> alive_weak_ = alive_;
  const std::shared_ptr<ThreadBuffer::Budget> budget_;
  trace::NameTable names_;

  alignas(64) std::atomic<trace::Tick> next_tick_{0};
  alignas(64) std::atomic<std::uint64_t> lost_{0};

  std::mutex buffers_mutex_;
  std::vector<std::shared_ptr<ThreadBuffer>> buffers_;
  trace::ThreadId next_thread_ = 0;
  std::mutex late_mutex_;
  std::shared_ptr<ThreadBuffer> late_;

  struct Writer {
    std::mutex mutex;
    std::condition_variable wake;
    bool stop = false;
    std::thread thread;
  };
  std::unique_ptr<Writer> writer_ = std::make_unique<Writer>();
  std::mutex close_mutex_;
  bool closed_ = false;

  // The writing thread's own, but for the constructor.
  int fd_ = -1;
  std::uint64_t sequence_ = 0;
  Bytes good_bytes_ = 0;
  std::uint64_t pending_ = 0;  // entries in the encoder
  bool warned_ = false;
  bool warned_of_lost_ = false;
  std::vector<std::shared_ptr<ThreadBuffer>> draining_;
  trace_file::ChunkEncoder encoder_;
  trace_file::ChunkEncoder names_encoder_;
  std::vector<std::byte> output_;
};

}  // namespace

std::unique_ptr<Recorder> Recorder::open(const std::string& path, const trace::Program& program,
                                         Bytes alignment, Bytes max_waiting) {
  BERTH_CHECK(is_power_of_two(alignment), kUsage, "alignment {} of a recording is no power of two",
              alignment);
  return std::make_unique<FileRecorder>(path, program, alignment, max_waiting);
}

}  // namespace berth
