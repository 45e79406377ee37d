// Linked into tests that read graphs of papers, or compare with their planners.
#include <berth/papers.h>

namespace {

[[maybe_unused]] const bool used = (berth::use_papers(), true);

}  // namespace
