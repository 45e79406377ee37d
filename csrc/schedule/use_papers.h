#pragma once

// Adds the planners of papers (csrc/papers) as engines, where they are built.
#ifdef BERTH_WITH_PAPERS
#include <berth/papers.h>
#include <berth/schedule_ilp.h>
#endif

namespace berth {

inline void use_papers_where_built() {
#ifdef BERTH_WITH_PAPERS
  use_papers();
  use_checkmate();
  use_olla();
#endif
}

}  // namespace berth
