#pragma once

#include "csrc/torch/step/record.h"

#include <c10/core/Storage.h>

namespace berth::torch::step {

// A storage of that size without bytes: a tensor over it has a shape and nothing in it. Who asks
// for its bytes gets a c10::Error that says why there are none.
[[nodiscard]] c10::Storage make_ghost_storage(const RecordedStorage& like);

// Gives a storage without bytes those of `real`, which has none any more. Where it shares others,
// those become what `real` has, since somebody may know their address.
void move_bytes(c10::Storage& real, c10::StorageImpl& ghost);

// Gives a storage without bytes those of `real`, which both have then. Where it shares others, as
// above.
void share_bytes(const c10::Storage& real, c10::StorageImpl& ghost);

}  // namespace berth::torch::step
