#include "csrc/standin/nccl/collective.h"

namespace berth::standin {

const char* collective_name(Collective collective) {
  constexpr const char* kNames[] = {
      "ncclAllReduce", "ncclBroadcast", "ncclReduce",  "ncclAllGather", "ncclReduceScatter",
      "ncclAlltoAll",  "ncclGather",    "ncclScatter", "ncclSend",      "ncclRecv"};
  return kNames[static_cast<int>(collective)];
}

std::size_t CollectiveCall::bytes_in(int rank, int ranks) const {
  const std::size_t size = count * element_bytes(type);
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kSend:
      return size;
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return size * static_cast<std::size_t>(ranks);
    case Collective::kBroadcast:
      return rank == root ? size : 0;
    case Collective::kScatter:
      return rank == root ? size * static_cast<std::size_t>(ranks) : 0;
    case Collective::kReceive:
      return 0;
  }
  return 0;
}

std::size_t CollectiveCall::bytes_out(int rank, int ranks) const {
  const std::size_t size = count * element_bytes(type);
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kReceive:
      return size;
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return size * static_cast<std::size_t>(ranks);
    case Collective::kReduce:
      return rank == root ? size : 0;
    case Collective::kGather:
      return rank == root ? size * static_cast<std::size_t>(ranks) : 0;
    case Collective::kSend:
      return 0;
  }
  return 0;
}

bool CollectiveCall::reduces() const {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter;
}

std::vector<CollectiveCall::Piece> CollectiveCall::pieces(int rank, int ranks) const {
  const std::size_t size = count * element_bytes(type);
  std::vector<Piece> pieces;
  if (bytes_out(rank, ranks) == 0) return pieces;
  switch (collective) {
    case Collective::kBroadcast:
      return {{root, 0, 0, size}};
    case Collective::kScatter:
      return {{root, static_cast<std::size_t>(rank) * size, 0, size}};
    case Collective::kSend:
    case Collective::kReceive:
      return {};
    default:
      break;
  }
  const bool own_part =
      collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  for (int other = 0; other < ranks; ++other) {
    pieces.push_back({other, own_part ? static_cast<std::size_t>(rank) * size : 0,
                      reduces() ? 0 : static_cast<std::size_t>(other) * size, size});
  }
  return pieces;
}

}  // namespace berth::standin
