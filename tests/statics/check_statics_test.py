#!/usr/bin/env python3
"""Tests of check_statics.py: what it takes for a static that is destroyed at exit."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_statics  # noqa: E402

COMPILER = shutil.which("c++") or shutil.which("g++")

DESTROYED = {
    "a local one": "const std::string& name() { static const std::string kName = make(); return kName; }",
    "one of the file": "std::string name = make();",
}
KEPT = {
    "one that is made by new": "const std::string& name() { static const auto& kName = *new std::string(make()); return kName; }",
    "one of a thread": "std::string& name() { thread_local std::string text = make(); return text; }",
    "one without a destructor": "std::size_t size() { static const std::size_t kSize = make().size(); return kSize; }",
}


@unittest.skipUnless(COMPILER and shutil.which("nm"), "no compiler or nm")
class CheckStatics(unittest.TestCase):
    def check(self, code):
        with tempfile.TemporaryDirectory() as folder:
            source, library = pathlib.Path(folder, "a.cc"), pathlib.Path(folder, "a.o")
            source.write_text(f"#include <string>\nstd::string make();\n{code}\n", encoding="utf-8")
            subprocess.run([COMPILER, "-std=c++20", "-O1", "-c", str(source), "-o", str(library)], check=True)
            return list(check_statics.violations(check_statics.listing("nm", library), "a"))

    def test_finds_what_is_destroyed(self):
        for name, code in DESTROYED.items():
            with self.subTest(name):
                self.assertEqual(len(self.check(code)), 1)

    def test_names_the_static(self):
        self.assertIn("kName", self.check(DESTROYED["a local one"])[0])

    def test_finds_nothing_else(self):
        for name, code in KEPT.items():
            with self.subTest(name):
                self.assertEqual(self.check(code), [])


if __name__ == "__main__":
    unittest.main()
