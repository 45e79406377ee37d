#include "csrc/torch/step/account.h"

#include "csrc/torch/step/generators.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

// Of the CPU's generator. Looked at once: a state takes room, which would count as a step's where
// it is planned again at its end.
Bytes bytes_of_state() {
  static std::atomic<Bytes> known{0};
  Bytes bytes = known.load(std::memory_order_relaxed);
  if (bytes == 0) {
    bytes = state_of(at::detail::getDefaultCPUGenerator()).size();
    known.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

class Account {
 public:
  // Writes down what is asked of the allocator of `device`, where one is given.
  Account(const Program& program, const Instructions& instructions,
          std::optional<c10::Device> device = std::nullopt)
      : program_(program),
        instructions_(instructions),
        device_(device),
        buffers_(instructions.buffers, kNothing),
        away_(instructions.buffers, 0),
        holds_(instructions.buffers, kNoStorage),
        holders_(program.storages.size(), kNoBuffer),
        versions_(program.storages.size(), 0),
        kept_(program.storages.size(), kNothing),
        of_body_(program.storages.size(), kNothing),
        comes_(program.storages.size()),
        moves_(program.storages.size()),
        went_(program.storages.size()),
        ran_(program.calls.size()) {
    for (const Call& call : program.calls) {
      if (call.by_body) for_each_made(call, [&](StorageNumber one) { comes_[one] = true; });
      for (const Operand& one : call.operands)
        if (one.wrapped_number && from_outside(one.storage) && !stays(one.storage))
          comes_[one.storage] = true;
    }
    for (const Instruction& one : instructions.list)
      if (one.kind == Instruction::Kind::kCopyOut && is_resident(one.storage))
        moves_[one.storage] = true;
    for (StorageNumber one = 0; one < program.storages.size(); ++one) {
      if (program.storages[one].maker != RecordedStorage::kFromOutside || comes_[one]) continue;
      const Bytes bytes = program.storages[one].bytes;
      const bool counts = moves_[one] || !stays(one);
      if (!counts) memory_.resident += bytes;
      bind(one, counts ? bytes : 0);
    }
    for (const StorageNumber one : instructions.begin_on_host)
      if (moves_[one]) send(one, instructions.first_of[one]);
    most_ = live_;
    if (device_) ask_for_batch();
  }

  StepMemory run() {
    for (std::uint32_t call = 0; call < program_.calls.size(); ++call)
      if (program_.calls[call].host_read || program_.calls[call].checked) run_through(call);
    body_at(static_cast<std::uint32_t>(program_.calls.size()));
    for (; next_ < instructions_.list.size(); ++next_) step(instructions_.list[next_]);
    for (StorageNumber one = 0; one < holders_.size(); ++one)
      if (holders_[one] != kNoBuffer && needed(one)) copy_in(holders_[one]);
    note_state();
    memory_.peak = memory_.resident + most_;
    return memory_;
  }

  // What was asked for. To be called behind run().
  StepRequests requests() {
    StepRequests result;
    for (const StepRequests::Event& event : events_) {
      result.events.push_back(event);
      if (!event.of_last) continue;
      const StorageNumber left = event.request;  // while it was not known which request makes it
      const BufferNumber buffer = holders_[left];
      const Block block = buffer != kNoBuffer ? buffers_[buffer] : kept_[left];
      if (block == kNothing || blocks_[block].request == kNoRequest)
        result.events.pop_back();
      else
        result.events.back().request = blocks_[block].request;
    }
    return result;
  }

 private:
  // Memory that somebody holds, counted as long as anybody does.
  using Block = std::size_t;
  static constexpr Block kNothing = ~Block{0};

  static constexpr std::uint32_t kNoRequest = ~std::uint32_t{0};
  struct Memory {
    Bytes bytes = 0;
    std::size_t holders = 1;
    std::uint32_t request = kNoRequest;  // of the step, that it came with
  };

  Block make(Bytes bytes, c10::Device device) {
    blocks_.push_back({.bytes = bytes, .request = began_ ? ask(bytes, device) : kNoRequest});
    live_ += bytes;
    most_ = std::max(most_, live_);
    return blocks_.size() - 1;
  }
  Block make_for(StorageNumber storage, Bytes bytes) {
    return make(bytes, program_.storages[storage].device);
  }
  Block share(Block block) {
    if (block != kNothing) ++blocks_[block].holders;
    return block;
  }
  void let_go(Block& block) {
    if (block != kNothing && --blocks_[block].holders == 0) {
      live_ -= blocks_[block].bytes;
      give_back(blocks_[block].request);
    }
    block = kNothing;
  }

  // The program makes what is fresh in each step before it begins, and lets go of the last one then
  // that the step did not.
  void ask_for_batch() {
    for (StorageNumber one = 0; one < program_.storages.size(); ++one) {
      const RecordedStorage& storage = program_.storages[one];
      const Block block = of_body_[one];
      if (!storage.fresh || block == kNothing) continue;
      blocks_[block].request = ask(storage.bytes, storage.device);
      if (storage.gone == RecordedStorage::kNever)
        events_.push_back({.request = one, .of_last = true});
    }
    began_ = true;
  }

  // A request that is written down, where that is wanted.
  std::uint32_t ask(Bytes bytes, c10::Device device) {
    if (!device_ || device != *device_ || bytes == 0) return kNoRequest;
    events_.push_back({.bytes = bytes});
    return asked_++;
  }
  void give_back(std::uint32_t request) {
    if (request != kNoRequest) events_.push_back({.request = request});
  }

  [[nodiscard]] bool from_outside(StorageNumber one) const {
    return program_.storages[one].of_body();
  }
  // Calls visit(StorageNumber) for each storage that a call makes which the body runs.
  template <typename Visit>
  void for_each_made(const Call& call, const Visit& visit) const {
    std::vector<StorageNumber> made;
    for (const ResultTensor& one : call.result_tensors) {
      const StorageNumber storage = one.operand.storage;
      const auto takes = [&](const Operand& other) { return other.storage == storage; };
      if (one.argument == ResultTensor::kNew && storage != kNoStorage &&
          std::none_of(call.operands.begin(), call.operands.end(), takes) &&
          std::find(made.begin(), made.end(), storage) == made.end())
        made.push_back(storage);
    }
    for (const StorageNumber one : made) visit(one);
  }
  // Whether it is there before the step and after it.
  [[nodiscard]] bool stays(StorageNumber one) const {
    return program_.kinds[one] == StorageKind::kResident || program_.storages[one].outlives;
  }

  void bind(StorageNumber number, Bytes bytes) {
    const BufferNumber buffer = instructions_.first_of[number];
    buffers_[buffer] = make_for(number, bytes);
    of_body_[number] = share(buffers_[buffer]);
    holds_[buffer] = number;
    holders_[number] = buffer;
  }

  // The body has made that many calls, and the numbers of the next one: what comes with them is
  // there, what it has let go of is not.
  void body_at(std::uint32_t calls) {
    for (; body_ < calls; ++body_) {
      const Call& call = program_.calls[body_];
      numbers_of(call);
      if (call.by_body) for_each_made(call, [&](StorageNumber one) { come(one); });
    }
    if (calls < program_.calls.size()) numbers_of(program_.calls[calls]);
    for (StorageNumber one = 0; one < program_.storages.size(); ++one) {
      if (program_.storages[one].gone <= calls) {
        let_go(of_body_[one]);
        let_go(kept_[one]);
      }
      if (device_ && program_.storages[one].gone_in_next <= calls && !went_[one]) {
        went_[one] = true;
        events_.push_back({.request = one, .of_last = true});
      }
    }
    note_state();
  }
  void numbers_of(const Call& call) {
    for (const Operand& one : call.operands)
      if (one.wrapped_number && comes_[one.storage] && of_body_[one.storage] == kNothing &&
          buffers_[instructions_.first_of[one.storage]] == kNothing)
        come(one.storage);
  }
  void come(StorageNumber number) { bind(number, program_.storages[number].bytes); }
  // The generator's state is looked at before and after operators are run.
  void note_state() {
    const auto drawn = std::any_of(program_.calls.begin(), program_.calls.begin() + body_,
                                   [](const Call& call) { return call.random; });
    if (drawn && !program_.sets_generators) most_ = std::max(most_, live_ + state_);
  }
  [[nodiscard]] bool needed(StorageNumber storage) const {
    const RecordedStorage& one = program_.storages[storage];
    return !one.of_body() && one.maker < body_ && one.gone > body_;
  }

  void run_through(std::uint32_t call) {
    body_at(call);
    while (!ran_[call]) step(instructions_.list.at(next_++));
    note_state();
  }

  void step(const Instruction& instruction) {
    const BufferNumber buffer = instruction.buffer;
    switch (instruction.kind) {
      case Instruction::Kind::kRelease:
        keep(instruction);
        drop(buffer);
        return;
      case Instruction::Kind::kCopyOut:
        if (is_resident(instruction.storage)) {
          send(instruction.storage, buffer);
          return;
        }
        if (buffers_[buffer] == kNothing || from_outside(instruction.storage)) return;
        away_[buffer] = blocks_[buffers_[buffer]].bytes;
        let_go(buffers_[buffer]);
        return;
      case Instruction::Kind::kCopyIn:
        copy_in(buffer);
        if (is_resident(instruction.storage) && of_body_[instruction.storage] == kNothing)
          of_body_[instruction.storage] = share(buffers_[buffer]);
        return;
      case Instruction::Kind::kRun:
        run(instruction);
        return;
    }
  }

  [[nodiscard]] bool is_resident(StorageNumber storage) const {
    return storage != kNoStorage && program_.kinds[storage] == StorageKind::kResident;
  }
  // The storage of somebody else, who has none of its bytes meanwhile.
  void send(StorageNumber storage, BufferNumber buffer) {
    if (buffers_[buffer] == kNothing) return;
    away_[buffer] = blocks_[buffers_[buffer]].bytes;
    let_go(of_body_[storage]);
    let_go(buffers_[buffer]);
  }

  void copy_in(BufferNumber buffer) {
    if (buffers_[buffer] == kNothing && away_[buffer] > 0)
      buffers_[buffer] = make_for(holds_[buffer], away_[buffer]);
    away_[buffer] = 0;
  }

  bool keep(const Instruction& instruction) {
    const BufferNumber buffer = instruction.buffer;
    const StorageNumber storage = holds_[buffer];
    if (storage == kNoStorage || holders_[storage] != buffer) return false;
    if ((instruction.made_again && storage == instruction.storage) || !needed(storage))
      return false;
    copy_in(buffer);
    let_go(kept_[storage]);
    kept_[storage] = share(buffers_[buffer]);
    holders_[storage] = kNoBuffer;
    return true;
  }

  void drop(BufferNumber buffer) {
    if (const StorageNumber storage = holds_[buffer];
        storage != kNoStorage && holders_[storage] == buffer)
      holders_[storage] = kNoBuffer;
    let_go(buffers_[buffer]);
    away_[buffer] = 0;
  }

  // A kernel's requests as they were recorded; make(number of a result tensor) asks for that one.
  template <typename Make>
  void ask_as_recorded(const Call& call, const Make& make) {
    if (!device_) return;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> own;  // freed when, and the request
    for (std::uint32_t n = 0; n < call.requests.size(); ++n) {
      std::erase_if(own, [&](const auto& one) {
        if (one.first != n) return false;
        give_back(one.second);
        return true;
      });
      const KernelRequest& request = call.requests[n];
      if (request.result != KernelRequest::kNone)
        make(request.result);
      else if (request.freed != KernelRequest::kNone)  // else it stays for later steps
        own.emplace_back(request.freed, ask(request.bytes, request.device));
    }
    for (const auto& [when, request] : own) give_back(request);
  }

  void run(const Instruction& instruction) {
    const Call& call = program_.calls[instruction.call];
    const bool again = ran_[instruction.call];
    ran_[instruction.call] = true;
    if (call.by_body) return;
    if (call.barrier) {
      std::vector<StorageNumber> comes;
      for_each_made(call, [&](StorageNumber one) { comes.push_back(one); });
      ask_as_recorded(call, [&](std::uint32_t result) {
        const auto one =
            std::find(comes.begin(), comes.end(), call.result_tensors[result].operand.storage);
        if (one == comes.end()) return;
        come(*one);
        comes.erase(one);
      });
      for (const StorageNumber one : comes) come(one);
      most_ = std::max(most_, live_ + call.workspace);
    }
    const bool over = instruction.storage != kNoStorage && !keep(instruction);
    // What it draws from is looked at, or set for the time of the call.
    const bool sets = call.random && (again || program_.sets_generators);
    if (sets || (call.random && instruction.again_later)) most_ = std::max(most_, live_ + state_);
    Bytes beside = 0;  // what the kernel holds, and goes with it
    if (again)
      for (const std::uint32_t operand : call.aside)
        beside += at::detail::computeStorageNbytesContiguous(
            call.operands[operand].sizes, call.operands[operand].type.itemsize());
    // Kernels on the CPU take one element of a list at a time, so a part takes what all take.
    if (!over) beside += call.workspace;
    std::vector<std::pair<BufferNumber, Block>> made;
    const auto make_result = [&](BufferNumber buffer) {
      const auto has_it = [&](const auto& one) { return one.first == buffer; };
      if (buffer == kNoBuffer || std::any_of(made.begin(), made.end(), has_it)) return;
      for (const Instruction::Made& one : instruction.made)
        if (one.buffer == buffer)
          made.emplace_back(buffer, make_for(one.storage, program_.storages[one.storage].bytes));
    };
    if (!over && !call.barrier) {
      const bool as_recorded =
          instruction.way == Instruction::kAsRecorded && instruction.count == Instruction::kAll;
      if (as_recorded)
        ask_as_recorded(call,
                        [&](std::uint32_t result) { make_result(instruction.results[result]); });
      for (const BufferNumber buffer : instruction.results) make_result(buffer);
      if (!as_recorded && device_)
        give_back(ask(instruction.way == Instruction::kAsRecorded
                          ? call.workspace
                          : call.ways[instruction.way].workspace,
                      *device_));
    }
    most_ = std::max(most_, live_ + std::max(beside, sets ? state_ : 0));
    for (const auto& [buffer, block] : made) {
      let_go(buffers_[buffer]);
      buffers_[buffer] = block;
    }
    for (const Instruction::Made& one : instruction.made) {
      const StorageNumber before = std::exchange(holds_[one.buffer], one.storage);
      if (before != kNoStorage && before != one.storage && holders_[before] == one.buffer)
        holders_[before] = kNoBuffer;
      if (one.version < versions_[one.storage]) continue;
      versions_[one.storage] = one.version;
      holders_[one.storage] = one.buffer;
    }
  }

  const Program& program_;
  const Instructions& instructions_;
  const std::optional<c10::Device> device_;
  std::vector<StepRequests::Event> events_;  // of that device; frees of last by storage
  std::uint32_t asked_ = 0;                  // requests among them
  bool began_ = false;                       // what was there before is
  StepMemory memory_;
  const Bytes state_ = bytes_of_state();
  Bytes live_ = 0, most_ = 0;  // beside what is resident
  std::size_t next_ = 0;       // instruction
  std::uint32_t body_ = 0;     // calls that the body has made
  std::vector<Memory> blocks_;
  std::vector<Block> buffers_;
  std::vector<Bytes> away_;            // by buffer: on the host
  std::vector<StorageNumber> holds_;   // by buffer
  std::vector<BufferNumber> holders_;  // by storage
  std::vector<std::uint32_t> versions_;
  std::vector<Block> kept_, of_body_;  // by storage
  // By storage: not there when the step begins, a room that the body fills or a number of its own.
  std::vector<bool> comes_;
  std::vector<bool> moves_;  // by storage: a resident that the instructions copy
  std::vector<bool> went_;   // by storage: that of the step before
  std::vector<bool> ran_;
};

}  // namespace

StepMemory memory_of(const Program& program, const Instructions& instructions) {
  return Account(program, instructions).run();
}

StepRequests requests_of(const Program& program, const Instructions& instructions,
                         c10::Device device) {
  Account account(program, instructions, device);
  (void)account.run();
  return account.requests();
}

}  // namespace berth::torch::step
