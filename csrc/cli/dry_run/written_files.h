#pragma once

#include <sys/stat.h>

#include <map>
#include <string>
#include <vector>

namespace berth::cli {

// The files that a name with {rank}, {device} or {pid} stands for, and which of them a program
// wrote: those that are another file, or changed, since this was made.
class WrittenFiles {
 public:
  explicit WrittenFiles(std::string name);

  struct File {
    std::string path;
    off_t size = 0;
  };
  // By path. Reads the folder anew.
  [[nodiscard]] std::vector<File> written() const;

 private:
  // What tells a file written now from one that lay there before.
  struct Version {
    ino_t inode = 0;
    off_t size = 0;
    struct timespec changed {};
    friend bool operator==(const Version& a, const Version& b) {
      return a.inode == b.inode && a.size == b.size && a.changed.tv_sec == b.changed.tv_sec &&
             a.changed.tv_nsec == b.changed.tv_nsec;
    }
  };
  [[nodiscard]] std::map<std::string, Version> files() const;

  std::string name_;
  std::map<std::string, Version> before_;
};

}  // namespace berth::cli
