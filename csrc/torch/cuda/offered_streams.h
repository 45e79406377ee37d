#pragma once

namespace berth::torch {

// Lets step programs know which streams are being captured, and wait for streams. Thread-safe.
void offer_streams();

}  // namespace berth::torch
