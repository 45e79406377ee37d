#include "csrc/plan/folder.h"

#include "csrc/core/check.h"
#include "csrc/core/checksum.h"
#include "csrc/core/file.h"
#include "csrc/plan/file.h"
#include "csrc/plan/section_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

namespace berth {
namespace {

constexpr std::string_view kPrefix = "berth-", kSuffix = ".plan", kTemporary = ".tmp";
constexpr std::size_t kDigits = 16, kNumbers = 3;
constexpr std::size_t kNameBytes =
    kPrefix.size() + kNumbers * kDigits + (kNumbers - 1) + kSuffix.size();
// What a writer left that is older than this, it will not come back to.
constexpr std::int64_t kAbandonedSeconds = 3600;

// Whether a name is one that PlanFolder gives.
bool is_ours(std::string_view name) {
  if (name.size() != kNameBytes || !name.starts_with(kPrefix) || !name.ends_with(kSuffix))
    return false;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool dash = i % (kDigits + 1) == kDigits;
    if (dash ? name[i] != '-' : std::string_view("0123456789abcdef").find(name[i]) == name.npos)
      return false;
  }
  return true;
}

bool is_our_temporary(std::string_view name) {
  return name.size() > kNameBytes && is_ours(name.substr(0, kNameBytes)) &&
         name.ends_with(kTemporary);
}

std::string prefix_of(std::uint64_t program) { return fmt::format("{}{:016x}-", kPrefix, program); }

// Of plans for the same requests, those with equal offsets.
std::uint64_t hash_of_places(const Plan& plan) {
  std::uint64_t hash = hash_combine(0, plan.arena_bytes);
  for (const Sequence& sequence : plan.sequences) {
    for (const Slot& slot : sequence.slots) {
      hash = hash_combine(hash, slot.offset);
      hash = hash_combine(hash, slot.length);
    }
  }
  return hash;
}

std::string name_of(const Plan& plan) {
  return fmt::format("{}{:016x}-{:016x}{}", prefix_of(program_key(plan.program, plan.alignment)),
                     fingerprint(plan), hash_of_places(plan), kSuffix);
}

// Whether everyone keeps `a` where both are there. No two are kept for each other, and no three in
// a circle: either `a` has more kinds of steps, or of plans with the same kinds it is the first in
// one order.
//
// What a plan leaves to the pool makes its arena small, so the planned bytes come first.
bool replaces(const PlanFolder::Found& a, const PlanFolder::Found& b) {
  if (!a.head.covers(b.head)) return false;
  // mutant: folder-kinds
  if (!b.head.covers(a.head)) return a.head.plans_as_much_as(b.head);
  // mutant: folder-order, folder-planned
  return std::tie(b.head.planned_bytes, a.head.arena_bytes, a.file) <
         std::tie(a.head.planned_bytes, b.head.arena_bytes, b.file);
}

}  // namespace

struct PlanFolder::File {
  std::string name;
  Bytes bytes = 0;
  std::int64_t used = 0;  // seconds
};

PlanFolder::PlanFolder(std::string path, trace::Program program, Bytes alignment, Access access,
                       Limits limits)
    : path_(std::move(path)),
      program_(std::move(program)),
      alignment_(alignment),
      access_(access),
      limits_(limits) {}

bool PlanFolder::is_named_by(const std::string& path) {
  std::error_code ignored;
  return path.ends_with('/') || std::filesystem::is_directory(path, ignored);
}

// --- Reading ------------------------------------------------------------------------------------

std::string PlanFolder::at(const std::string& file) const {
  return path_ + (path_.ends_with('/') ? "" : "/") + file;
}

std::vector<std::string> PlanFolder::names() const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(path_, error);
  if (error == std::errc::no_such_file_or_directory) {
    BERTH_CHECK(access_ == Access::kWrite, kInput, "there is no folder of plans at '{}'", path_);
    return names;
  }
  for (; !error && entry != std::filesystem::directory_iterator() && names.size() < limits_.names;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  BERTH_CHECK(!error, kSystem, "cannot read the folder of plans '{}': {}", path_, error.message());
  return names;
}

// Those of ours whose names begin so, last used first.
std::vector<PlanFolder::File> PlanFolder::files(const std::vector<std::string>& names,
                                                std::string_view prefix) const {
  std::vector<File> files;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix) || !is_ours(name)) continue;
    struct stat info {};
    if (::stat(at(name).c_str(), &info) != 0) continue;  // gone since
    files.push_back({name, static_cast<Bytes>(info.st_size), info.st_mtime});
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::tie(b.used, a.name) < std::tie(a.used, b.name);
  });
  return files;
}

PlanFolder::Listing PlanFolder::list() const {
  const std::uint64_t key = program_key(program_, alignment_);
  const std::vector<std::string> names = this->names();
  std::vector<std::string> to_read;
  for (File& file : files(names, prefix_of(key))) to_read.push_back(std::move(file.name));
  for (const std::string& name : names)
    if (name.ends_with(kSuffix) && !is_ours(name)) to_read.push_back(name);

  Listing listing;
  for (std::string& name : to_read) {
    if (listing.opened == limits_.heads) break;
    try {
      ++listing.opened;
      listing.read += kPlanHeadBytes;
      std::optional<PlanHead> head = read_plan_head(at(name));
      if (!head || program_key(head->program, head->alignment) != key) continue;
      listing.plans.push_back({std::move(name), std::move(*head)});
    } catch (const Error& error) {
      if (is_ours(name) && has({name, {}})) listing.problems.emplace_back(error.what());
    }
  }
  const auto like_ours = [&](const Found& found) {
    const trace::Program& other = found.head.program;
    return (other.rank == program_.rank ? 2 : 0) +
           (other.world_size == program_.world_size ? 1 : 0) +
           (other.device_bytes == program_.device_bytes ? 1 : 0);
  };
  std::stable_sort(listing.plans.begin(), listing.plans.end(),
                   [&](const Found& a, const Found& b) { return like_ours(a) > like_ours(b); });
  return listing;
}

Plan PlanFolder::read(const Found& found) {
  const std::string file = at(found.file);
  refused_.insert(found.file);
  Plan plan = read_plan(file);
  // Another rank may have written the same since.
  // mutant: folder-head
  BERTH_CHECK(found.head.agrees_with(head_of(plan)), kInput,
              "'{}' is malformed: its head is not that of its requests", file);
  refused_.erase(found.file);
  if (access_ == Access::kWrite) ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
  return plan;
}

bool PlanFolder::has(const Found& found) const {
  struct stat info {};
  return ::lstat(at(found.file).c_str(), &info) == 0;
}

// --- Writing ------------------------------------------------------------------------------------

// What can be had of one program now, but for what is known to be none.
std::vector<PlanFolder::Found> PlanFolder::rivals(std::string_view prefix) const {
  std::vector<Found> found;
  for (File& file : files(names(), prefix)) {
    // mutant: folder-refused
    if (refused_.contains(file.name)) continue;
    try {
      if (std::optional<PlanHead> head = read_plan_head(at(file.name)))
        found.push_back({std::move(file.name), std::move(*head)});
    } catch (const Error&) {  // gone since, or damaged
    }
  }
  return found;
}

std::string PlanFolder::keep(const Plan& plan) {
  // mutant: folder-reads
  if (access_ == Access::kRead) return {};
  const Found mine{name_of(plan), head_of(plan)};
  // mutant: folder-nothing
  if (mine.head.planned_bytes == 0) return {};  // of no use to anybody
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  BERTH_CHECK(!error, kSystem, "cannot make the folder of plans '{}': {}", path_, error.message());
  for (const Found& other : rivals(prefix_of(program_key(plan.program, plan.alignment)))) {
    if (other.file != mine.file && !replaces(other, mine)) continue;
    try {  // its head may be damaged, and nobody has read the rest
      // mutant: folder-damaged-head
      (void)read(other);
      return {};
    } catch (const Error&) {
    }
  }
  write_file_atomically(at(mine.file), serialize_plan(plan, &mine.head));
  refused_.erase(mine.file);
  settle(mine);
  keep_limits(mine.file);
  return mine.file;
}

// Others may have written at the same time: each who did removes what is superseded.
void PlanFolder::settle(const Found& mine) {
  const std::vector<Found> there =
      rivals(std::string_view(mine.file).substr(0, kPrefix.size() + kDigits + 1));
  for (const Found& other : there)
    if (other.file != mine.file && replaces(mine, other)) remove(other.file);
  if (std::any_of(there.begin(), there.end(),
                  [&](const Found& other) { return replaces(other, mine); }))
    remove(mine.file);
}

void PlanFolder::keep_limits(const std::string& spared) const {
  const std::vector<std::string> names = this->names();
  std::vector<File> ours = files(names, kPrefix);  // last used first
  std::size_t plans = ours.size();
  Bytes bytes = 0;
  for (const File& file : ours) bytes += file.bytes;
  // mutant: folder-limit
  while (!ours.empty() && (plans > limits_.plans || bytes > limits_.bytes)) {
    const File oldest = std::move(ours.back());
    ours.pop_back();
    if (oldest.name == spared) continue;
    remove(oldest.name);
    --plans;
    bytes -= oldest.bytes;
  }
  // The file system's clock, not this machine's.
  struct stat info {};
  if (::stat(at(spared).c_str(), &info) != 0) return;
  const std::int64_t now = info.st_mtime;
  for (const std::string& name : names) {
    if (!is_our_temporary(name) || ::stat(at(name).c_str(), &info) != 0) continue;
    if (S_ISREG(info.st_mode) && info.st_mtime < now - kAbandonedSeconds)
      ::unlink(at(name).c_str());
  }
}

// A name alone makes no plan.
void PlanFolder::remove(const std::string& file) const noexcept {
  try {
    const std::vector<std::byte> head = read_file_head(at(file), kPlanMagic.size());
    // mutant: folder-foreign
    if (std::ranges::equal(head, std::as_bytes(std::span(kPlanMagic)))) ::unlink(at(file).c_str());
  } catch (const std::exception&) {
  }
}

}  // namespace berth
