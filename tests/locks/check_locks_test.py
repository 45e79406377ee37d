#!/usr/bin/env python3
"""Tests of check_locks.py: what it takes for a lock, and what it says of the table."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_locks  # noqa: E402
from table import Fork, Lock  # noqa: E402

LOCKS = """
std::mutex plain;
  mutable SpinMutex mutex_;  // covers all below
  static constinit SetupMutex setup;
  std::condition_variable wake;
  static std::once_flag once;
  static const Loaded kLoaded = load();
  [[maybe_unused]] static const bool registered = [] {
  static auto* const kept = new std::string;
  static const int on_two_lines =
      ::pthread_atfork(nullptr, nullptr, nullptr);
  static const std::vector<std::string> kNames = {"a", "b",
"""
NO_LOCKS = """
// std::mutex in_a_comment;
"std::mutex in_a_text;"
void take(SpinMutex& mutex);
  SpinMutex& mutex;
  SpinMutex* lock = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  static Status gone(const char* call) noexcept {
  static std::unique_ptr<Recorder> open(const std::string& path, const trace::Program& program,
  static std::atomic<bool> warned{false}, warned_too{false};
  static std::atomic<std::uint64_t> next{1};
  static void* handle = nullptr;
  static constexpr std::array<int, 2> kTwo = {1, 2};
  static std::atomic<Installation*> instance_;
static const int of_the_file = make();
"""


class CheckLocks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, file, text):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def test_finds_each_kind_of_lock(self):
        path = self.write("csrc/core/a.cc", LOCKS)
        names = [name for _, name in check_locks.locks(path)]
        self.assertEqual(
            names,
            ["plain", "mutex_", "setup", "wake", "once", "kLoaded", "registered", "kept", "on_two_lines", "kNames"],
        )

    def test_takes_nothing_else_for_one(self):
        path = self.write("csrc/core/a.cc", NO_LOCKS)
        self.assertEqual(list(check_locks.locks(path)), [])

    def test_names_what_the_table_does_not_know(self):
        self.write("csrc/core/a.cc", "std::mutex mutex;\n")
        (violation,) = check_locks.violations(self.root, ())
        self.assertIn("csrc/core/a.cc:1: mutex", violation)

    def test_names_what_the_table_knows_wrongly(self):
        self.write("csrc/core/a.cc", "std::mutex mutex;\nheld(mutex);\n")
        row = Lock("csrc/core/a.cc", "mutex", Fork.HELD, "csrc/core/a.cc", "held(mutex)", "")
        self.assertEqual(list(check_locks.violations(self.root, (row,))), [])
        for wrong in ({"name": "other"}, {"text": "not_held(mutex)"}, {"where": "csrc/core/b.cc"}):
            row = Lock(
                **{
                    "file": "csrc/core/a.cc",
                    "name": "mutex",
                    "fork": Fork.HELD,
                    "where": "csrc/core/a.cc",
                    "text": "held(mutex)",
                    "why": "",
                }
                | wrong
            )
            self.assertTrue(list(check_locks.violations(self.root, (row,))), wrong)

    def test_leaves_the_stand_in_and_the_program_out(self):
        for folder in ("standin", "cli", "replay"):
            self.write(f"csrc/{folder}/a.cc", "std::mutex mutex;\n")
        self.assertEqual(list(check_locks.violations(self.root, ())), [])


if __name__ == "__main__":
    unittest.main()
