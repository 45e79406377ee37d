#pragma once

#include "csrc/runtime/allocator.h"

#include <c10/core/Device.h>

namespace berth::torch {

// BERTH_RECORD=operators: from now on, until end_operators(), every operator that libtorch runs
// below autograd goes into the open trace with its operands and the roles of their blocks, from
// whichever thread runs it. What runs within an operator is part of it, and views are none: they
// are those of step programs (`step/tap.h`), and those of a step that one runs are its schedule's.
//
// What the entries say:
//   - An operator's begin is followed by its arguments, its end preceded by its results. A request
//     belongs to the operator open on its thread. Names have the overload, "aten::add.Tensor".
//   - `sequence` is autograd's number of the node that was made for a forward operator, and of the
//     node that a backward one runs in. `backward` is set for all that runs in a backward pass.
//   - `bytes` of an operand is the span that its shape and strides reach over in the block.
//   - An argument is kRead, in place kReadWrite, given as a place for the result kWrite. A result
//     is kWrite, or kRead where it lies in an argument's block.
//   - `random`: the operator draws from a generator. `changes_state`: it writes an argument, by its
//     schema or, as batch norm its running statistics, beside it.
//
// Tensors without memory of berth's have block 0; operands are those on `device`, the allocator's.
//
// How: a boxed kernel for each operator on the dispatch key BackendSelect, which every thread has
// and which lies right above the devices' kernels. They stay to the end of the process, and let
// calls pass where nobody records: a boxed call more for each operator. Operators that are loaded
// while it records are seen from the next call of another one on.
//
// `recorder` is the allocator's, which records; at most kMaxBackends of them at a time. What a
// recording needs of its own (1 KiB, and the roles of live blocks) stays to the end of the process.
void record_operators(Allocator& allocator, Recorder& recorder, c10::Device device);
// Ends it for this allocator; nothing where it was not begun. Operators that run just now are still
// told to the trace.
void end_operators(Allocator& allocator);

// Tells the open traces what the block at an address is for. Nothing where it is none of berth's.
void tell_role(const void* address, trace::RoleKind role) noexcept;

}  // namespace berth::torch
