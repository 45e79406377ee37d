#pragma once

namespace berth::python {

// Makes berth::Error an exception of berth._errors from now on: one class a kind.
void translate_errors();

}  // namespace berth::python
