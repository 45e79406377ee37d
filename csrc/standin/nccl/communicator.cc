#include "csrc/standin/nccl/communicator.h"

#include "csrc/standin/calls.h"
#include "csrc/standin/nccl/outbox.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace berth::standin {

// What the ranks of one communicator share: zeros at first, in an anonymous file of the process
// that made the id. A number of 0 stands for nothing yet.
struct SharedBlock {
  static constexpr int kMostRanks = Communicator::kMostRanks;
  static constexpr int kDepth = Communicator::kDepth;
  using Number = std::atomic<std::uint64_t>;
  static_assert(Number::is_always_lock_free && std::atomic<int>::is_always_lock_free);

  // One rank's part in a collective; its place is used again once all ranks are done with it.
  struct Post {
    Number posted, done;  // by the number of the collective
    int collective, type, reduction, root;
    std::uint64_t count;
    std::uint64_t offset, size;  // in the rank's outbox; no size where nothing is moved
  };
  struct Message {
    Number sent, received;
    std::uint64_t bytes;
    std::uint64_t offset, size;
  };
  struct Vote {
    Number cast, counted;
    int color, key;
    UniqueId id;
  };
  enum State : int { kAbsent = 0, kClaimed = 1, kPresent = 2, kLeft = 3 };
  struct Member {
    std::atomic<int> state;
    ProcessId process;
    int outbox;
    char bell[Bell::kNameSize];
    Vote vote;
    Post posts[kDepth];
  };

  std::atomic<std::uint64_t> number;  // of the id
  std::atomic<int> ranks;
  Member members[kMostRanks];
  Message messages[kMostRanks][kMostRanks][kDepth];  // from, to
};

namespace {

using Clock = std::chrono::steady_clock;

// What an id holds: where the processes of this machine find the memory that the ranks share.
struct IdContents {
  char magic[16];
  ProcessId process;
  int file;
  std::uint64_t number;
};
static_assert(sizeof(IdContents) <= sizeof(UniqueId));

constexpr char kMagic[16] = "berth stand-in";
constexpr auto kLookEvery = std::chrono::milliseconds(50);
// So long may a program that asks for errors abort a communicator before its streams fail.
constexpr auto kGrace = std::chrono::seconds(2);

SharedBlock* map_block(int file) {
  void* memory = mmap(nullptr, sizeof(SharedBlock), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<SharedBlock*>(memory);
}

// The files of ids that this process made and whose ranks have not all come.
std::mutex ids_mutex;
std::map<std::uint64_t, int>& own_ids() {
  static auto* ids = new std::map<std::uint64_t, int>;
  return *ids;
}

void close_own_id(std::uint64_t number) {
  const std::lock_guard lock(ids_mutex);
  const auto found = own_ids().find(number);
  if (found == own_ids().end()) return;
  close(found->second);
  own_ids().erase(found);
}

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

template <class Place>
Place& place_of(Place* places, std::uint64_t number) {
  return places[number % Communicator::kDepth];
}

}  // namespace

UniqueId Communicator::make_id() {
  UniqueId id{};
  IdContents contents{};
  std::memcpy(contents.magic, kMagic, sizeof kMagic);
  contents.process = this_process();
  const std::lock_guard lock(ids_mutex);
  static std::uint64_t made = 0;
  contents.number = static_cast<std::uint64_t>(contents.process.number) << 32 | ++made;
  contents.file = memfd_create("berth-standin-ranks", MFD_CLOEXEC);
  if (contents.file < 0 || ftruncate(contents.file, sizeof(SharedBlock)) != 0) return id;
  SharedBlock* block = map_block(contents.file);
  if (block == nullptr) return id;
  block->number.store(contents.number);
  munmap(block, sizeof *block);
  own_ids()[contents.number] = contents.file;
  std::memcpy(id.bytes, &contents, sizeof contents);
  return id;
}

std::shared_ptr<Communicator> Communicator::join(const UniqueId& id, int ranks, int rank,
                                                 int device, NcclAnswer& answer) {
  IdContents contents;
  std::memcpy(&contents, id.bytes, sizeof contents);
  const auto refuse = [&](NcclStatus status, std::string text) {
    answer = {status, std::move(text)};
    return nullptr;
  };
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return refuse(kNcclInvalidArgument, fmt::format("there is no rank {} of {}", rank, ranks));
  if (ranks > kMostRanks) {
    return refuse(
        kNcclInvalidUsage,
        fmt::format("{} ranks asked for, the stand-in's NCCL has at most {}", ranks, kMostRanks));
  }
  if (std::memcmp(contents.magic, kMagic, sizeof kMagic) != 0)
    return refuse(kNcclInvalidArgument, "the id is not one that ncclGetUniqueId made");
  const int file = open_file_of(contents.process, contents.file);
  if (file < 0) {
    return refuse(
        kNcclRemoteError,
        fmt::format("process {}, which made the id, does not run on this machine any more",
                    contents.process.number));
  }
  SharedBlock* block = map_block(file);
  close(file);
  if (block == nullptr) return refuse(kNcclSystemError, "cannot map what the ranks share");
  std::shared_ptr<Communicator> made(new Communicator);
  made->block_ = block;
  made->rank_ = rank;
  made->ranks_ = ranks;
  made->device_ = device;
  made->next_sent_.assign(at(ranks), 1);
  made->next_received_.assign(at(ranks), 1);
  made->looks_.assign(at(ranks), {});
  if (block->number.load() != contents.number)
    return refuse(kNcclInvalidUsage, "the ranks of this id have met already");
  int others = 0;
  if (!block->ranks.compare_exchange_strong(others, ranks) && others != ranks) {
    return refuse(kNcclInvalidUsage,
                  fmt::format("rank {} is one of {}, where others are of {}", rank, ranks, others));
  }
  SharedBlock::Member& member = block->members[rank];
  int absent = SharedBlock::kAbsent;
  if (!member.state.compare_exchange_strong(absent, SharedBlock::kClaimed))
    return refuse(kNcclInvalidUsage, fmt::format("there is a rank {} already", rank));
  member.process = this_process();
  member.outbox = Outbox::own().file();
  std::memcpy(member.bell, Bell::own().name(), sizeof member.bell);
  member.state.store(SharedBlock::kPresent);
  return made;
}

NcclAnswer Communicator::meet(std::chrono::seconds patience) {
  const auto deadline = Clock::now() + patience;
  for (int other = 0; other < ranks_;) {
    const SharedBlock::Member& member = block_->members[other];
    if (member.state.load() >= SharedBlock::kPresent) {
      // Opened now, so that what a rank has sent can be read when its process is over.
      if (outbox_of(member.process, member.outbox) >= 0) {
        ++other;
        continue;
      }
      return {kNcclRemoteError, fmt::format("{} is gone", describe(other))};
    }
    for (int present = 0; present < ranks_; ++present) {
      if (block_->members[present].state.load() >= SharedBlock::kPresent && is_gone(present))
        return {kNcclRemoteError, fmt::format("{} is gone", describe(present))};
    }
    if (Clock::now() > deadline) {
      return {kNcclRemoteError,
              fmt::format("rank {} of {} has not come in {} s", other, ranks_, patience.count())};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  close_own_id(block_->number.load());
  return {};
}

std::shared_ptr<Communicator> Communicator::split(int color, int key,
                                                  const std::vector<bool>& takes_part,
                                                  std::chrono::seconds patience,
                                                  NcclAnswer& answer) {
  const std::uint64_t number = ++votes_;
  SharedBlock::Vote& own = block_->members[rank_].vote;
  const auto deadline = Clock::now() + patience;
  // Waits for all; false where that is in vain.
  const auto wait_for_all = [&](auto ready) {
    for (int other = 0; other < ranks_;) {
      if (!takes_part[at(other)] || ready(block_->members[other].vote)) {
        ++other;
        continue;
      }
      if (is_gone(other) && !ready(block_->members[other].vote)) {
        answer = {kNcclRemoteError, fmt::format("{} is gone", describe(other))};
        return false;
      }
      if (Clock::now() > deadline) {
        answer = {kNcclRemoteError, fmt::format("{} has not come to the split in {} s",
                                                describe(other), patience.count())};
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  };
  // A vote may be overwritten once all have counted it.
  if (!wait_for_all([&](const auto& vote) { return vote.counted.load() + 1 >= number; }))
    return nullptr;
  own.color = color;
  own.key = key;
  own.id = color < 0 ? UniqueId{} : make_id();
  own.cast.store(number);
  if (!wait_for_all([&](const auto& vote) { return vote.cast.load() >= number; })) return nullptr;
  std::vector<std::pair<int, int>> order;  // key, old rank
  for (int other = 0; other < ranks_; ++other) {
    const SharedBlock::Vote& vote = block_->members[other].vote;
    if (takes_part[at(other)] && color >= 0 && vote.color == color)
      order.emplace_back(vote.key, other);
  }
  std::ranges::sort(order);
  UniqueId id{};
  int rank = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i].second == rank_) rank = static_cast<int>(i);
  }
  if (!order.empty()) id = block_->members[order.front().second].vote.id;
  IdContents unused;
  std::memcpy(&unused, own.id.bytes, sizeof unused);
  own.counted.store(number);
  if (rank != 0 && color >= 0) close_own_id(unused.number);
  if (color < 0) return nullptr;
  std::shared_ptr<Communicator> made =
      join(id, static_cast<int>(order.size()), rank, device_, answer);
  if (made == nullptr) return nullptr;
  answer = made->meet(patience);
  return answer.status == kNcclSuccess ? made : nullptr;
}

Communicator::~Communicator() {
  if (block_ != nullptr) munmap(block_, sizeof *block_);
}

Communicator::Part Communicator::begin(const CollectiveCall& call) {
  ++pending_;
  Part part{.call = call};
  part.number = call.collective == Collective::kSend      ? next_sent_[at(call.root)]++
                : call.collective == Collective::kReceive ? next_received_[at(call.root)]++
                                                          : next_++;
  return part;
}

bool Communicator::finish(Part& part) {
  part.over = true;
  --pending_;
  return true;
}

bool Communicator::proceed(Part& part, std::size_t copy_limit) {
  if (part.over) return true;
  if (aborted_) return finish(part);
  if (failure_.status != kNcclSuccess) {
    if (Clock::now() < failed_at_ + kGrace) return false;
    stick(kLaunchFailure);
    return finish(part);
  }
  bool over = false;
  if (ranks_ == 1 && part.call.collective < Collective::kSend) {
    if (part.call.bytes_in(0, 1) <= copy_limit) move_alone(part.call);
    over = true;
  } else if (part.call.collective == Collective::kSend) {
    over = proceed_send(part, copy_limit);
  } else if (part.call.collective == Collective::kReceive) {
    over = proceed_receive(part);
  } else {
    over = proceed_collective(part, copy_limit);
  }
  tidy();
  return over && finish(part);
}

template <class Done>
bool Communicator::await(int rank, Done done) {
  if (done()) return true;
  // What a rank did last it did before it was gone.
  if (seems_gone(rank) && !done())
    fail(kNcclRemoteError,
         fmt::format("{} is gone, and {} waits for it", describe(rank), describe(rank_)));
  return false;
}

bool Communicator::proceed_collective(Part& part, std::size_t copy_limit) {
  const CollectiveCall& call = part.call;
  SharedBlock::Post& own = place_of(block_->members[rank_].posts, part.number);
  if (!part.posted) {
    for (int other = 0; other < ranks_; ++other) {
      const SharedBlock::Post& post = place_of(block_->members[other].posts, part.number);
      if (part.number > kDepth &&
          !await(other, [&] { return post.done.load() + kDepth >= part.number; })) {
        return false;
      }
    }
    own.collective = static_cast<int>(call.collective);
    own.type = call.type;
    own.reduction = call.multiplied ? -1 : static_cast<int>(call.reduction);
    own.root = call.root;
    own.count = call.count;
    const std::size_t size = call.bytes_in(rank_, ranks_);
    own.size = size <= copy_limit ? size : 0;
    own.offset = own.size != 0 ? put(call, size) : 0;
    if (own.size != 0) sent_.push_back({false, 0, part.number, own.offset, own.size});
    part.posted = true;
    own.posted.store(part.number);
    ring_others();
  }
  for (const CollectiveCall::Piece& piece : call.pieces(rank_, ranks_)) {
    const SharedBlock::Post& post = place_of(block_->members[piece.rank].posts, part.number);
    if (!await(piece.rank, [&] { return post.posted.load() >= part.number; })) return false;
    if (post.collective != own.collective || post.type != own.type || post.count != own.count ||
        post.root != own.root || post.reduction != own.reduction) {
      fail(kNcclInvalidUsage,
           fmt::format("{} runs {} of {} elements of type {} as collective {}, where {} runs {} of "
                       "{} of type {}",
                       describe(rank_), collective_name(call.collective), own.count, own.type,
                       part.number, describe(piece.rank),
                       collective_name(static_cast<Collective>(post.collective)), post.count,
                       post.type));
      return false;
    }
  }
  if (!deliver(call, part.number)) return false;
  own.done.store(part.number);
  ring_others();
  return true;
}

bool Communicator::deliver(const CollectiveCall& call, std::uint64_t number) {
  constexpr std::size_t kChunk = std::size_t{64} << 10;
  const std::vector<CollectiveCall::Piece> pieces = call.pieces(rank_, ranks_);
  for (const CollectiveCall::Piece& piece : pieces) {
    // Too much to be moved.
    if (place_of(block_->members[piece.rank].posts, number).size == 0) return true;
  }
  auto* const to = static_cast<std::byte*>(call.to);
  if (!call.reduces()) {
    return std::ranges::all_of(pieces, [&](const auto& piece) {
      const auto& post = place_of(block_->members[piece.rank].posts, number);
      return read(piece.rank, post.offset + piece.from, to + piece.to, piece.size);
    });
  }
  Reducer reducer(call.type, call.multiplied ? Reduction::kSum : call.reduction);
  std::vector<std::byte> chunk(kChunk);
  const std::size_t size = pieces.empty() ? 0 : pieces.front().size;
  for (std::size_t done = 0; done < size; done += kChunk) {
    const std::size_t bytes = std::min(kChunk, size - done);
    for (const CollectiveCall::Piece& piece : pieces) {
      const auto& post = place_of(block_->members[piece.rank].posts, number);
      if (!read(piece.rank, post.offset + piece.from + done, chunk.data(), bytes)) return false;
      reducer.add(chunk.data(), bytes / element_bytes(call.type));
    }
    reducer.finish(to + done);
  }
  return true;
}

bool Communicator::proceed_send(Part& part, std::size_t copy_limit) {
  const CollectiveCall& call = part.call;
  SharedBlock::Message& message = place_of(block_->messages[rank_][call.root], part.number);
  if (part.number > kDepth &&
      !await(call.root, [&] { return message.received.load() + kDepth >= part.number; })) {
    return false;
  }
  message.bytes = call.bytes_in(rank_, ranks_);
  message.size = message.bytes <= copy_limit ? message.bytes : 0;
  message.offset = message.size != 0 ? put(call, message.size) : 0;
  if (message.size != 0)
    sent_.push_back({true, call.root, part.number, message.offset, message.size});
  message.sent.store(part.number);
  ring_others();
  return true;
}

bool Communicator::proceed_receive(Part& part) {
  const CollectiveCall& call = part.call;
  SharedBlock::Message& message = place_of(block_->messages[call.root][rank_], part.number);
  if (!await(call.root, [&] { return message.sent.load() >= part.number; })) return false;
  const std::size_t wanted = call.bytes_out(rank_, ranks_);
  if (message.bytes != wanted) {
    fail(kNcclInvalidUsage,
         fmt::format("{} receives {} bytes from {}, which sends {}", describe(rank_), wanted,
                     describe(call.root), message.bytes));
    return false;
  }
  if (message.size != 0 && !read(call.root, message.offset, call.to, wanted)) return false;
  message.received.store(part.number);
  ring_others();
  return true;
}

std::uint64_t Communicator::put(const CollectiveCall& call, std::size_t size) {
  if (!call.multiplied) return Outbox::own().put(call.from, size);
  std::vector<std::byte> elements(size);
  std::memcpy(elements.data(), call.from, size);
  multiply(call.type, elements.data(), size / element_bytes(call.type),
           call.factor_on_device != nullptr ? static_cast<const std::byte*>(call.factor_on_device)
                                            : call.factor.data());
  return Outbox::own().put(elements.data(), size);
}

void Communicator::move_alone(const CollectiveCall& call) {
  const std::size_t size = call.bytes_in(0, 1);
  if (size == 0) return;
  if (call.from != call.to) std::memmove(call.to, call.from, size);
  if (call.multiplied) {
    multiply(call.type, static_cast<std::byte*>(call.to), call.count,
             call.factor_on_device != nullptr ? static_cast<const std::byte*>(call.factor_on_device)
                                              : call.factor.data());
  }
}

bool Communicator::read(int rank, std::uint64_t offset, void* to, std::size_t size) {
  const SharedBlock::Member& member = block_->members[rank];
  if (read_outbox(outbox_of(member.process, member.outbox), offset, to, size)) return true;
  fail(kNcclSystemError, fmt::format("cannot read what {} sent", describe(rank)));
  return false;
}

void Communicator::fail(NcclStatus status, std::string text) {
  if (failure_.status != kNcclSuccess) return;
  std::fprintf(stderr, "berth stand-in: NCCL: %s\n", text.c_str());
  failure_ = {status, std::move(text)};
  failed_at_ = Clock::now();
}

void Communicator::abort() {
  aborted_ = true;
  leave();
}

void Communicator::leave() {
  block_->members[rank_].state.store(SharedBlock::kLeft);
  ring_others();
}

bool Communicator::tidy() {
  std::erase_if(sent_, [&](const Sent& sent) {
    const auto unread = [&](int rank) {
      const auto& number = sent.message
                               ? place_of(block_->messages[rank_][rank], sent.number).received
                               : place_of(block_->members[rank].posts, sent.number).done;
      return number.load() < sent.number && !seems_gone(rank);
    };
    bool wanted = false;
    for (int rank = 0; rank < ranks_ && !wanted; ++rank)
      wanted = (!sent.message || rank == sent.peer) && (rank != rank_ || !aborted_) && unread(rank);
    if (!wanted) Outbox::own().drop(sent.offset, sent.size);
    return !wanted;
  });
  return sent_.empty();
}

bool Communicator::is_gone(int rank) const {
  const SharedBlock::Member& member = block_->members[rank];
  return member.state.load() == SharedBlock::kLeft || (rank != rank_ && !is_alive(member.process));
}

bool Communicator::seems_gone(int rank) {
  Look& look = looks_[at(rank)];
  if (!look.gone && Clock::now() >= look.at + kLookEvery) look = {Clock::now(), is_gone(rank)};
  return look.gone;
}

void Communicator::ring_others() const {
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_) Bell::ring(block_->members[other].bell);
  }
}

std::string Communicator::describe(int rank) const {
  return fmt::format("rank {} (process {})", rank, block_->members[rank].process.number);
}

}  // namespace berth::standin
