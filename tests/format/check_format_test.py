"""The check of the format, on files that are made up and tools that are scripts."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parent / "check_format.py"
# Both tools refuse a file that holds "wrong", in their own words, and replace it where they are asked to.
CLANG = """
case "$1" in
  --version) echo "Debian clang-format version VERSION" ;;
  -i) shift; sed -i s/wrong/right/ "$@" ;;
  *) for file; do case "$file" in -*) ;; *) if grep -q wrong "$file"; then echo "$file:1:2: error: code should be clang-formatted"; bad=1; fi ;; esac; done
     exit ${bad:-0} ;;
esac
"""
RUFF = """
case "$1 $2" in
  --version*) echo "ruff VERSION" ;;
  "format --quiet") shift 3; sed -i s/wrong/right/ "$@" ;;
  *) shift 3; for file; do if grep -q wrong "$file"; then echo "Would reformat: $file"; bad=1; fi; done
     exit ${bad:-0} ;;
esac
"""


class Format(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name).resolve()
        self.write("cmake/format-requirements.txt", "# why\nclang-format==14.0.6\nruff==0.17.6\n")
        self.tool("clang-format", CLANG, "14.0.6")
        self.tool("ruff", RUFF, "0.17.6")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def tool(self, name, text, version):
        self.write(f".venv/bin/{name}", "#!/bin/sh\n" + text.replace("VERSION", version)).chmod(0o755)

    def check(self, language, *more):
        done = subprocess.run(
            [sys.executable, "-B", SCRIPT, language, self.root, *more],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin"},
        )
        return done.returncode, done.stdout + done.stderr

    def test_each_unformatted_file_is_named_and_others_pass(self):
        for language, suffixes in (("cpp", ("cc", "h", "c")), ("python", ("py",))):
            for suffix in suffixes:
                path = self.write(f"csrc/x.{suffix}", "wrong\n")
                code, text = self.check(language)
                self.assertEqual(code, 1, text)
                self.assertIn(f"csrc/x.{suffix}: is not as", text)
                path.write_text("right\n")
                self.assertEqual(self.check(language), (0, ""))

    def test_generated_sources_and_those_that_git_does_not_know_are_left_alone(self):
        self.write("csrc/x.cc", "right\n")
        self.write("csrc/trace/generated/x.h", "wrong\n")
        self.write("build/x.cc", "wrong\n")
        self.assertEqual(self.check("cpp"), (0, ""))
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.write(".gitignore", "left/\n.venv/\nbuild/\n")
        self.write("left/x.cc", "wrong\n")
        self.assertEqual(self.check("cpp"), (0, ""))

    def test_all_files_are_formatted_where_that_is_asked_for(self):
        paths = [self.write(f"csrc/x{n}.cc", "wrong\n") for n in range(150)] + [self.write("x.py", "wrong\n")]
        self.assertEqual(self.check("cpp", "--fix"), (0, ""))
        self.assertEqual(self.check("python", "--fix"), (0, ""))
        self.assertEqual({path.read_text() for path in paths}, {"right\n"})

    def test_another_version_is_a_skip_that_names_it(self):
        self.tool("ruff", RUFF, "0.17.5")
        code, text = self.check("python")
        self.assertEqual(code, 77)
        self.assertIn("no ruff 0.17.6: cmake/setup installs it", text)
        self.assertIn("is 0.17.5", text)

    def test_a_tool_that_fails_fails_the_check(self):
        self.write("csrc/x.cc", "right\n")
        self.tool(
            "clang-format", 'if [ "$1" = --version ]; then echo VERSION; else echo broken >&2; exit 3; fi', "14.0.6"
        )
        code, text = self.check("cpp")
        self.assertEqual(code, 1)
        self.assertIn("ended with 3: broken", text)

    def test_no_files_are_a_failure(self):
        self.assertEqual(self.check("cpp")[0], 1)


if __name__ == "__main__":
    unittest.main()
