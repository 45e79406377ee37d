#pragma once

#include "csrc/facts/operator_kinds.h"
#include "csrc/torch/step/tensors.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What is asked of operators: what their schemas, their names and their runs tell of them.
namespace berth::torch::step {

struct Program;

// What of an operator is the same for all its calls.
struct OperatorFacts {
  bool view = false;  // its results share the bytes of an argument, of which it reads none
  bool random = false;
  bool draws_by_shape = false;  // random, and how far the generator goes only shapes decide
  bool host_read = false;
  bool shows_bytes = false;   // lets the body at the bytes of its operands
  bool allocates = false;     // makes room and writes nothing into it
  bool fills = false;         // what it writes it does not read before
  std::vector<bool> writes;   // by argument: what its schema says, and what it hides
  bool hides_writes = false;  // of bytes, of which its schema says nothing
  std::vector<bool> scalars;  // by argument: a number that does not decide about shapes
  // By argument: state that no result depends on where the argument `training` is true. kAlways:
  // there is no such argument.
  std::vector<bool> aside;
  static constexpr std::size_t kAlways = facts::RunningStatistics::kAlways;
  std::size_t training = kAlways;
  // Of what works element by element: the same in place of its first argument, and with a place for
  // the result, where there are kernels for it.
  std::optional<c10::OperatorHandle> in_place, out;
  bool reads_generators = false;  // the body does, and calls nothing
  bool seeds_generators = false;  // the same
  bool compares = false;          // the body does, and calls nothing
  bool sets_aside = false;        // begins or ends what a loader calls, and calls nothing
  bool as_written = false;        // the step must run so from here on, as its argument says
  bool gives_bytes = false;       // gives a tensor another storage
  bool records_stream = false;    // tells the allocator of a stream that uses the memory
  bool orders_streams = false;    // the body orders streams
  bool listwise = false;          // does the same for each element of its lists
  bool shapes_by_data = false;    // what its tensors hold may decide about the shape of its result
  // Nobody knows what it does: an operator that is not libtorch's own and that nobody has declared
  // pure, whatever its schema and its tags say, or one that gives the body an address.
  bool opaque = false;
  // Pure by declaration. Its kernel may use tensors that are no argument, as a table that stays.
  bool declared = false;
  // Opaque, and goes on behind the call, on threads that get the caller's state: what these call is
  // none of the step's.
  bool collective = false;
  bool resizes = false;  // opaque, and gives its tensor's storage another size
  bool wraps = false;    // makes a tensor without memory: one that stands for its argument, zeros
  // A composite operator that has no address but of its arguments' bytes when it calls others.
  bool points_to_arguments = false;
  facts::Fails fails = facts::Fails::kNever;  // by what its arguments hold
  std::string refusal;                        // why no step program may have it
};
// Kept for each operator, on each thread; those of an opaque one until some operator is declared
// pure.
[[nodiscard]] const OperatorFacts& facts_of(const c10::OperatorHandle& op);

// The first argument with a tensor for which is(const at::Tensor&, bool written) holds; the call's
// arguments are the last ones of `stack`.
template <typename Is>
std::optional<std::size_t> find_argument(const c10::OperatorHandle& op, const c10::Stack& stack,
                                         const Is& is) {
  const OperatorFacts& facts = facts_of(op);
  const std::size_t arguments = op.schema().arguments().size();
  for (std::size_t n = 0; n < arguments; ++n) {
    const c10::IValue& value = stack[stack.size() - arguments + n];
    bool found = false;
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      found = found || is(tensor, static_cast<bool>(facts.writes[n]));
    });
    if (found) return n;
  }
  return std::nullopt;
}

// Whether the call gives a tensor another storage as it is: a view, as recurrent networks make one
// of all of their weights for cuDNN.
[[nodiscard]] bool makes_view(const OperatorFacts& facts, c10::ArrayRef<c10::IValue> arguments);

// Whether the operator's schema says that its results share the bytes of an argument, and that it
// writes none.
[[nodiscard]] bool is_view_by_schema(const c10::OperatorHandle& op);

// Why no step program may have this call; empty where one may.
[[nodiscard]] std::string why_refused(const c10::OperatorHandle& op);
// Whether somebody has registered a kernel for an operator of libtorch's beside libtorch's own, on
// the CPU, on CUDA or for all devices: what it does nobody knows. As it was when kernels were last
// looked for; the first time for an operator some 20 us. Thread-safe.
[[nodiscard]] bool is_overridden(const c10::OperatorHandle& op);
// Whether the call must run when it is called, whatever its tensors are: it is opaque, or what they
// hold decides about the shape of its result.
[[nodiscard]] bool is_barrier(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

// Whether a draw may refuse its numbers: an empty range, a range that the type does not hold, a
// probability outside of 0 to 1, a width that is not positive. Never false where it refuses them.
[[nodiscard]] bool may_refuse_numbers(const c10::OperatorHandle& op,
                                      c10::ArrayRef<c10::IValue> arguments);
// Whether what the call's arguments hold may make it fail. `on_host`: one is on the CPU.
[[nodiscard]] bool may_fail(const Call& call, bool on_host);
// What is found out about an operator when a schedule runs it: that its shapes depend on data, or
// that what its arguments hold may make it fail. Calls that are recorded from then on are barriers,
// or run when they are called. Thread-safe.
void note_shapes_by_data(const c10::OperatorHandle& op);
void note_fails(const c10::OperatorHandle& op);
// How often something was found out; looks for kernels that were registered since, too. O(1) where
// none can have been, else some 20 us for each operator that is_overridden() was asked of.
// Thread-safe.
[[nodiscard]] std::uint64_t operators_found_out();
// The same. Kernels are looked for in any case.
[[nodiscard]] std::uint64_t look_at_operators_anew();
// Whether its calls are as they would be recorded now.
[[nodiscard]] bool is_still_true(const Program& program);

// Says of an operator ("my::op", all overloads, or "my::op.overload") that its results depend on
// its arguments alone, and that it does nothing else than its schema says. Thread-safe.
void declare_pure(std::string_view name);

}  // namespace berth::torch::step
