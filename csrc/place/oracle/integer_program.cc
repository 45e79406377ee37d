#include "csrc/place/oracle/integer_program.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>

#ifdef BERTH_HIGHS_LIBRARY
#include <dlfcn.h>
#include <interfaces/highs_c_api.h>
#endif

namespace berth::place {

IntegerProgram::Column IntegerProgram::add_column(double cost, double lower, double upper) {
  cost_.push_back(cost);
  lower_.push_back(lower);
  upper_.push_back(upper);
  return static_cast<Column>(cost_.size()) - 1;
}

void IntegerProgram::add_row(double lower, double upper,
                             std::span<const std::pair<Column, double>> entries) {
  row_start_.push_back(static_cast<int>(entry_column_.size()));
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  for (const auto& [column, value] : entries) {
    entry_column_.push_back(column);
    entry_value_.push_back(value);
  }
}

#ifdef BERTH_HIGHS_LIBRARY

namespace {

// HiGHS's C interface. Loaded and not linked, so that a program of berth's starts without it.
struct Library {
  decltype(&Highs_create) create;
  decltype(&Highs_destroy) destroy;
  decltype(&Highs_passMip) pass;
  decltype(&Highs_setSolution) set_solution;
  decltype(&Highs_setBoolOptionValue) set_bool;
  decltype(&Highs_setIntOptionValue) set_int;
  decltype(&Highs_setDoubleOptionValue) set_double;
  decltype(&Highs_setStringOptionValue) set_string;
  decltype(&Highs_setCallback) set_callback;
  decltype(&Highs_startCallback) start_callback;
  decltype(&Highs_run) run;
  decltype(&Highs_getModelStatus) status;
  decltype(&Highs_getSolution) solution;
  decltype(&Highs_getIntInfoValue) get_int;
  decltype(&Highs_getInt64InfoValue) get_int64;
  decltype(&Highs_getDoubleInfoValue) get_double;
};

struct Loaded {
  Library library{};
  std::optional<std::string> error;
};

Loaded load() {
  Loaded loaded;
  // Where it was when berth was built, else wherever the system has one. Never closed: its threads
  // may outlive every call.
  void* handle = nullptr;
  std::string why;
  for (const char* name : {BERTH_HIGHS_LIBRARY, "libhighs.so.1", "libhighs.so"}) {
    handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    if (why.empty()) why = ::dlerror();
  }
  if (handle == nullptr) {
    loaded.error = fmt::format(
        "integer programs need the library HiGHS, which was there when berth was built "
        "and cannot be loaded now (cmake/setup installs it): {}",
        why);
    return loaded;
  }
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr)
      loaded.error =
          fmt::format("integer programs need HiGHS 1.7 or newer: this one has no {}", name);
  };
  Library& library = loaded.library;
  find("Highs_create", library.create);
  find("Highs_destroy", library.destroy);
  find("Highs_passMip", library.pass);
  find("Highs_setSolution", library.set_solution);
  find("Highs_setBoolOptionValue", library.set_bool);
  find("Highs_setIntOptionValue", library.set_int);
  find("Highs_setDoubleOptionValue", library.set_double);
  find("Highs_setStringOptionValue", library.set_string);
  find("Highs_setCallback", library.set_callback);
  find("Highs_startCallback", library.start_callback);
  find("Highs_run", library.run);
  find("Highs_getModelStatus", library.status);
  find("Highs_getSolution", library.solution);
  find("Highs_getIntInfoValue", library.get_int);
  find("Highs_getInt64InfoValue", library.get_int64);
  find("Highs_getDoubleInfoValue", library.get_double);
  return loaded;
}

const Loaded& loaded() {
  static const auto& kLoaded = *new const Loaded(load());
  return kLoaded;
}

}  // namespace

// One run of the solver.
class Highs {
 public:
  Highs(const IntegerProgram& program, const SolverOptions& options)
      : library_(loaded().library), options_(options), columns_(program.columns()) {
    model_.reset(library_.create());
    BERTH_CHECK(model_ != nullptr, kSystem, "HiGHS made no solver");
    configure();
    // An empty array still needs an address.
    const int kind = options.relaxed ? kHighsVarTypeContinuous : kHighsVarTypeInteger;
    std::vector<int> integer(columns_ + 1, kind);
    check(library_.pass(model_.get(), static_cast<HighsInt>(columns_),
                        static_cast<HighsInt>(program.rows()),
                        static_cast<HighsInt>(program.entry_column_.size()),
                        kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0, program.cost_.data(),
                        program.lower_.data(), program.upper_.data(), program.row_lower_.data(),
                        program.row_upper_.data(), program.row_start_.data(),
                        program.entry_column_.data(), program.entry_value_.data(), integer.data()),
          "take the program");
    if (!options.start.empty() && !options.relaxed) {
      check(library_.set_solution(model_.get(), options.start.data(), nullptr, nullptr, nullptr),
            "take the start");
    }
  }

  SolverResult run() {
    const HighsInt status = library_.run(model_.get());
    if (error_) std::rethrow_exception(error_);
    check(status, "solve the program");
    SolverResult result;
    const HighsInt model_status = library_.status(model_.get());
    result.complete = model_status == kHighsModelStatusOptimal ||
                      model_status == kHighsModelStatusInfeasible ||
                      model_status == kHighsModelStatusUnboundedOrInfeasible;
    HighsInt feasibility = 0;
    library_.get_int(model_.get(), "primal_solution_status", &feasibility);
    const bool optimal = model_status == kHighsModelStatusOptimal;
    if (feasibility == kHighsSolutionStatusFeasible || (options_.relaxed && optimal)) {
      result.values.resize(columns_);
      library_.solution(model_.get(), result.values.data(), nullptr, nullptr, nullptr);
    }
    result.bound = -IntegerProgram::kInfinity;
    library_.get_double(model_.get(),
                        options_.relaxed ? "objective_function_value" : "mip_dual_bound",
                        &result.bound);
    std::int64_t nodes = 0;
    library_.get_int64(model_.get(), "mip_node_count", &nodes);
    result.nodes = static_cast<std::uint64_t>(std::max<std::int64_t>(nodes, 0));
    return result;
  }

 private:
  struct Destroy {
    void operator()(void* model) const { loaded().library.destroy(model); }
  };

  // Warnings are answers; errors are ours.
  static void check(HighsInt status, const char* what) {
    BERTH_CHECK(status != kHighsStatusError, kSystem, "HiGHS failed to {}", what);
  }

  void configure() {
    void* model = model_.get();
    library_.set_bool(model, "output_flag", 0);
    // One thread: the same seed then takes the same path everywhere.
    library_.set_string(model, "parallel", "off");
    library_.set_int(model, "threads", 1);
    library_.set_int(model, "random_seed", static_cast<HighsInt>(options_.seed & 0x7fffffff));
    library_.set_double(model, "time_limit", std::max(options_.seconds, 0.0));
    library_.set_double(model, "mip_rel_gap", 0);
    library_.set_double(model, "mip_abs_gap", 0.9);  // of integers: none
    if (options_.relaxed) {
      library_.set_string(model, "solver", "ipm");
      library_.set_string(model, "run_crossover", "off");
    }
    if (options_.nodes != 0) {
      library_.set_int(model, "mip_max_nodes",
                       static_cast<HighsInt>(std::min<std::uint64_t>(options_.nodes, 0x7fffffff)));
    }
    library_.set_callback(model, &Highs::callback, this);
    for (const HighsInt event : {kHighsCallbackSimplexInterrupt, kHighsCallbackIpmInterrupt,
                                 kHighsCallbackMipInterrupt, kHighsCallbackMipImprovingSolution})
      library_.start_callback(model, event);
  }

  static void callback(int event, const char* /*message*/, const HighsCallbackDataOut* out,
                       HighsCallbackDataIn* in, void* self) {
    static_cast<Highs*>(self)->handle(event, *out, in);
  }

  // Nothing may be thrown through C.
  void handle(int event, const HighsCallbackDataOut& out, HighsCallbackDataIn* in) noexcept {
    try {
      if (event == kHighsCallbackMipImprovingSolution) {
        if (options_.found && out.mip_solution != nullptr && !error_)
          options_.found({out.mip_solution, columns_});
        return;
      }
      // Only the search knows a bound.
      if (event == kHighsCallbackMipInterrupt) bound_ = std::max(bound_, out.mip_dual_bound);
      if (error_ || (options_.stop && options_.stop(bound_))) in->user_interrupt = 1;
    } catch (...) {
      error_ = std::current_exception();
      if (in != nullptr) in->user_interrupt = 1;
    }
  }

  const Library& library_;
  const SolverOptions& options_;
  std::size_t columns_;
  std::unique_ptr<void, Destroy> model_;
  double bound_ = -IntegerProgram::kInfinity;
  std::exception_ptr error_;
};

const std::optional<std::string>& unavailable_solver() { return loaded().error; }

SolverResult solve(const IntegerProgram& program, const SolverOptions& options) {
  BERTH_CHECK(!unavailable_solver(), kUsage, "{}", *unavailable_solver());
  return Highs(program, options).run();
}

#else

const std::optional<std::string>& unavailable_solver() {
  static const auto& kMissing = *new const std::optional<std::string>(
      "integer programs need the library HiGHS, and this berth was built without it: cmake/setup "
      "installs it, or name its folder by -DBERTH_HIGHS_ROOT");
  return kMissing;
}

SolverResult solve(const IntegerProgram& /*program*/, const SolverOptions& /*options*/) {
  throw Error(ErrorKind::kUsage, *unavailable_solver());
}

#endif

}  // namespace berth::place
