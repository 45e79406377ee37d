#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace berth::cli {

// The traces of a program that is one process or several, on one GPU or several: nobody knows
// before its end. Each is written under a name of its own beside where it is to lie, and gets the
// name that the user gave once all are there.
//
// That name may hold {rank}, {device} and {pid}. Where it stands for several of them, they get
// "-RANK-DEVICE" before its extension; where that does not tell them apart, "-PID", too.
class RankTraces {
 public:
  struct File {
    std::string path = {};
    std::uint32_t rank = 0;  // by its launcher
    int device = 0;          // the GPU's index, as the process counts them
    std::uint64_t pid = 0;

    friend bool operator==(const File&, const File&) = default;
  };

  explicit RankTraces(std::string name) : name_(std::move(name)) {}
  // Removes what was not taken.
  ~RankTraces();
  RankTraces(const RankTraces&) = delete;
  RankTraces& operator=(const RankTraces&) = delete;

  // What the program is to write to: BERTH_TRACE.
  [[nodiscard]] std::string written_to() const;
  // Bytes of the largest that is being written.
  [[nodiscard]] Bytes largest() const;
  // Renames what was written, and says what it is now; by rank, device and process. Throws
  // Error(kSystem) where one cannot be renamed.
  [[nodiscard]] std::vector<File> take() const;

  // The names of `files` (whose paths do not matter), in order.
  [[nodiscard]] static std::vector<std::string> names(const std::string& name,
                                                      const std::vector<File>& files);

 private:
  [[nodiscard]] std::vector<File> written() const;

  std::string name_;
};

}  // namespace berth::cli
