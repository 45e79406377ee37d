#pragma once

#include "csrc/core/bytes.h"
#include "csrc/torch/step/autocast.h"
#include "csrc/torch/step/modes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// A step as the operators below autograd that it called, with what they found and left: no bytes.
namespace berth::torch::step {

// Storages of a step are numbered in the order in which they first occur, as an operand or a
// result.
using StorageNumber = std::uint32_t;
inline constexpr StorageNumber kNoStorage = ~StorageNumber{0};

// A tensor as an operator sees it: a part of a storage, in elements.
struct Operand {
  StorageNumber storage = kNoStorage;  // kNoStorage: no tensor
  std::int64_t offset = 0;
  c10::SmallVector<std::int64_t, 5> sizes, strides;
  caffe2::TypeMeta type;
  bool wrapped_number = false;  // a number of the program's that libtorch made a tensor of
  bool conjugate = false, negative = false;  // by a flag, that its kernel resolves
  // The part may lie elsewhere in the storage in each step: a slice of a data set, or of a buffer
  // that is written in turn. `offset` is 0.
  bool moves = false;
  bool varies = false;  // data decide its shape, which is another in each step
  // No dense tensor, of which nothing is known but that. `storage` is kNoStorage.
  bool opaque = false;
  // Whether they are the same part. Of parts that vary each shape is one of many.
  bool operator==(const Operand& other) const;
};

// One argument, or one thing that an operator returns.
enum class Form : std::uint8_t {
  kValue,            // no tensor
  kTensor,           // one, or none where one is optional
  kTensors,          // a list
  kOptionalTensors,  // a list with gaps
  kNested,           // tensors in lists of lists, tuples or dictionaries: of barriers only
};

struct Argument {
  Form form = Form::kValue;
  std::uint32_t tensors = 0;  // operands that it takes, in order
  c10::IValue value;          // of kValue
  bool scalar = false;        // a number that may be another in each step, or a list of such
  bool any = false;           // of kValue: taken as it comes, since the call runs with the body
};

// A tensor that an operator returns.
struct ResultTensor {
  static constexpr std::uint32_t kNew = ~std::uint32_t{0};
  std::uint32_t argument = kNew;  // the operand that it returns as it came
  Operand operand;                // of one that is new
  c10::DispatchKeySet keys;       // of one that is new
  std::uint32_t version = 0;      // of one that is new: kernels may write what they make
  bool operator==(const ResultTensor& other) const {
    return argument == other.argument && operand == other.operand && keys == other.keys;
  }
};

struct Result {
  Form form = Form::kValue;
  std::uint32_t tensors = 0;  // results that it takes, in order
  c10::IValue value;          // of kValue, where shapes decide it
};

// Another way to run a call, with the same bits: its result takes the bytes of an operand that
// nobody needs any more.
struct Twin {
  c10::OperatorHandle op;  // in place of its first argument, or with a place for the result
  bool in_place = false;
  std::uint32_t operand = 0;  // whose bytes it takes
};

class LibraryAlgorithm;

// Another way to run a call, by an algorithm of a library: see algorithms.h.
struct CallAlternative {
  std::string name;  // for people
  std::uint64_t ns = 0;
  Bytes workspace = 0;
  std::shared_ptr<const LibraryAlgorithm> algorithm;
};

// A request that a kernel made of an allocator.
struct KernelRequest {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  Bytes bytes = 0;
  c10::Device device = c10::kCPU;
  std::uint32_t result = kNone;  // the result tensor whose storage it is
  std::uint32_t freed = kNone;   // so many requests the kernel had made when it freed it
  // The storage that it is where a barrier left it to a later call, as what autograd saves inside
  // of one. To the step it is from outside.
  StorageNumber kept = kNoStorage;
};

// One operator that did something: views are not among them.
struct Call {
  explicit Call(c10::OperatorHandle handle) : op(std::move(handle)) {}

  c10::OperatorHandle op;
  bool gradients_on = false;                // whether autograd's mode was on
  std::shared_ptr<const Modes> modes = {};  // as they were
  Autocast autocast = 0;                    // as it was
  bool random = false;                      // draws from a generator
  bool host_read = false;                   // the program gets something that it may act on
  // Data decide shapes of what it takes or gives: a barrier. See data_shapes.h.
  bool varies = false;
  // Takes or makes tensors that are not dense, which keep what it took: a barrier.
  bool keeps = false;
  // Takes something on a device, and writes or makes something on the CPU.
  bool to_host = false;
  bool backward = false;  // runs within autograd's backward
  // Runs when it is called, whatever has run before, and what it makes comes from outside: it makes
  // room that the body fills behind libtorch's operators, as torch.tensor(1.0) does, or reads what
  // others may write, and nothing of the step.
  bool by_body = false;
  // Runs when it is called, once all that was called before has run, with the tensors that the body
  // has: it is not known to be safe later.
  bool barrier = false;
  // Runs when it is called: what its arguments hold may make it fail, or the step uses several
  // streams.
  bool checked = false;
  // 0: on the step's own stream of its device. While the step is recorded: as StreamsOfCalls says.
  std::uint32_t stream = 0;
  std::vector<Argument> arguments;
  // Of the arguments, in order; behind them, of a barrier, what it writes beside those.
  std::vector<Operand> operands;
  std::vector<std::uint32_t> writes;  // indices of operands whose bytes it writes
  // State that no result depends on, as batch norm's running statistics in training: a second run
  // may take something instead that nobody else has.
  std::vector<std::uint32_t> aside;
  // Operands of small foreign storages, in order: it takes the bytes that they had when it was
  // called.
  std::vector<std::uint32_t> copied;
  // Operands whose storages it gives another size: behind it they are other storages, which it
  // makes where it returns a tensor of them. Of barriers only.
  std::vector<std::uint32_t> resized;
  // Operands whose version counters its kernel moves on, beside what is done above the tap, and how
  // far: lists in place do.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> versions;
  std::vector<Result> results;
  std::vector<ResultTensor> result_tensors;
  std::optional<Twin> twin = {};

  // Measured.
  std::uint64_t ns = 0;
  Bytes workspace = 0;                        // most that it held beside its results
  std::vector<KernelRequest> requests = {};   // in order; none where there were too many
  std::vector<CallAlternative> alternatives;  // others than the operator itself

  // Whether it is called on another stream than the step's own one of its device: see streams.h.
  [[nodiscard]] bool on_side() const noexcept { return stream != 0; }
};

struct RecordedStorage {
  Bytes bytes = 0;
  c10::Device device = c10::kCPU;
  c10::Allocator* allocator = nullptr;
  // The call that made it; kFromOutside where it was there before.
  static constexpr std::uint32_t kFromOutside = ~std::uint32_t{0};
  std::uint32_t maker = kFromOutside;
  bool made_by_barrier = false;  // so the body itself has it
  // From outside, and others may read or write it behind libtorch's operators.
  bool foreign = false;
  // A call on a side stream makes or takes it: see streams.h.
  bool shared = false;
  // From outside, where an operator inside of a barrier of this step made it.
  bool made_within = false;
  // The body wrote it by its address before the first operator used it: see written_rooms.h.
  bool written_by_body = false;
  bool varies = false;    // has another size in each step: `bytes` is the most that was seen
  bool outlives = false;  // somebody has it after the step
  // So many calls the body had made when nobody but the operators had it any more; kNever: it
  // outlives the step.
  static constexpr std::uint32_t kNever = ~std::uint32_t{0};
  std::uint32_t gone = kNever;
  // Of one that outlives its step: so many calls the next step had made when it went; kNever where
  // that was not seen.
  std::uint32_t gone_in_next = kNever;
  // From outside, and another one in each step that the step before did not make, as a batch is.
  bool fresh = false;
  // Its address, to tell what is the same in two steps; null where nobody had it at the end.
  const c10::StorageImpl* identity = nullptr;

  // Whether the body has the storage itself, not one without bytes in its place.
  [[nodiscard]] bool of_body() const noexcept { return maker == kFromOutside || made_by_barrier; }
};

struct StepRecord {
  std::vector<Call> calls;
  std::vector<RecordedStorage> storages;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> held;  // so that addresses stay theirs
  // Whether the step set a generator that it had drawn from, as torch.utils.checkpoint does.
  bool sets_generators = false;
  // Whether work of the step is ordered between streams: see streams.h.
  bool several_streams = false;
  bool came_before = false;  // one like it, which was not kept
  // Of one in which data decide shapes: a number of its own; else 0.
  std::uint64_t varying = 0;
  std::uint64_t step = 0;  // which of the run's
  // What the step before this one left, and how many calls this one had made when it went.
  struct Left {
    StorageNumber storage = 0;  // of that step
    std::uint32_t gone = 0;
  };
  std::vector<Left> left = {};
  // Why it cannot be made a program, naming the operator and what to do; empty where it can.
  std::string refusal;
};

// The operator's name, "aten::add.Tensor".
[[nodiscard]] std::string name_of(const c10::OperatorHandle& op);
// The same for people: of berth's own operators what the program did, "numpy() or the like".
[[nodiscard]] std::string words_of(const c10::OperatorHandle& op);

}  // namespace berth::torch::step
