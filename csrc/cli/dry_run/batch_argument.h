#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace berth::cli {

// The argument of a program that --fit changes: "batch=--batch-size", an option of the program that
// takes a whole number (as `--batch-size 8` or `--batch-size=8`; added at the end where it is not
// there), or "batch=3", its third argument.
class BatchArgument {
 public:
  // `program` is the program and its arguments. Throws Error(kUsage) for a text that is neither,
  // and where what is there is no whole number above 0.
  BatchArgument(const std::string& text, std::vector<std::string> program);

  [[nodiscard]] const std::string& label() const noexcept { return label_; }  // "batch"
  // What the arguments say; nothing where it was not there.
  [[nodiscard]] std::optional<std::uint64_t> given() const noexcept { return given_; }
  [[nodiscard]] std::vector<std::string> with(std::uint64_t batch) const;
  [[nodiscard]] std::string described(std::uint64_t batch) const;  // "--batch-size 16"

 private:
  std::vector<std::string> program_;
  std::string label_, name_;
  std::size_t at_ = 0;  // in program_; its size: to be added
  std::string before_;  // of the word: "--batch-size="
  std::optional<std::uint64_t> given_;
};

}  // namespace berth::cli
