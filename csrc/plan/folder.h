#pragma once

#include "csrc/plan/head.h"
#include "csrc/plan/plan.h"
#include "csrc/trace/trace.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth {

// A folder of plans that many programs read and write: a file a plan, named by program (see
// program_key()), requests and offsets, so that who looks for its own opens no other's:
//
//   berth-0f3c..-91ab..-77d0...plan      16 hexadecimal digits each
//
// Safe among processes and machines without locks: a plan is written beside its name and renamed,
// equal plans have equal names, and of plans for the same requests everyone keeps the same one:
// that which serves the most bytes from its arena, and of those the one with the smallest arena.
// One that covers more kinds of steps takes the place of those that it covers, unless it plans less
// of one of them. Whoever reads finds old or new, whole.
//
// Bounded: who writes deletes what was used longest ago beyond Limits: learned, or read with
// Access::kWrite (its time of modification says when). Only what has such a name
// and begins as a plan does is counted and deleted; all else in the folder stays as it is. Files
// NAME.plan of another name that have a head (head.h) are found as well.
//
// What is read is verified (file.h); trusts nothing in the folder. list() costs a look at the names
// and at most Limits::heads small reads, keep() one for each plan of the program, and reads what is
// as good. All may wait for the file system, and throw Error. Not thread-safe.
class PlanFolder {
 public:
  struct Limits {
    std::size_t plans = 256;
    Bytes bytes = Bytes{1} << 30;
    // Read by list(): the program's own, last used first, then files of other names.
    std::size_t heads = 512;
    std::size_t names = 1 << 14;  // looked at; what comes after them is not seen
  };
  enum class Access : std::uint8_t { kRead, kWrite };

  // Nothing is touched yet. `program` and `alignment` are of those who will serve the plans.
  PlanFolder(std::string path, trace::Program program, Bytes alignment, Access access,
             Limits limits);
  PlanFolder(std::string path, trace::Program program, Bytes alignment, Access access)
      : PlanFolder(std::move(path), std::move(program), alignment, access, Limits()) {}

  // Whether a setting or an option names a folder: one is there, or it ends in '/'.
  [[nodiscard]] static bool is_named_by(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  struct Found {
    std::string file;  // its name in the folder
    PlanHead head;
  };
  struct Listing {
    std::vector<Found> plans;           // of the program: of the same rank first, then last used
    std::vector<std::string> problems;  // why others of its plans cannot be read
    std::size_t opened = 0;
    Bytes read = 0;
  };
  // The plans that the program may try. Empty where there is no folder; throws Error(kInput) for
  // that with Access::kRead, and Error(kSystem) where it cannot be read.
  [[nodiscard]] Listing list() const;

  // All of a plan, verified. With Access::kWrite it counts as used now. Throws Error, and then does
  // not take the file for a plan any more.
  [[nodiscard]] Plan read(const Found& found);

  // Whether its file is there still.
  [[nodiscard]] bool has(const Found& found) const;

  // Keeps a plan, unless one is there that is as good, or it leaves all to the pool; makes the
  // folder where there is none. With Access::kRead it does nothing. Returns the name of the file
  // that it wrote, empty where it wrote none. Throws Error(kSystem).
  std::string keep(const Plan& plan);
  // Deletes what keep() wrote, if that is there still.
  void withdraw(const std::string& file) const noexcept { remove(file); }

 private:
  struct File;
  [[nodiscard]] std::string at(const std::string& file) const;
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<File> files(const std::vector<std::string>& names,
                                        std::string_view prefix) const;
  [[nodiscard]] std::vector<Found> rivals(std::string_view prefix) const;
  void settle(const Found& mine);
  void keep_limits(const std::string& spared) const;
  void remove(const std::string& file) const noexcept;

  const std::string path_;
  const trace::Program program_;
  const Bytes alignment_;
  const Access access_;
  const Limits limits_;
  std::set<std::string> refused_;  // files that read() threw for
};

}  // namespace berth
