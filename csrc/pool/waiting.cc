#include "csrc/pool/waiting.h"

#include <algorithm>
#include <new>
#include <utility>

namespace berth {

void WaitingChunks::Queue::insert_after(Chunk* place, Chunk* chunk) noexcept {
  chunk->left = place;
  chunk->right = place == nullptr ? head : place->right;
  (chunk->left == nullptr ? head : chunk->left->right) = chunk;
  (chunk->right == nullptr ? tail : chunk->right->left) = chunk;
}

Chunk* WaitingChunks::Queue::erase(Chunk* chunk) noexcept {
  (chunk->left == nullptr ? head : chunk->left->right) = chunk->right;
  (chunk->right == nullptr ? tail : chunk->right->left) = chunk->left;
  return chunk;
}

Bytes WaitingChunks::Queue::bytes() const noexcept {
  Bytes sum = 0;
  for (const Chunk* chunk = head; chunk != nullptr; chunk = chunk->right) sum += chunk->size;
  return sum;
}

// Record first, let go after: the points must cover all work queued before the bytes come free.
bool WaitingChunks::add(Chunk* chunk) noexcept {
  for (LaneEvents::Point& point : chunk->points) {
    LaneEvents::Point recorded;
    switch (events_.record(point.lane, &recorded)) {
      case LaneEvents::Recorded::kYes:
        point = recorded;
        break;
      // mutant: s7-held
      case LaneEvents::Recorded::kCapturing:
        break;
      case LaneEvents::Recorded::kUnsupported:
      case LaneEvents::Recorded::kFailed:
        // mutant: s2-pool
        await_proof(chunk);
        point = {};
        break;
    }
  }
  return enqueue(chunk);
}

bool WaitingChunks::enqueue(Chunk* chunk) noexcept {
  if (chunk->proof > events_.synchronizations()) {
    unproven_.insert_after(unproven_.tail, chunk);
    unproven_bytes_ += chunk->size;
    return true;
  }
  for (std::vector<LaneEvents::Point>& points = chunk->points; !points.empty(); points.pop_back()) {
    const LaneEvents::Point point = points.back();
    // mutant: s7-let-go
    if (point.number != kUnrecorded && events_.reached(point)) continue;
    Queue* const queue = queue_of(point.lane);
    if (queue == nullptr) {
      points.pop_back();
      await_proof(chunk);
      return enqueue(chunk);
    }
    Chunk* place = queue->tail;
    while (place != nullptr && place->points.back().number > point.number) place = place->left;
    queue->insert_after(place, chunk);
    return true;
  }
  return false;
}

WaitingChunks::Queue* WaitingChunks::queue_of(LaneKey lane) noexcept {
  try {
    const auto known = queues_.find(lane);
    if (known != queues_.end()) return &known->second;
    in_turn_.reserve(in_turn_.size() + 1);
    Queue& queue = queues_[lane];
    queue.lane = lane;
    in_turn_.push_back(&queue);
    return &queue;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

Chunk* WaitingChunks::take_ready(std::size_t lanes) noexcept {
  Chunk* ready = nullptr;
  drain_unproven(&ready);
  for (std::size_t left = std::min(lanes, in_turn_.size()); left > 0 && !in_turn_.empty(); --left) {
    if (next_in_turn_ >= in_turn_.size()) next_in_turn_ = 0;
    Queue& queue = *in_turn_[next_in_turn_];
    drain(queue, &ready);
    if (queue.head != nullptr) {
      ++next_in_turn_;
      continue;
    }
    forget(next_in_turn_);
  }
  return ready;
}

void WaitingChunks::forget(std::size_t place) noexcept {
  const LaneKey lane = in_turn_[place]->lane;
  in_turn_[place] = in_turn_.back();
  in_turn_.pop_back();
  queues_.erase(lane);
}

Chunk* WaitingChunks::take_ordered() noexcept {
  const auto fuller = [](const Queue* one, const Queue* other) {
    return one->bytes() < other->bytes();
  };
  const auto most = std::max_element(in_turn_.begin(), in_turn_.end(), fuller);
  if (most != in_turn_.end()) std::iter_swap(in_turn_.begin(), most);
  Chunk* ordered = nullptr;
  for (std::size_t i = 0; i < in_turn_.size() && ordered == nullptr; ++i) {
    drain_in_order(*in_turn_[i], &ordered);
    if (in_turn_[i]->head == nullptr) forget(i);
  }
  return ordered;
}

// The newest first: who waits for its point has waited for all before it.
void WaitingChunks::drain_in_order(Queue& queue, Chunk** ordered) noexcept {
  for (Chunk* chunk = queue.tail; chunk != nullptr;) {
    Chunk* const before = chunk->left;
    const bool waits =
        std::all_of(chunk->points.begin(), chunk->points.end(), [&](LaneEvents::Point point) {
          // mutant: s7-ordered
          return point.number != kUnrecorded && events_.wait(chunk->lane, point);
        });
    if (waits) {
      queue.erase(chunk)->right = *ordered;
      *ordered = chunk;
    }
    chunk = before;
  }
}

void WaitingChunks::settle(Chunk* chunk, Chunk** ready) noexcept {
  if (enqueue(chunk)) return;
  chunk->right = *ready;
  *ready = chunk;
}

void WaitingChunks::drain(Queue& queue, Chunk** ready) noexcept {
  while (queue.head != nullptr) {
    const LaneEvents::Point point = queue.head->points.back();
    if (point.number != kUnrecorded) {
      // mutant: s7-complete
      if (!events_.reached(point)) return;
      settle(queue.pop(), ready);
      continue;
    }
    // From here to the tail all wait for the end of a capture.
    LaneEvents::Point fresh;
    const LaneEvents::Recorded recorded = events_.record(queue.lane, &fresh);
    // mutant: s13-deferred
    if (recorded == LaneEvents::Recorded::kCapturing) return;
    const bool proven = recorded == LaneEvents::Recorded::kYes;
    for (Chunk* chunk = queue.head; chunk != nullptr; chunk = chunk->right) {
      chunk->points.back() = fresh;
      if (!proven) await_proof(chunk);
    }
  }
}

void WaitingChunks::drain_unproven(Chunk** ready) noexcept {
  while (unproven_.head != nullptr && unproven_.head->proof <= events_.synchronizations()) {
    unproven_bytes_ -= unproven_.head->size;
    settle(unproven_.pop(), ready);
  }
}

Bytes WaitingChunks::walk() const noexcept {
  Bytes bytes = 0;
  const auto add = [&](const Queue& queue) {
    for (const Chunk* chunk = queue.head; chunk != nullptr; chunk = chunk->right)
      bytes += chunk->size;
  };
  add(unproven_);
  for (const auto& [lane, queue] : queues_) add(queue);
  return bytes;
}

}  // namespace berth
