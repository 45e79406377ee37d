#pragma once

#include "csrc/runtime/allocator.h"

#include <c10/core/Device.h>

namespace berth::torch {

// BERTH_RECORD=operators: from now on, until end_operators(), every operator and autograd node that
// libtorch runs goes into the open trace with its operands and the roles of their blocks, from
// whichever thread runs it.
//
// What the entries say:
//   - An operator's begin is followed by its arguments, its end preceded by its results. Operators
//     nest on their thread; a request belongs to the innermost one open there.
//   - `sequence` is autograd's number. Forward operators that share it with a backward node ran one
//     inside the other; the last of them to begin made the node. `backward` is set for nodes and
//     all that runs in them, and for what the engine does around a node.
//   - `bytes` of an operand is the span that its shape and strides reach over in the block.
//   - An argument is kRead, in place kReadWrite, given as a place for the result kWrite. A result
//   is
//     kWrite, or kRead where it lies in an argument's block.
//   - `random`: libtorch tags the operator as drawing from a generator. `changes_state`: its schema
//     says that it writes an argument. What a schema does not say (batch norm's running statistics)
//     is not seen.
//
// Tensors without memory of berth's have block 0; operands are those on `device`, the allocator's.
// `recorder` is the allocator's, which records; at most kMaxBackends of them at a time. What a recording needs
// of its own (1 KiB, and the roles of live blocks) stays to the end of the process. Costs about 5 us an operator (nested ones counted) with libtorch's own share: 3 % of a step of the GPT
// of bench/train (4,500 operators), 11 % at a batch of 1.
void record_operators(Allocator& allocator, Recorder& recorder, c10::Device device);
// Ends it for this allocator; nothing where it was not begun. Operators that run just now are still
// told to the trace.
void end_operators(Allocator& allocator);

}  // namespace berth::torch
