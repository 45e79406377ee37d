#pragma once

#include "csrc/core/bytes.h"
#include "csrc/trace/snapshot.h"
#include "csrc/trace/trace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

// Runs of training programs at random, whole and cut anywhere, for what is said of a history.
namespace berth::test {

// A run: weights, then steps of a forward and a backward part with blocks of all kinds of
// lifetimes: saved for the backward part, brief, gradients that the next step frees, an output that
// is replaced once the new one is there, losses that live for two steps, state of the optimizer
// from the first step on. Some runs have no marks, a second lane, evaluations in between, a larger
// evaluation at the end, or free all as they end. The same for a seed.
class TrainingRun {
 public:
  explicit TrainingRun(std::uint64_t seed, std::size_t least_steps = 1) : random_(seed) {
    trace_.alignment = 512;
    trace_.lanes = {{0}};
    if (chance(0.2)) trace_.lanes.push_back({1});
    marks_ = chance(0.7);
    const bool evaluates = chance(0.25), larger = chance(0.2), exits = chance(0.3);
    steps_ = std::max<std::size_t>(least_steps, 1 + random_() % 12);
    layers_ = 3 + random_() % 12;
    optimizer_ = chance(0.6);
    gradients_ = static_cast<Gradients>(random_() % 3);
    output_ = chance(0.6);
    losses_ = chance(0.4);
    draw_layers();
    for (const Layer& layer : network_) {
      if (chance(0.3)) free(allocate(layer.weight));  // values of the host, say
      weights_.push_back(allocate(layer.weight));
    }
    for (std::size_t step = 0; step < steps_; ++step) {
      first_of_step_.push_back(trace_.entries.size());
      train(step == 0);
      if (evaluates && step % 3 == 2) evaluate(1);
    }
    after_steps_ = trace_.entries.size();
    if (larger) evaluate(3);
    if (exits) {
      while (!live_.empty()) free(live_.begin()->first);
    }
    equal_steps_ = !evaluates && !larger;
  }

  [[nodiscard]] const Trace& trace() const noexcept { return trace_; }
  // Entries at which steps begin, and at which the last one is over.
  [[nodiscard]] const std::vector<std::size_t>& first_of_step() const noexcept {
    return first_of_step_;
  }
  [[nodiscard]] std::size_t after_steps() const noexcept { return after_steps_; }
  // All that it does is one step over and over.
  [[nodiscard]] bool equal_steps() const noexcept { return equal_steps_; }

 private:
  enum class Gradients : std::uint8_t { kFreedFirst, kFreedLast, kReplaced };
  struct Layer {
    Bytes weight = 0, activation = 0, brief = 0;
    trace::LaneId lane = 0;
  };

  bool chance(double p) { return static_cast<double>(random_() >> 11) < p * 0x1p53; }
  Bytes size(double low, double high) {
    const double at = static_cast<double>(random_() >> 11) * 0x1p-53;
    return static_cast<Bytes>(std::exp2(std::log2(low) + at * (std::log2(high) - std::log2(low))));
  }
  void draw_layers() {
    for (std::size_t i = 0; i < layers_; ++i) {
      if (i > 1 && chance(0.5)) {
        network_.push_back(network_[random_() % i]);
        continue;
      }
      network_.push_back(
          {.weight = size(512 << 10, 192 << 20),
           .activation = size(2 << 20, 384 << 20),
           .brief = chance(0.5) ? size(32 << 10, 128 << 20) : 0,
           .lane = static_cast<trace::LaneId>(chance(0.2) ? trace_.lanes.size() - 1 : 0)});
    }
  }

  void add(const trace::Event& event) {
    trace_.entries.push_back({static_cast<trace::Tick>(trace_.entries.size()), 0, 0, event});
  }
  trace::BlockId allocate(Bytes bytes, trace::LaneId lane = 0) {
    add(trace::Request{++last_, bytes, lane, 0});
    live_[last_] = bytes;
    return last_;
  }
  void free(trace::BlockId id) {
    add(trace::Free{id});
    live_.erase(id);
  }
  void free_all(std::vector<trace::BlockId>& blocks) {
    for (const trace::BlockId id : blocks) free(id);
    blocks.clear();
  }

  std::vector<trace::BlockId> forward(std::uint64_t scale, bool keeps) {
    std::vector<trace::BlockId> kept;
    for (const Layer& layer : network_) {
      if (layer.brief != 0) free(allocate(layer.brief * scale, layer.lane));
      kept.push_back(allocate(layer.activation * scale, layer.lane));
      if (!keeps && kept.size() > 1) {
        free(kept.front());
        kept.erase(kept.begin());
      }
    }
    return kept;
  }

  void train(bool first) {
    if (gradients_ == Gradients::kFreedFirst) free_all(grads_);
    std::vector<trace::BlockId> kept = forward(1, true);
    if (output_) {
      const trace::BlockId made = allocate(network_.back().activation / 2 + 4096);
      if (result_ != 0) free(result_);
      result_ = made;
    }
    if (losses_) {
      kept_losses_.push_back(allocate(16 << 20));
      if (kept_losses_.size() > 2) {
        free(kept_losses_.front());
        kept_losses_.pop_front();
      }
    }
    std::vector<trace::BlockId> before;
    before.swap(grads_);
    for (std::size_t i = layers_; i-- > 0;) {
      const trace::BlockId upstream = allocate(network_[i].activation, network_[i].lane);
      grads_.push_back(allocate(network_[i].weight));
      if (!before.empty()) free(before[grads_.size() - 1]);
      free(kept[i]);
      free(upstream);
    }
    if (first && optimizer_) {
      for (const Layer& layer : network_) state_.push_back(allocate(layer.weight));
    }
    for (const Layer& layer : network_) free(allocate(layer.weight / 2 + 512));
    if (gradients_ == Gradients::kFreedLast) free_all(grads_);
    if (marks_) add(trace::StepMark{0});
  }

  void evaluate(std::uint64_t scale) {
    std::vector<trace::BlockId> last = forward(scale, false);
    free_all(last);
    if (marks_ && chance(0.5)) add(trace::StepMark{0});
  }

  std::mt19937_64 random_;
  Trace trace_;
  bool marks_ = false, optimizer_ = false, output_ = false, losses_ = false, equal_steps_ = false;
  std::size_t steps_ = 0, layers_ = 0, after_steps_ = 0;
  Gradients gradients_ = Gradients::kFreedFirst;
  std::vector<Layer> network_;
  std::vector<trace::BlockId> weights_, grads_, state_;
  std::deque<trace::BlockId> kept_losses_;
  trace::BlockId result_ = 0, last_ = 0;
  std::map<trace::BlockId, Bytes> live_;
  std::vector<std::size_t> first_of_step_;
};

// What a history holds of a run that begins at entry `first` and ends before entry `last`: as a
// snapshot has it, blocks that were there before come first; without `old_blocks` they are unknown,
// and so is what is freed of them.
inline Trace cut_history(const Trace& whole, std::size_t first, std::size_t last, bool old_blocks) {
  Trace cut;
  cut.program = whole.program;
  cut.alignment = whole.alignment;
  cut.lanes = whole.lanes;
  cut.strings = {"", std::string(kBeforeHistory)};
  std::map<trace::BlockId, trace::Request> before;
  for (std::size_t i = 0; i < first; ++i) {
    if (const auto* request = std::get_if<trace::Request>(&whole.entries[i].event))
      before[request->id] = *request;
    if (const auto* free = std::get_if<trace::Free>(&whole.entries[i].event))
      before.erase(free->id);
  }
  const auto add = [&](const trace::Event& event) {
    cut.entries.push_back({static_cast<trace::Tick>(cut.entries.size()), 0, 0, event});
  };
  if (old_blocks && !before.empty()) {
    add(trace::RangeBegin{1, 1, trace::RangeKind::kPhase});
    for (const auto& [id, request] : before) add(request);
    add(trace::RangeEnd{1});
  }
  for (std::size_t i = first; i < last; ++i) add(whole.entries[i].event);
  return cut;
}

}  // namespace berth::test
