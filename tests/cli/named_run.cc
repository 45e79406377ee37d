// berth_named_run OUTPUT REQUESTS: writes the trace of a run of about so many requests with
// modules, operators, phases and marks, as a transformer's steps have them, and some names that
// would break out of a page which does not escape.
#include "csrc/trace/trace.h"
#include "csrc/trace/write.h"

#include <cstdlib>
#include <string>

namespace trace = berth::trace;

namespace {

class Run {
 public:
  Run() {
    trace_.program.torch_version = "2.11.0";
    trace_.program.device_name = "a GPU on paper";
    trace_.alignment = 512;
    trace_.lanes = {{0}};
  }

  trace::StringId name(const std::string& text) {
    trace_.strings.push_back(text);
    return static_cast<trace::StringId>(trace_.strings.size() - 1);
  }
  void add(const trace::Event& event) { trace_.entries.push_back({tick_++, 0, 0, event}); }
  trace::BlockId request(berth::Bytes bytes) {
    add(trace::Request{++blocks_, bytes, 0, 0});
    return blocks_;
  }
  trace::BlockId made_by(trace::StringId op, berth::Bytes bytes, bool backward) {
    add(trace::OperatorBegin{.op = ++operators_, .name = op, .backward = backward});
    const trace::BlockId block = request(bytes);
    add(trace::OperatorEnd{operators_});
    return block;
  }
  std::uint64_t open(trace::StringId module) {
    add(trace::RangeBegin{++ranges_, module, trace::RangeKind::kModule});
    return ranges_;
  }
  void close(std::uint64_t range) { add(trace::RangeEnd{range}); }
  void free(trace::BlockId block) { add(trace::Free{block}); }

  [[nodiscard]] const berth::Trace& get() const { return trace_; }
  [[nodiscard]] std::uint64_t requests() const { return blocks_; }

 private:
  berth::Trace trace_;
  trace::Tick tick_ = 0;
  trace::BlockId blocks_ = 0;
  std::uint64_t operators_ = 0, ranges_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::uint64_t wanted = std::strtoull(argv[2], nullptr, 10);
  constexpr berth::Bytes kMiB = berth::Bytes{1} << 20;
  constexpr int kLayers = 48;
  Run run;
  std::vector<trace::StringId> modules;
  for (int layer = 0; layer < kLayers; ++layer)
    modules.push_back(run.name("model.layers." + std::to_string(layer)));
  modules[1] = run.name(
      "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>");
  modules[2] = run.name("<!-- <script> \"quoted\" 'name' & &lt; ]]> \xe2\x80\xa8 \xff");
  const trace::StringId linear = run.name("aten::addmm"),
                        norm = run.name("aten::native_layer_norm"),
                        attention = run.name("aten::_scaled_dot_product_flash_attention"),
                        gelu = run.name("aten::gelu"), grad = run.name("aten::mm"),
                        add = run.name("aten::add");
  run.add(trace::Segment{.address = 4096, .bytes = 4096 * kMiB});
  for (int layer = 0; layer < kLayers; ++layer) run.request(12 * kMiB + 512);
  for (int step = 0; run.requests() < wanted; ++step) {
    std::vector<std::vector<trace::BlockId>> kept(kLayers);
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::uint64_t module = run.open(modules[static_cast<std::size_t>(layer)]);
      auto& mine = kept[static_cast<std::size_t>(layer)];
      mine.push_back(run.made_by(norm, 4 * kMiB, false));
      run.free(run.made_by(norm, 8192, false));
      mine.push_back(run.made_by(linear, 12 * kMiB, false));
      mine.push_back(run.made_by(attention, 4 * kMiB, false));
      const trace::BlockId scratch = run.made_by(attention, (layer % 3 + 1) * kMiB + 4096, false);
      mine.push_back(run.made_by(linear, 16 * kMiB, false));
      run.free(scratch);
      mine.push_back(run.made_by(gelu, 16 * kMiB, false));
      // One step in eight is longer.
      if (step % 8 == 7 && layer == 5) mine.push_back(run.made_by(add, 7 * kMiB, false));
      run.close(module);
    }
    for (int layer = kLayers - 1; layer >= 0; --layer) {
      const std::uint64_t module = run.open(modules[static_cast<std::size_t>(layer)]);
      for (const trace::BlockId block : kept[static_cast<std::size_t>(layer)]) {
        const trace::BlockId of = run.made_by(grad, 4 * kMiB, true);
        run.free(run.made_by(grad, 2 * kMiB, true));
        run.free(block);
        run.free(of);
      }
      run.close(module);
    }
    run.add(trace::StepMark{});
  }
  berth::write_trace(argv[1], run.get());
  return 0;
}
