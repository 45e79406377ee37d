#pragma once

#include "csrc/standin/nccl/reduction.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth::standin {

enum class Collective : int {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kReceive,
};

const char* collective_name(Collective collective);

// One collective as one rank asked for it, or a message to or from a peer.
struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  int type = 0;
  Reduction reduction = Reduction::kSum;
  int root = 0;  // or the peer
  std::size_t count = 0;
  const void* from = nullptr;
  void* to = nullptr;
  // What a rank's own elements are multiplied by first: one element, here or on the device.
  bool multiplied = false;
  std::array<std::byte, 8> factor{};
  const void* factor_on_device = nullptr;

  // What this rank puts in and gets out, in bytes.
  [[nodiscard]] std::size_t bytes_in(int rank, int ranks) const;
  [[nodiscard]] std::size_t bytes_out(int rank, int ranks) const;
  [[nodiscard]] bool reduces() const;

  // What a rank reads of what another put in: where in it, and where that goes.
  struct Piece {
    int rank = 0;
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t size = 0;
  };
  [[nodiscard]] std::vector<Piece> pieces(int rank, int ranks) const;
};

}  // namespace berth::standin
