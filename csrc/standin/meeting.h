#pragma once

namespace berth::standin {

// What an operation at the head of its stream waits for and other streams or processes bring about:
// the other ranks of a collective.
class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  // Takes part as far as that can be done now, and returns whether it is over. Never blocks. Under
  // the machine's lock, from any thread, again and again until it is over.
  virtual bool proceed() = 0;
};

}  // namespace berth::standin
