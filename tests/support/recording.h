#pragma once

#include "csrc/core/bytes.h"
#include "tests/support/trace_builder.h"

#include <map>
#include <string>
#include <vector>

namespace berth::test {

// What an operator is beside its name.
struct OperatorKind {
  std::int64_t sequence = -1;
  bool backward = false;
  bool random = false;
  trace::ThreadId thread = 0;
};

// Writes a run with operators down as the libtorch adapter does: arguments at the begin, results
// before the end. Its clock stands still until spend().
class Recording {
 public:
  struct Part {
    trace::BlockId block = 0;
    Bytes offset = 0, bytes = 0;          // 0: all of it
    Part(trace::BlockId b) : block(b) {}  // NOLINT: a block is all of it
    Part(trace::BlockId b, Bytes from, Bytes count) : block(b), offset(from), bytes(count) {}
  };
  trace::BlockId request(Bytes bytes) {
    const trace::BlockId block = builder.allocate(bytes);
    stamp();
    sizes_[block] = bytes;
    return block;
  }
  void free(trace::BlockId block) {
    builder.free(block);
    stamp();
  }
  void free(const std::vector<trace::BlockId>& blocks) {
    for (const trace::BlockId block : blocks) free(block);
  }
  void role(trace::BlockId block, trace::RoleKind role) { add(trace::Role{block, role}); }
  void mark() {
    builder.mark();
    stamp();
  }
  void spend(std::uint64_t ns) { now_ += ns; }

  std::uint64_t begin(const std::string& name, const OperatorKind& kind = {}) {
    add(trace::OperatorBegin{.op = ++last_,
                             .name = builder.name(name),
                             .sequence = kind.sequence,
                             .forward_thread = kind.thread,
                             .backward = kind.backward,
                             .random = kind.random});
    return last_;
  }
  void takes(std::uint64_t op, const Part& part, trace::Access access = trace::Access::kRead) {
    operand(op, part, access, false);
  }
  void gives(std::uint64_t op, const Part& part, trace::Access access = trace::Access::kWrite) {
    operand(op, part, access, true);
  }
  void end(std::uint64_t op) { add(trace::OperatorEnd{op}); }

  // A whole operator: takes blocks, makes one, in 10 ns.
  trace::BlockId make(const std::string& name, const std::vector<Part>& reads, Bytes bytes,
                      const OperatorKind& kind = {}) {
    const std::uint64_t op = begin(name, kind);
    for (const Part& part : reads) takes(op, part);
    const trace::BlockId result = request(bytes);
    spend(10);
    gives(op, result);
    end(op);
    return result;
  }
  // One that changes its first argument.
  void change(const std::string& name, trace::BlockId block, const std::vector<Part>& reads = {}) {
    const std::uint64_t op = begin(name);
    takes(op, block, trace::Access::kReadWrite);
    for (const Part& part : reads) takes(op, part);
    spend(10);
    gives(op, block, trace::Access::kRead);
    end(op);
  }
  // One that makes a view.
  void view(const std::string& name, const Part& of, const Part& result) {
    const std::uint64_t op = begin(name);
    takes(op, of);
    gives(op, result, trace::Access::kRead);
    end(op);
  }
  // One that reads and gives nothing of ours.
  void read(const std::string& name, const std::vector<Part>& reads) {
    const std::uint64_t op = begin(name);
    for (const Part& part : reads) takes(op, part);
    end(op);
  }
  void add(const trace::Event& event) {
    builder.add(event);
    stamp();
  }

  TraceBuilder builder;

 private:
  void stamp() { builder.trace().entries.back().time_ns = now_; }

  void operand(std::uint64_t op, const Part& part, trace::Access access, bool output) {
    const Bytes bytes = part.bytes == 0 ? sizes_[part.block] : part.bytes;
    auto& shapes = builder.trace().shapes;
    shapes.push_back({static_cast<std::int64_t>(bytes)});
    add(trace::Operand{.op = op,
                       .block = part.block,
                       .byte_offset = part.offset,
                       .bytes = bytes,
                       .shape = static_cast<std::uint32_t>(shapes.size() - 1),
                       .element_type = 0,
                       .access = access,
                       .output = output});
  }

  std::map<trace::BlockId, Bytes> sizes_;
  std::uint64_t last_ = 0, now_ = 0;
};

}  // namespace berth::test
