#include "csrc/cli/summaries/stats_summary.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace berth::cli {
namespace {

constexpr Bytes kMostStatsBytes = Bytes{1} << 20;

// A number of a JSON object; 0 where it is not there or none of ours.
std::uint64_t number(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

std::string reason_of(const Json& miss) {
  const auto found = miss.find("reason");
  return found != miss.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string share_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0
             ? ""
             : fmt::format(" ({})",
                           format_percent(static_cast<double>(part) / static_cast<double>(whole)));
}

// Misses that one sentence tells of: alike but for the sizes that came.
struct Likes {
  Json first;
  std::uint64_t count = 0, sizes = 0;
  Bytes least = ~Bytes{0}, most = 0;

  void add(const Json& miss) {
    if (sizes++ == 0) first = miss;
    count += number(miss, "count");
    least = std::min<Bytes>(least, number(miss, "came_bytes"));
    most = std::max<Bytes>(most, number(miss, "came_bytes"));
  }
  // "8 KiB", "8 KiB to 12 KiB (3 sizes)"
  [[nodiscard]] std::string came() const {
    if (least == most) return format_bytes(most);
    return fmt::format("{} to {} ({} sizes)", format_bytes(least), format_bytes(most), sizes);
  }
};

// Of a step that is not known neither place nor size says much.
auto key_of(const Json& miss) {
  const std::string reason = reason_of(miss);
  const bool placed = reason == "size" || reason == "busy";
  const auto where = [&](const char* name) { return placed ? number(miss, name) : 0; };
  return std::tuple(reason, number(miss, "lane"), where("kind"), where("position"),
                    where("expected_bytes"), number(miss, "tag"));
}

// "request 32 of 300 of the step"
std::string place_of(const Json& miss, bool kinds) {
  std::string place =
      fmt::format("request {} of {} of the step", format_count(number(miss, "position") + 1),
                  format_count(number(miss, "step_requests")));
  if (kinds) place += fmt::format(", kind {}", number(miss, "kind") + 1);
  return place;
}

std::string sentence_of(const Likes& likes, bool kinds) {
  const Json& miss = likes.first;
  const std::string reason = reason_of(miss);
  std::string text;
  if (reason == "size") {
    text = fmt::format("{}: {} came, the plan expects {}", place_of(miss, kinds), likes.came(),
                       format_bytes(number(miss, "expected_bytes")));
  } else if (reason == "busy") {
    text = fmt::format("{}: {} came as planned, its bytes were still in use", place_of(miss, kinds),
                       likes.came());
  } else if (reason == "lane") {
    text = fmt::format("{} came on stream or thread {}, which the plan does not have", likes.came(),
                       number(miss, "lane"));
  } else {
    text = fmt::format(
        "{} came in steps that differ from the plan's, or from some request on: request {} after "
        "the "
        "mark was the most frequent",
        likes.came(), format_count(number(miss, "position") + 1));
  }
  if (reason != "lane" && number(miss, "lane") != 0)
    text += fmt::format(", on stream or thread {}", number(miss, "lane"));
  if (const std::uint64_t tag = number(miss, "tag")) text += fmt::format(", tag {}", tag);
  return fmt::format("{}: {}", format_times(likes.count), text);
}

}  // namespace

StatsSummary::StatsSummary(const Stats& stats) : stats_(Json::parse(stats.to_json())) {}

StatsSummary StatsSummary::read(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path, kMostStatsBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  BERTH_CHECK(
      json.is_object() && json.contains("requests") && json.contains("hits"), kInput,
      "'{}' holds no statistics of a run: BERTH_STATS names the file where it writes them. A "
      "graph as JSON is for `berth graph`",
      path);
  return StatsSummary(std::move(json));
}

std::uint64_t StatsSummary::count(const char* name) const { return number(stats_, name); }

std::uint64_t StatsSummary::missed() const {
  return count("misses_size") + count("misses_busy") + count("misses_lane");
}

std::vector<Json> StatsSummary::misses() const {
  std::vector<Json> misses;
  const auto found = stats_.find("misses");
  if (found == stats_.end() || !found->is_array()) return misses;
  for (const Json& miss : *found)
    if (miss.is_object()) misses.push_back(miss);
  return misses;
}

Json StatsSummary::to_json() const {
  Json json = {{"kind", "statistics"}};
  json.update(stats_);
  json["sentences"] = sentences();
  json["advice"] = advice();
  return json;
}

std::string StatsSummary::outcomes() const {
  const std::uint64_t requests = count("requests");
  std::string text = fmt::format("  as planned   {}{}\n", format_count(count("hits")),
                                 share_of(count("hits"), requests));
  if (count("hits_bucket") != 0)
    text +=
        fmt::format("  in buckets   {}{}, where larger ones were planned\n",
                    format_count(count("hits_bucket")), share_of(count("hits_bucket"), requests));
  text +=
      fmt::format("  lent         {}, at other bytes of the arena\n", format_count(count("lent")));
  const std::string missed_how = fmt::format(
      "{}{}: {} unlike the plan, {} whose bytes were in use, {} of another lane",
      format_count(missed()), share_of(missed(), requests), format_count(count("misses_size")),
      format_count(count("misses_busy")), format_count(count("misses_lane")));
  text += "  missed       " + wrap(missed_how, 15, kLineWidth);
  text += fmt::format("  unplanned    {}, before a plan served or left to the pool by it\n",
                      format_count(count("unplanned")));
  // What not every berth counts.
  for (const auto& [name, what] : {std::pair{"pages_moved", "moved between arena and pool"},
                                   std::pair{"host_waits", "of the host for the device"}})
    if (stats_.contains(name))
      text += fmt::format("  {:<13}{} {}\n",
                          name == std::string_view("pages_moved") ? "pages" : "waits",
                          format_count(count(name)), what);
  return text;
}

std::vector<std::string> StatsSummary::sentences() const {
  std::vector<Likes> all;
  std::map<decltype(key_of(Json())), std::size_t> places;
  bool kinds = false;
  for (const Json& miss : misses()) {
    kinds |= number(miss, "kind") != 0;
    const auto [place, is_new] = places.try_emplace(key_of(miss), all.size());
    if (is_new) all.emplace_back();
    all[place->second].add(miss);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Likes& a, const Likes& b) { return a.count > b.count; });
  std::vector<std::string> sentences;
  for (const Likes& likes : all) sentences.push_back(sentence_of(likes, kinds));
  return sentences;
}

std::vector<std::string> StatsSummary::advice() const {
  std::vector<std::string> advice;
  if (count("hits") == 0 && count("unplanned") == count("requests") && count("steps") > 3) {
    advice.push_back(
        count("plan_failures") != 0
            ? "No plan served: one was made and its arena could not be had. Give it more memory "
              "(BERTH_MEMORY_LIMIT), or see the warning arena-memory."
        : count("plans_declined") != 0
            ? "No plan served: its arena would have held more than the pool does. On plain memory "
              "that is common: use BERTH_MEMORY=virtual where the driver has virtual memory."
        : count("plan_searches") != 0
            ? "No plan served: the run was searched and no step was found that repeats. Mark steps "
              "where a round of the loop ends, and keep shapes to a few."
            : "No plan served: no two steps in a row were alike. Mark steps where a round of the "
              "loop ends, and keep shapes to a few.");
  }
  std::map<std::string, std::uint64_t> by_reason;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<std::uint64_t>> sizes;
  for (const Json& miss : misses()) {
    by_reason[reason_of(miss)] += number(miss, "count");
    if (reason_of(miss) == "size")
      sizes[{number(miss, "kind"), number(miss, "position")}].insert(number(miss, "came_bytes"));
  }
  const bool vary = std::any_of(sizes.begin(), sizes.end(),
                                [](const auto& place) { return place.second.size() > 1; });
  if (by_reason.contains("size"))
    advice.push_back(
        vary ? "Requests at one place have several sizes: the shapes of the steps differ. Let the "
               "run learn (BERTH_MODE=learn) so that each shape that comes again is planned, and "
               "pad or group inputs to fewer shapes."
             : "The step requests other bytes than when it was planned: let the run learn "
               "(BERTH_MODE=learn), or record and plan it again. A run that learns does so after "
               "three such steps.");
  if (by_reason.contains("lost"))
    advice.push_back(
        "A kind of step came that the plan does not have, such as an evaluation or another batch "
        "size. Let the run learn it, or plan a record that contains it.");
  if (by_reason.contains("busy"))
    advice.push_back(
        "A block was kept longer than when the plan was made, often a loss or an output that is "
        "kept from step to step. Release it sooner (item(), detach()), or plan a run that keeps "
        "it.");
  if (by_reason.contains("lane"))
    advice.push_back(
        "Work ran on a stream or thread that the plan does not have. Plan a run that uses it. Or "
        "leave it to the pool where its memory is small, as that of a data loader.");
  return advice;
}

std::string StatsSummary::reasons() const {
  std::string text;
  const auto list = [&](const char* title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    text += fmt::format("\n{}\n", title);
    for (const std::string& line : lines) text += "  " + wrap(line, 4, kLineWidth);
  };
  list("Why requests missed under the last plan, most frequent first", sentences());
  list("What to do", advice());
  return text;
}

std::string StatsSummary::to_text(const std::string& name) const {
  std::string text =
      fmt::format("{}: statistics of {}, {}\n", name, format_number_of(count("steps"), "step"),
                  format_number_of(count("requests"), "request"));
  text += outcomes();
  text += fmt::format("  plans        {} learned, {} found in a folder, {} dropped\n",
                      format_count(count("plans_learned")), format_count(count("plans_found")),
                      format_count(count("plan_failures")));
  if (count("arena") != 0)
    text += fmt::format("  arena        {}, bound {}\n", format_bytes(count("arena")),
                        format_bytes(count("arena_bound")));
  text += fmt::format("  reserved     {} at the peak, live {}\n",
                      format_bytes(count("reserved_peak")), format_bytes(count("live_peak")));
  return text + reasons();
}

}  // namespace berth::cli
