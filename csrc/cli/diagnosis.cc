#include "csrc/cli/diagnosis.h"

#include "csrc/cli/core/output.h"

#include <fmt/format.h>

namespace berth::cli {
namespace {

constexpr double kLittle = 0.01;  // a saving that nobody notices
constexpr double kMostly = 0.8;   // of what lives
constexpr double kRepeats = 0.9;  // requests of a step that comes again
constexpr double kSeldom = 0.5;
constexpr double kWellServed = 0.9;  // requests at their places

class Diagnosis {
 public:
  Diagnosis(const replay::Forecast& forecast, const Snapshot* snapshot, bool cut)
      : forecast_(forecast), snapshot_(snapshot), cut_(cut) {}

  std::vector<Finding> take() {
    if (forecast_.on_cpu) {
      add("cpu",
          "not recorded on CUDA, as its blocks are aligned to {} bytes: PyTorch's CUDA allocators "
          "are "
          "not compared. On the CPU a plan saves page faults and time before it saves memory; "
          "`berth replay --allocator planned,glibc` has both",
          forecast_.alignment);
    } else {
      native();
    }
    repeats();
    residents();
    history();
    return std::move(findings_);
  }

 private:
  template <class... Arguments>
  void add(const char* name, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    findings_.push_back({name, fmt::format(text, std::forward<Arguments>(arguments)...)});
  }

  void native() {
    const Bytes native = forecast_.native();
    if (snapshot_ != nullptr && snapshot_->of_berth) {
      add("berth_snapshot",
          "the snapshot was written under berth: its segments are berth's, {} in all. A page with "
          "several addresses counts at each. The figures of PyTorch's allocator are therefore "
          "those of its model",
          format_bytes(snapshot_->reserved_peak));
    }
    if (forecast_.contradicting) {
      add("segments_contradict",
          "the segments of the history hold {} at most, but {} live by its requests: one of the "
          "two is incomplete. The figure of PyTorch's allocator is that of its model, not of the "
          "segments",
          format_bytes(*forecast_.contradicting), format_bytes(forecast_.live));
    }
    if (forecast_.planned >= native) {
      add("no_saving",
          "berth would hold {}, PyTorch's allocator holds {}: nothing is saved, as PyTorch's "
          "segments fit this run and berth learns in whole pages of 2 MiB",
          format_bytes(forecast_.planned), format_bytes(native));
    } else if (share(native - forecast_.live, native) <= kLittle) {
      add("native_is_good",
          "PyTorch's allocator holds {} more than what lives: no allocator can save more than that",
          format_percent(share(native - forecast_.live, native)));
    } else if (share(forecast_.saving(), native) <= kLittle) {
      add("little_saving", "berth would save {}, which is hardly worth it",
          format_percent(share(forecast_.saving(), native)));
    }
    const bool has_expandable = snapshot_ != nullptr && snapshot_->expandable;
    if (has_expandable) {
      add("expandable_on", "expandable segments are on already: the saving is beside them");
    } else if (forecast_.saving() != 0 && forecast_.expandable < native) {
      add("expandable", "PYTORCH_ALLOC_CONF=expandable_segments:True alone would come to {}{}",
          format_bytes(forecast_.expandable),
          forecast_.expandable <= forecast_.planned ? ", which is no more than berth" : "");
    }
    if (snapshot_ != nullptr && snapshot_->out_of_memory != 0) {
      add("out_of_memory",
          "{} ran out of memory, the largest of {}. No figure contains the requests that the "
          "program would have made after them",
          format_number_of(snapshot_->out_of_memory, "request"), format_bytes(snapshot_->refused));
    }
  }

  void repeats() {
    if (forecast_.requests == 0 || forecast_.recorded_requests == 0) {
      nothing_requested();
    } else if (forecast_.assumed) {
      add("one_step",
          "no step comes twice in this history ({}). The forecast assumes that the program repeats "
          "the step that it holds, and that no step leaves more alive than this one did. A history "
          "of three steps or more needs no such assumption",
          forecast_.why_no_step);
    } else if (forecast_.repeating_bytes && forecast_.repeating_requests >= kRepeats) {
      // As it should be.
    } else if (forecast_.many_sizes) {
      shapes_vary();
    } else if (forecast_.kinds > 1 && forecast_.hits >= kWellServed) {
      add("kinds",
          "its steps are of {}: one plan with a branch for each serves them, {} of the requests at "
          "their places once each is known",
          format_number_of(forecast_.kinds, "kind"), format_percent(forecast_.hits));
    } else if (!forecast_.why_no_step.empty() && forecast_.hits < kSeldom) {
      add("does_not_repeat",
          "its requests do not repeat ({}): a plan would be of no use, and all that berth saves "
          "comes from its pool",
          forecast_.why_no_step);
    } else if (forecast_.repeating_requests < kLittle) {
      add("repeats_partly",
          "hardly any of the requests lie in repeats of one step; the pool serves the others");
    } else {
      add("repeats_partly",
          "{} of the requests lie in repeats of one step; the others, as those of the start, are "
          "served by the pool",
          format_percent(forecast_.repeating_requests));
    }
    if (forecast_.repeated != 0) {
      add("short_run",
          "the run is too short for berth to learn in. For the forecast its step was repeated {}. "
          "Of the run as it was and the run with repeats the larger figure counts",
          format_number_of(forecast_.repeated, "time"));
    }
  }

  void nothing_requested() {
    if (forecast_.frees != 0) {
      add("frees_only",
          "the history has no request, but {} of blocks from before it: its ring (max_entries) was "
          "too short for a step. It shows the live bytes at its beginning, which are not enough "
          "for a forecast",
          format_number_of(forecast_.frees, "free"));
    } else {
      add("no_requests", "it has no requests");
    }
  }

  void shapes_vary() {
    if (forecast_.hits >= kLittle) {
      add("shapes_vary",
          "shapes vary from step to step: one plan of buckets serves them, {} of the requests at "
          "its places once they are known",
          format_percent(forecast_.hits));
    } else {
      add("shapes_vary",
          "shapes vary from step to step, and this run is too short for a plan of buckets to serve "
          "any of them. The pool serves it; a longer history shows what a plan would do");
    }
  }

  void residents() {
    const double part = share(forecast_.resident, forecast_.live);
    if (part < kMostly) return;
    add("residents_dominate",
        "{} of what lives at the peak are weights, optimizer state and what else outlives steps: "
        "no "
        "placement makes those smaller",
        format_percent(part));
  }

  void history() {
    if (snapshot_ != nullptr) {
      for (const std::string& note : snapshot_->notes()) add("history", "{}", note);
    } else if (cut_) {
      add("history",
          "the run begins with blocks whose requests it does not have: peaks before it are not "
          "known");
    }
  }

  const replay::Forecast& forecast_;
  const Snapshot* snapshot_;
  const bool cut_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> diagnose(const replay::Forecast& forecast, const Snapshot* snapshot,
                              bool cut) {
  return Diagnosis(forecast, snapshot, cut).take();
}

}  // namespace berth::cli
