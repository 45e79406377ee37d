#pragma once

namespace berth::torch::step {

// Operators on tensors of Python's subclasses with a dispatch of their own (NestedTensor, DTensor)
// that reach Python without the tap: views, and composite operators that no kernel of autograd has
// taken apart. libtorch's own way to Python hides from the tap what is called there. While a tap
// stands, run_in_python() is their way.
//
// How: a boxed kernel for each on the dispatch key of Python's, where libtorch has a fallback.
// Other calls pass it on to the fallback.

// Registers the kernels of operators that have none yet. Not thread-safe.
void register_subclasses();

}  // namespace berth::torch::step
