#pragma once

#include "csrc/standin/process.h"

#include <cstddef>
#include <cstdint>

namespace berth::standin {

// What the ranks of this process have sent and others have not read yet: pieces of one sparse
// anonymous file that other processes open. It costs the host what is in it. Under the machine's
// lock.
class Outbox {
 public:
  static Outbox& own();

  [[nodiscard]] int file() const { return file_; }

  // Copies bytes in and returns where they are.
  std::uint64_t put(const void* bytes, std::size_t size);
  void drop(std::uint64_t offset, std::size_t size) noexcept;

 private:
  Outbox();

  int file_ = -1;
  std::size_t pieces_ = 0;
  std::uint64_t next_ = 0;
};

// The file of a process's outbox, opened once; -1 where it cannot be. From
// any thread.
int outbox_of(const ProcessId& process, int file);

// Copies bytes of an outbox; false where they are not there.
bool read_outbox(int file, std::uint64_t offset, void* to, std::size_t size);

}  // namespace berth::standin
