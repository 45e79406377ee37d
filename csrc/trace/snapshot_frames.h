#pragma once

#include "csrc/trace/pickle.h"
#include "csrc/trace/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace berth::trace {

// Who asked for a block, by the stack that a snapshot has of it. Texts are numbers of strings of
// the trace, 0 where not known.
struct FrameOrigin {
  StringId module = 0;  // "forward model.py:31": the innermost line that is not PyTorch's own
  StringId op = 0;      // "aten::addmm", or what of PyTorch's own Python was running
  bool backward = false;
  bool optimizer = false;
  friend bool operator==(const FrameOrigin&, const FrameOrigin&) = default;
};

// Reads stacks of frames (innermost first) of one pickle. A frame is looked at once, however many
// stacks hold it. Not thread-safe.
class SnapshotFrames {
 public:
  explicit SnapshotFrames(const Pickle& pickle);

  // Of an entry or a block, by its field "frames"; of none where it has no stack.
  [[nodiscard]] FrameOrigin origin(Pickle::Value entry, Trace& trace);
  // The number of a text in Trace::strings.
  [[nodiscard]] StringId string(std::string_view text, Trace& trace);

 private:
  struct Frame {
    enum class Kind : std::uint8_t { kUnknown, kOther, kProgram, kOperator, kTorch };
    Kind kind = Kind::kUnknown;
    bool backward = false, optimizer = false;
    StringId text = 0;
  };
  Frame read(Pickle::Value frame, Trace& trace);

  const Pickle& pickle_;
  std::optional<Pickle::Value> frames_, name_, filename_, line_;
  std::unordered_map<std::string, StringId> strings_;
  std::vector<Frame> known_;          // by the number of a frame's dictionary
  std::vector<FrameOrigin> origins_;  // by the number of a stack's list
  std::vector<bool> seen_;
};

}  // namespace berth::trace
