#pragma once

#include "csrc/place/fits/first_fit.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/conflicts.h"
#include "csrc/place/problem/packing.h"
#include "csrc/place/stages/search.h"

#include <berth/place.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace berth::place {

// Runs the engines on one problem and keeps the best placement they find.
class Portfolio {
 public:
  Portfolio(const Conflicts& conflicts, const PlaceOptions& options);

  [[nodiscard]] Placement run();

 private:
  // What suits the problem and the engine that was asked for. Sets the bound.
  [[nodiscard]] std::unique_ptr<Search> make_search();
  void first_plan();
  void improve();
  void next_wave();
  void first_fits();
  void fit(const std::vector<Index>& order, Fit fit, const std::string& name);
  void integer_program();
  [[nodiscard]] bool uses(std::string_view engine) const {
    return options_.engine == "auto" || options_.engine == engine;
  }
  // Takes over what the search has found and proven.
  void take();
  // Takes a placement that is better than the best so far.
  void offer(Packing packing, const std::string& engine);
  // Hands the best placement to PlaceOptions::improved, unless it has had one as low.
  void announce();
  void report(bool last);
  [[nodiscard]] Placement placement(std::vector<Bytes> offsets) const;
  // The best placement is good enough, or there is no time left.
  [[nodiscard]] bool done() const;

  const Conflicts& conflicts_;
  const PlaceOptions& options_;
  unsigned threads_;
  Budget budget_;
  FirstFit first_fit_;
  std::unique_ptr<Search> search_;
  Packing best_;
  Bytes announced_ = std::numeric_limits<Bytes>::max();  // the last mark that improved() was told
  Bytes bound_ = 0;
  std::string engine_;
  std::uint64_t iterations_ = 0;
  std::uint64_t search_iterations_ = 0;  // of these
  double last_report_ = 0;
};

}  // namespace berth::place
