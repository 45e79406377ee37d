#pragma once

namespace berth::torch::step {

// Kernels that TorchScript makes of several operators (NNC, oneDNN). They read what they take by a
// pointer, and no operator shows it. Behind this call each of them is to a tap as a body that reads
// these bytes: an operator of byte_access.h announces each tensor, and its bytes stay while the
// kernel is called. Kernels that TorchScript has made before are not seen. A second call does
// nothing. Not thread-safe.
void register_fused_groups();

}  // namespace berth::torch::step
