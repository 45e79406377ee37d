#include "csrc/trace/snapshot_frames.h"

#include "csrc/facts/operator_kinds.h"

#include <fmt/format.h>

#include <cctype>

namespace berth::trace {
namespace {

constexpr std::size_t kMaxText = 256;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "at::_ops::add_Tensor::call(...)" -> "add": an overload begins with a capital.
std::string_view operator_in(std::string_view name) {
  constexpr std::string_view kOps = "at::_ops::";
  const std::size_t at = name.find(kOps);
  if (at == std::string_view::npos) return {};
  name.remove_prefix(at + kOps.size());
  name = name.substr(0, name.find("::"));
  const std::size_t last = name.rfind('_');
  if (last != std::string_view::npos && last != 0 && last + 1 < name.size() &&
      std::isupper(static_cast<unsigned char>(name[last + 1])) != 0)
    name = name.substr(0, last);
  return name;
}

// A file of PyTorch's Python: the path from "torch/" on.
std::string_view torch_path(std::string_view file) {
  for (const std::string_view folder : {"site-packages/torch/", "dist-packages/torch/"}) {
    const std::size_t at = file.find(folder);
    if (at != std::string_view::npos) return file.substr(at + folder.size() - 6);
  }
  return {};
}

// A line of Python that is neither PyTorch's nor of Python's own library.
bool of_program(std::string_view file) {
  if (!file.ends_with(".py") && !(file.starts_with("<") && file.ends_with(">"))) return false;
  if (file.starts_with("<frozen") || file.starts_with("<eval_with_key>")) return false;
  return contains(file, "-packages/") || !contains(file, "/lib/python");
}

// Python of PyTorch that only passes a call on.
bool passes_on(std::string_view function) {
  return function == "_call_impl" || function == "_wrapped_call_impl" || function == "wrapper" ||
         function == "decorate_context" || function == "__torch_dispatch__" ||
         function == "__torch_function__" || function == "_fn" || function == "_use_grad";
}

}  // namespace

SnapshotFrames::SnapshotFrames(const Pickle& pickle)
    : pickle_(pickle),
      frames_(pickle.find("frames")),
      name_(pickle.find("name")),
      filename_(pickle.find("filename")),
      line_(pickle.find("line")),
      strings_{{"", 0}},
      known_(pickle.containers()),
      origins_(pickle.containers()),
      seen_(pickle.containers(), false) {}

StringId SnapshotFrames::string(std::string_view text, Trace& trace) {
  const auto [it, unknown] = strings_.try_emplace(std::string(text.substr(0, kMaxText)),
                                                  static_cast<StringId>(trace.strings.size()));
  if (unknown) trace.strings.push_back(it->first);
  return it->second;
}

SnapshotFrames::Frame SnapshotFrames::read(Pickle::Value value, Trace& trace) {
  const auto text = [&](std::optional<Pickle::Value> key) {
    const auto found = pickle_.at(value, key);
    return found ? pickle_.text(*found).value_or("") : std::string_view{};
  };
  const std::string_view name = text(name_), file = text(filename_);
  Frame frame;
  frame.kind = Frame::Kind::kOther;
  if (const std::string_view op = operator_in(name); !op.empty()) {
    const std::string whole = fmt::format("aten::{}", op);
    if (facts::only_allocates(whole)) return frame;
    frame.kind = Frame::Kind::kOperator;
    frame.text = string(whole, trace);
    return frame;
  }
  if (contains(name, "torch::autograd::Engine::")) {
    frame.backward = true;
    return frame;
  }
  if (const std::string_view path = torch_path(file); !path.empty()) {
    frame.optimizer = path.starts_with("torch/optim/") && !contains(path, "lr_scheduler");
    if (passes_on(name)) return frame;
    frame.kind = Frame::Kind::kTorch;
    frame.text = string(fmt::format("{} {}", name, path), trace);
    return frame;
  }
  if (of_program(file)) {
    frame.kind = Frame::Kind::kProgram;
    const auto line = pickle_.at(value, line_);
    frame.text = string(fmt::format("{} {}:{}", name, file.substr(file.rfind('/') + 1),
                                    line ? pickle_.integer(*line).value_or(0) : 0),
                        trace);
  }
  return frame;
}

FrameOrigin SnapshotFrames::origin(Pickle::Value entry, Trace& trace) {
  const auto stack = pickle_.at(entry, frames_);
  if (!stack || Pickle::type(*stack) != Pickle::Type::kList) return {};
  const std::size_t number = Pickle::number(*stack);
  if (seen_[number]) return origins_[number];
  FrameOrigin origin;
  StringId torch = 0;
  for (const Pickle::Value value : pickle_.members(*stack)) {
    if (Pickle::type(value) != Pickle::Type::kDict) continue;
    Frame& frame = known_[Pickle::number(value)];
    if (frame.kind == Frame::Kind::kUnknown) frame = read(value, trace);
    origin.backward |= frame.backward;
    origin.optimizer |= frame.optimizer;
    if (frame.kind == Frame::Kind::kProgram && origin.module == 0) origin.module = frame.text;
    if (frame.kind == Frame::Kind::kOperator && origin.op == 0) origin.op = frame.text;
    // Only what runs within the program's innermost line.
    if (frame.kind == Frame::Kind::kTorch && torch == 0 && origin.module == 0) torch = frame.text;
  }
  if (origin.op == 0) origin.op = torch;
  seen_[number] = true;
  return origins_[number] = origin;
}

}  // namespace berth::trace
