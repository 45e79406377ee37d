#pragma once

namespace berth::torch {

// Lets step programs know which streams are being captured. Thread-safe.
void offer_stream_captures();

}  // namespace berth::torch
