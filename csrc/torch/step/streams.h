#pragma once

#include "csrc/torch/step/record.h"

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// Steps of several streams.
//
// A schedule queues the kernel of a call later than the body makes the call. On one stream nobody
// can tell. Between streams an event orders what was queued before it: a kernel that is queued
// behind its event is not ordered. libtorch itself records such events, in autograd and for
// collectives, and no operator shows them. So in a step of several streams nothing is put off: each
// call runs when it is called, in the order of the record. Each stream then gets the kernels of the
// step as written between the same events. A schedule still frees, recomputes and copies values.
// Its own kernels and copies are behind all that the step's own stream was asked for before.
//
// A step has several streams where one of its calls is on another stream of its device, where it
// calls `record_stream`, or where Python records, waits for or asks an event or a stream
// (berth::order_streams). The step's own stream of a device has the most of its calls. All others
// are side streams, whichever they are in each step:
//
// - A call on a side stream is a barrier. The body runs it, on the stream that is current, with its
//   real bytes, and makes its results there.
// - A storage that such a call takes or makes is shared. A side stream may use its bytes at any
//   time. So a shared storage is not recomputed, copied or given to another value (Call::twin). It
//   is freed when nobody has it any more, as in the step as written, or later. Its allocator then
//   knows its stream and the streams that `record_stream` named, as in the step as written.
// - A value that outlives the step stays on the device, too: an event of the step may order those
//   who take it later.
//
// A kernel that is no operator, of another library, gets pointers. Asking for these is a barrier.
namespace berth::torch::step {

// On which stream a record's calls were.
class StreamsOfCalls {
 public:
  // The streams that are current on the devices of a call with these arguments, by a number of
  // their own; 0 for the CPU. O(arguments + streams).
  [[nodiscard]] std::uint32_t note(c10::ArrayRef<c10::IValue> arguments);
  // `stream` is the step's own one of its device, whoever has the most calls.
  void set_own(c10::Stream stream);
  // Calls from `first` on, whose streams have the numbers of note(): 0 on the step's own streams of
  // their devices, or on none; 1 where one is another.
  void settle(std::vector<Call>& calls, std::size_t first) const;

 private:
  struct Seen {
    c10::Stream stream;
    std::size_t calls = 0;
    bool own = false;
  };
  std::vector<Seen> seen_;
  std::vector<std::vector<std::size_t>> together_;  // by number - 1: which of those
};

// The body runs the call, on whatever values it takes.
void make_barrier(StepRecord& record, std::uint32_t number);
// Makes the record one of several streams: its calls run when they are called. Requires settle().
void run_at_calls(StepRecord& record);
// Whether a call is on a side stream.
[[nodiscard]] bool has_side_streams(const StepRecord& record);

// Streams that wait, on the device, for what a step had put off when it left its program: events
// that the body recorded before do not order that.
class OrderedBehind {
 public:
  // Behind what these streams have been asked for.
  void begin(const std::vector<c10::Stream>& streams);
  // The current streams of the devices of these arguments are about to be used. O(arguments +
  // streams).
  void order(c10::ArrayRef<c10::IValue> arguments);

 private:
  struct Point {
    c10::Event event;
    std::vector<c10::Stream> behind;  // that wait, or need not
  };
  std::vector<Point> points_;  // one for each device
};

}  // namespace berth::torch::step
