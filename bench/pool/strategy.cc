#include "bench/pool/strategy.h"

#include "csrc/core/checksum.h"

#include <limits>
#include <unordered_map>

namespace berth::bench {
namespace {

using replay::Operation;
using replay::Workload;
using Kind = Operation::Kind;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

class OneEnd final : public Strategy {
 public:
  Mobility classify(const Operation&) override { return Mobility::kMovable; }
  void freed(std::uint64_t) override {}
  void mark() override {}
};

class BySize final : public Strategy {
 public:
  explicit BySize(const Workload& workload) : blocks_(workload.block_count) {}
  Mobility classify(const Operation& request) override {
    blocks_[request.block] = {request.size, request.lane, classifier_.now()};
    return classifier_.classify(request.size, request.lane, 0);
  }
  void freed(std::uint64_t block) override {
    const Block& known = blocks_[block];
    classifier_.learn(known.size, known.lane, 0, known.born);
  }
  void mark() override { classifier_.mark_step(); }

 private:
  struct Block {
    Bytes size = 0;
    LaneKey lane = 0;
    std::uint64_t born = 0;
  };
  MobilityClassifier classifier_;
  std::vector<Block> blocks_;
};

// A class is what is alike in size, lane and place in the step, to a 64th request. Movable where
// its last two blocks were brief, resident where none was freed within two marks, else temporary; a
// class that is new goes by size.
class ByClass final : public Strategy {
 public:
  ByClass(const Workload& workload, std::uint64_t brief)
      : brief_(brief), blocks_(workload.block_count) {}
  Mobility classify(const Operation& request) override {
    const std::uint64_t place = requests_++ - step_begin_;
    const std::uint64_t key = hash_combine(hash_combine(request.size, request.lane), place / 64);
    blocks_[request.block] = {key, requests_, steps_};
    const auto known = classes_.find(key);
    const Class found = known == classes_.end() ? Class{} : known->second;
    classes_[key].made = true;
    if (found.lasting >= 2 || (found.made && !found.freed && steps_ > 1))
      return Mobility::kResident;
    if (!found.freed)
      return request.size < MobilityClassifier::kSmall ? Mobility::kMovable : Mobility::kTemporary;
    return found.brief >= 2 ? Mobility::kMovable : Mobility::kTemporary;
  }
  void freed(std::uint64_t block) override {
    const Block& known = blocks_[block];
    Class& found = classes_[known.key];
    found.freed = true;
    found.brief = requests_ - known.born <= brief_ ? found.brief + 1 : 0;
    found.lasting = steps_ - known.step >= 2 ? found.lasting + 1 : 0;
  }
  void mark() override {
    ++steps_;
    step_begin_ = requests_;
  }

 private:
  struct Class {
    bool made = false, freed = false;
    unsigned brief = 0, lasting = 0;  // of the last frees, how many in a row
  };
  struct Block {
    std::uint64_t key = 0, born = 0, step = 0;
  };
  std::uint64_t brief_, requests_ = 0, step_begin_ = 0, steps_ = 0;
  std::unordered_map<std::uint64_t, Class> classes_;
  std::vector<Block> blocks_;
};

class Foresight final : public Strategy {
 public:
  Foresight(const Workload& workload, std::uint64_t brief) {
    struct Life {
      std::uint64_t first = 0, last = kNever, first_step = 0, last_step = kNever;
    };
    std::vector<Life> lives(workload.block_count);
    std::uint64_t requests = 0, steps = 0;
    for (const Operation& operation : workload.operations) {
      if (operation.kind == Kind::kAllocate) {
        lives[operation.block].first = ++requests;
        lives[operation.block].first_step = steps;
      } else if (operation.kind == Kind::kFree) {
        lives[operation.block].last = requests;
        lives[operation.block].last_step = steps;
      } else if (operation.kind == Kind::kStep) {
        ++steps;
      }
    }
    for (const Life& life : lives) {
      const bool resident = life.last == kNever || life.last_step - life.first_step >= 2;
      mobility_.push_back(resident                          ? Mobility::kResident
                          : life.last - life.first <= brief ? Mobility::kMovable
                                                            : Mobility::kTemporary);
    }
  }
  Mobility classify(const Operation& request) override { return mobility_[request.block]; }
  void freed(std::uint64_t) override {}
  void mark() override {}

 private:
  std::vector<Mobility> mobility_;
};

}  // namespace

std::unique_ptr<Strategy> make_strategy(Split split, const Workload& workload,
                                        std::uint64_t brief) {
  switch (split) {
    case Split::kOneEnd:
      return std::make_unique<OneEnd>();
    case Split::kSize:
      return std::make_unique<BySize>(workload);
    case Split::kClass:
      return std::make_unique<ByClass>(workload, brief);
    case Split::kForesight:
      return std::make_unique<Foresight>(workload, brief);
  }
  return nullptr;
}

}  // namespace berth::bench
