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

// Takes its bytes, which both have then: the result is another storage over them, whose references
// are none to `storage`. Both leave and come back together (see Spills::pair()). move_bytes() gives
// them back.
[[nodiscard]] c10::Storage take_apart(const c10::Storage& storage);

// Whether it has bytes, of its own or shared, or on the host (see spills.h).
[[nodiscard]] bool has_bytes(c10::StorageImpl& storage);
// Makes it one without bytes again. Requires: those that it has are shared.
void take_bytes_back(c10::StorageImpl& ghost);

}  // namespace berth::torch::step
