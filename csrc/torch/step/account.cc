#include "csrc/torch/step/account.h"

#include "csrc/torch/step/buffers.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

// Counts memory as long as somebody holds it, and writes down what is asked of the allocator of one
// device, where one is given. Outlives its shares.
class Ledger {
 public:
  explicit Ledger(std::optional<c10::Device> device) : device_(device) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  static constexpr std::uint32_t kNoRequest = ~std::uint32_t{0};

  // Memory that somebody holds, together with others.
  class Share {
   public:
    Share() = default;
    Share(const Share& other) noexcept : ledger_(other.ledger_), block_(other.block_) {
      if (ledger_ != nullptr) ++ledger_->blocks_[block_].holders;
    }
    Share(Share&& other) noexcept
        : ledger_(std::exchange(other.ledger_, nullptr)), block_(other.block_) {}
    Share& operator=(Share other) noexcept {
      std::swap(ledger_, other.ledger_);
      std::swap(block_, other.block_);
      return *this;
    }
    ~Share() {
      if (ledger_ != nullptr) ledger_->let_go(block_);
    }
    explicit operator bool() const noexcept { return ledger_ != nullptr; }
    [[nodiscard]] Bytes bytes() const { return ledger_->blocks_[block_].bytes; }
    // The request of the step that it came with.
    [[nodiscard]] std::uint32_t request() const { return ledger_->blocks_[block_].request; }

   private:
    friend class Ledger;
    Share(Ledger& ledger, std::size_t block) : ledger_(&ledger), block_(block) {}
    Ledger* ledger_ = nullptr;
    std::size_t block_ = 0;
  };

  // Memory that is there, and no request.
  [[nodiscard]] Share find(Bytes bytes) { return add(bytes, kNoRequest); }
  [[nodiscard]] Share make(Bytes bytes, c10::Device device) {
    return add(bytes, ask(bytes, device));
  }
  // What is there was asked for now.
  void ask_for(const Share& share, Bytes bytes, c10::Device device) {
    blocks_[share.block_].request = ask(bytes, device);
  }
  // So much more is there for a moment.
  void pass(Bytes more) noexcept { most_ = std::max(most_, live_ + more); }
  // A kernel's own request, which is not counted.
  std::uint32_t ask(Bytes bytes, c10::Device device) {
    if (!device_ || device != *device_ || bytes == 0) return kNoRequest;
    events_.push_back({.bytes = bytes});
    return asked_++;
  }
  void give_back(std::uint32_t request) {
    if (request != kNoRequest) events_.push_back({.request = request});
  }
  // What the step before left of a storage goes.
  void let_go_of_last(StorageNumber storage) {
    if (device_) events_.push_back({.request = storage, .of_last = true});
  }

  // The most that was there at one time since the ledger began.
  [[nodiscard]] Bytes most() const noexcept { return most_; }
  void begin() noexcept { most_ = live_; }
  [[nodiscard]] const std::optional<c10::Device>& device() const noexcept { return device_; }
  // In order; what the step before left goes by the number of its storage.
  [[nodiscard]] const std::vector<StepRequests::Event>& events() const noexcept { return events_; }

 private:
  struct Block {
    Bytes bytes = 0;
    std::size_t holders = 1;
    std::uint32_t request = kNoRequest;
  };
  Share add(Bytes bytes, std::uint32_t request) {
    blocks_.push_back({.bytes = bytes, .request = request});
    live_ += bytes;
    pass(0);
    return {*this, blocks_.size() - 1};
  }
  void let_go(std::size_t block) {
    if (--blocks_[block].holders > 0) return;
    live_ -= blocks_[block].bytes;
    give_back(blocks_[block].request);
  }

  const std::optional<c10::Device> device_;
  std::vector<StepRequests::Event> events_;
  std::uint32_t asked_ = 0;  // requests among them
  Bytes live_ = 0, most_ = 0;
  std::vector<Block> blocks_;
};

class Account {
 public:
  Account(const Program& program, const Instructions& instructions,
          std::optional<c10::Device> device = std::nullopt)
      : program_(program),
        instructions_(instructions),
        ledger_(device),
        buffers_(program, instructions),
        away_(instructions.buffers, 0),
        of_body_(program.storages.size()),
        comes_(program.storages.size()),
        moves_(program.storages.size()),
        went_(program.storages.size()),
        ran_(program.calls.size()) {
    for (const Call& call : program.calls) {
      for (const KernelRequest& request : call.requests)
        if (request.kept != kNoStorage) comes_[request.kept] = true;
      if (call.by_body) for_each_made(call, [&](StorageNumber one) { comes_[one] = true; });
      for (const Operand& one : call.operands)
        if (one.wrapped_number && from_outside(one.storage) && !stays(one.storage))
          comes_[one.storage] = true;
    }
    for (const Instruction& one : instructions.list)
      if (one.kind == Instruction::Kind::kOffload && is_resident(one.storage))
        moves_[one.storage] = true;
    for (StorageNumber one = 0; one < program.storages.size(); ++one) {
      if (program.storages[one].maker != RecordedStorage::kFromOutside || comes_[one]) continue;
      const Bytes bytes = program.storages[one].bytes;
      const bool counts = moves_[one] || !stays(one);
      if (!counts) memory_.resident += bytes;
      bind(one, ledger_.find(counts ? bytes : 0));
    }
    for (const StorageNumber one : instructions.begin_on_host)
      if (moves_[one]) send(one, instructions.first_of[one]);
    leaving_.clear();
    ledger_.begin();
    ask_for_batch();
  }

  StepMemory run() {
    for (std::uint32_t call = 0; call < program_.calls.size(); ++call)
      if (program_.calls[call].host_read || program_.calls[call].checked) run_through(call);
    body_at(static_cast<std::uint32_t>(program_.calls.size()));
    for (; next_ < instructions_.list.size(); ++next_) step(instructions_.list[next_]);
    leaving_.clear();
    for (StorageNumber one = 0; one < buffers_.storages(); ++one)
      if (buffers_.holder(one) != kNoBuffer && needed(one)) copy_in(buffers_.holder(one));
    memory_.peak = memory_.resident + ledger_.most();
    return memory_;
  }

  // What was asked for. To be called behind run().
  StepRequests requests() {
    StepRequests result;
    for (StepRequests::Event event : ledger_.events()) {
      if (event.of_last) {
        const Ledger::Share* const left = buffers_.find(event.request);
        if (left == nullptr || left->request() == Ledger::kNoRequest) continue;
        event.request = left->request();
      }
      result.events.push_back(event);
    }
    return result;
  }

 private:
  [[nodiscard]] Ledger::Share make(StorageNumber storage, Bytes bytes) {
    return ledger_.make(bytes, program_.storages[storage].device);
  }
  // The program makes what is fresh in each step before it begins, and lets go of the last one then
  // that the step did not.
  void ask_for_batch() {
    for (StorageNumber one = 0; one < program_.storages.size(); ++one) {
      const RecordedStorage& storage = program_.storages[one];
      if (!storage.fresh || !of_body_[one]) continue;
      ledger_.ask_for(of_body_[one], storage.bytes, storage.device);
      if (storage.gone == RecordedStorage::kNever) ledger_.let_go_of_last(one);
    }
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

  void bind(StorageNumber number, Ledger::Share memory) {
    of_body_[number] = memory;
    buffers_.bind(number, std::move(memory));
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
      if (program_.storages[one].gone <= calls) of_body_[one] = {};
      if (program_.storages[one].gone_in_next <= calls && !went_[one]) {
        went_[one] = true;
        ledger_.let_go_of_last(one);
      }
    }
    buffers_.drop_kept([&](StorageNumber one) { return program_.storages[one].gone > calls; });
  }
  void numbers_of(const Call& call) {
    for (const Operand& one : call.operands)
      if (one.wrapped_number && comes_[one.storage] && !of_body_[one.storage] &&
          !buffers_.first_of(one.storage))
        come(one.storage);
  }
  void come(StorageNumber number) { bind(number, make(number, program_.storages[number].bytes)); }
  [[nodiscard]] bool needed(StorageNumber storage) const {
    const RecordedStorage& one = program_.storages[storage];
    return !one.of_body() && one.maker < body_ && one.gone > body_;
  }

  void run_through(std::uint32_t call) {
    body_at(call);
    while (!ran_[call]) step(instructions_.list.at(next_++));
  }

  void step(const Instruction& instruction) {
    const BufferNumber buffer = instruction.buffer;
    switch (instruction.kind) {
      case Instruction::Kind::kRelease:
        keep(instruction);
        drop(buffer);
        return;
      case Instruction::Kind::kOffload:
        if (is_resident(instruction.storage))
          send(instruction.storage, buffer);
        else if (!buffers_[buffer] || from_outside(instruction.storage))
          leaving_.emplace_back();
        else
          leave(buffer);
        return;
      case Instruction::Kind::kReload:
        end_offloads(instruction.outs_ended);
        copy_in(buffer);
        if (is_resident(instruction.storage) && !of_body_[instruction.storage])
          of_body_[instruction.storage] = buffers_[buffer];
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
    if (!buffers_[buffer]) {
      leaving_.emplace_back();
      return;
    }
    of_body_[storage] = {};
    leave(buffer);
  }
  // On a device the bytes are there until the copy has ended. Those on the CPU are copied at once.
  void leave(BufferNumber buffer) {
    away_[buffer] = buffers_[buffer].bytes();
    Ledger::Share memory = std::exchange(buffers_[buffer], {});
    const bool at_once = program_.storages[buffers_.holds(buffer)].device.is_cpu();
    leaving_.push_back(at_once ? Ledger::Share() : std::move(memory));
  }
  void end_offloads(std::uint32_t count) {
    for (; offloads_ended_ < count && !leaving_.empty(); ++offloads_ended_) leaving_.pop_front();
  }

  void copy_in(BufferNumber buffer) {
    if (!buffers_[buffer] && away_[buffer] > 0)
      buffers_[buffer] = make(buffers_.holds(buffer), away_[buffer]);
    away_[buffer] = 0;
  }

  bool keep(const Instruction& instruction) {
    if (!buffers_.would_keep(instruction, [&](StorageNumber one) { return needed(one); }))
      return false;
    copy_in(instruction.buffer);
    buffers_.keep(instruction.buffer);
    return true;
  }

  void drop(BufferNumber buffer) {
    (void)buffers_.drop(buffer);
    away_[buffer] = 0;
  }

  // A kernel's requests as they were recorded; make(number of a result tensor) asks for that one.
  // What a barrier leaves to later calls comes.
  template <typename Make>
  void ask_as_recorded(const Call& call, const Make& make) {
    if (!ledger_.device()) {
      for (const KernelRequest& request : call.requests)
        if (request.kept != kNoStorage) come(request.kept);
      return;
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> own;  // freed when, and the request
    for (std::uint32_t n = 0; n < call.requests.size(); ++n) {
      std::erase_if(own, [&](const auto& one) {
        if (one.first != n) return false;
        ledger_.give_back(one.second);
        return true;
      });
      const KernelRequest& request = call.requests[n];
      if (request.result != KernelRequest::kNone)
        make(request.result);
      else if (request.kept != kNoStorage)
        come(request.kept);
      else if (request.freed != KernelRequest::kNone)  // else it stays for later steps
        own.emplace_back(request.freed, ledger_.ask(request.bytes, request.device));
    }
    for (const auto& [when, request] : own) ledger_.give_back(request);
  }

  void run(const Instruction& instruction) {
    const Call& call = program_.calls[instruction.call];
    const bool again = ran_[instruction.call];
    ran_[instruction.call] = true;
    if (!call.barrier) end_offloads(instruction.outs_ended);
    if (call.by_body) return;
    if (call.on_side()) {
      // What it asks for is of another lane.
      for_each_made(
          call, [&](StorageNumber one) { bind(one, ledger_.find(program_.storages[one].bytes)); });
    } else if (call.barrier) {
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
      ledger_.pass(call.workspace);
    }
    const bool over = instruction.storage != kNoStorage && !keep(instruction);
    Bytes beside = 0;  // what the kernel holds, and goes with it
    if (again)
      for (const std::uint32_t operand : call.aside)
        beside += at::detail::computeStorageNbytesContiguous(
            call.operands[operand].sizes, call.operands[operand].type.itemsize());
    // Kernels on the CPU take one element of a list at a time, so a part takes what all take.
    if (!over) beside += call.workspace;
    std::vector<std::pair<BufferNumber, Ledger::Share>> made;
    const auto make_result = [&](BufferNumber buffer) {
      const auto has_it = [&](const auto& one) { return one.first == buffer; };
      if (buffer == kNoBuffer || std::any_of(made.begin(), made.end(), has_it)) return;
      for (const Instruction::Made& one : instruction.made)
        if (one.buffer == buffer)
          made.emplace_back(buffer, make(one.storage, program_.storages[one.storage].bytes));
    };
    if (!over && !call.barrier) {
      const bool as_recorded = instruction.alternative == Instruction::kAsRecorded &&
                               instruction.count == Instruction::kAll;
      if (as_recorded)
        ask_as_recorded(call,
                        [&](std::uint32_t result) { make_result(instruction.results[result]); });
      for (const BufferNumber buffer : instruction.results) make_result(buffer);
      if (!as_recorded && ledger_.device())
        ledger_.give_back(ledger_.ask(instruction.alternative == Instruction::kAsRecorded
                                          ? call.workspace
                                          : call.alternatives[instruction.alternative].workspace,
                                      *ledger_.device()));
    }
    ledger_.pass(beside);
    for (auto& [buffer, memory] : made) buffers_[buffer] = std::move(memory);
    buffers_.note_made(instruction);
  }

  const Program& program_;
  const Instructions& instructions_;
  Ledger ledger_;  // of what is beside what is resident
  StepMemory memory_;
  std::size_t next_ = 0;    // instruction
  std::uint32_t body_ = 0;  // calls that the body has made
  Buffers<Ledger::Share> buffers_;
  std::vector<Bytes> away_;             // by buffer: on the host
  std::deque<Ledger::Share> leaving_;   // copies that have begun; empty: which have ended
  std::uint32_t offloads_ended_ = 0;    // of those of the step
  std::vector<Ledger::Share> of_body_;  // by storage
  // By storage: not there when the step begins. A room that the body fills, a number of its own, or
  // what a barrier leaves.
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
