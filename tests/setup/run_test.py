"""tests/run for single folders, with tools that note what they are called with."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CMAKE = """
echo "cmake $*" >>"$CALLS"
case "$*" in *"--target help"*) printf 'edit_cache: phony\\nberth_tests_pool: phony\\nberth_tests_plan: phony\\n' ;; esac
"""
CTEST = """
echo "ctest $*" >>"$CALLS"
case "$*" in
  *build/release*)
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      [ -z "$WAITS" ] || grep -q 'cmake --build .*build/asan' "$CALLS" || sleep 1
    done ;;
esac
echo "tested" >>"$CALLS"
while [ "$1" != --output-junit ]; do shift; done
echo '<testsuite><testcase name="pool: one" status="run"/></testsuite>' >"$2"
"""


class Run(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name, text in (
            ("tests/run_tests.py", (ROOT / "tests/run_tests.py").read_text()),
            ("tests/pool/CMakeLists.txt", ""),
            ("tests/plan/CMakeLists.txt", ""),
            ("tests/bench/CMakeLists.txt", ""),
            ("tools/cmake", "#!/bin/sh\n" + CMAKE),
            ("tools/ctest", "#!/bin/sh\n" + CTEST),
            ("calls", ""),
        ):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def run_tests(self, *arguments, waits=False):
        done = subprocess.run(
            [sys.executable, "-B", self.folder / "tests/run_tests.py", "--no-setup", *arguments],
            text=True,
            capture_output=True,
            env={
                "PATH": f"{self.folder}/tools:/usr/bin:/bin",
                "CALLS": str(self.folder / "calls"),
                "WAITS": "1" * waits,
            },
        )
        return done, (self.folder / "calls").read_text().splitlines()

    def test_a_folder_is_built_and_tested_alone(self):
        done, calls = self.run_tests("pool", "plan")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "1 passed, 0 failed"), done.stderr)
        builds = [call for call in calls if "--build" in call and "help" not in call]
        self.assertEqual(len(builds), 1)
        self.assertIn("--target berth_tests_pool berth_tests_plan ", builds[0])
        self.assertIn("-L ^(pool|plan)$", calls[-2])
        self.assertNotIn("asan", " ".join(calls))

    def test_a_folder_that_needs_the_whole_build_gets_it(self):
        _, calls = self.run_tests("pool", "bench")
        self.assertNotIn("--target", [call for call in calls if "--build" in call and "help" not in call][0])
        self.assertIn("-L ^(pool|bench)$", calls[-2])

    def test_without_a_folder_all_is_built_and_tested(self):
        done, calls = self.run_tests("--quick")
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 0 failed")  # the public headers are the other one
        self.assertNotIn("-L ", " ".join(calls).replace("-LE ", ""))
        self.assertFalse([call for call in calls if "berth_tests" in call])

    def test_the_next_configuration_is_built_while_tests_run(self):
        done, calls = self.run_tests(waits=True)
        self.assertEqual(done.stdout.splitlines()[-1], "3 passed, 0 failed")
        built = next(i for i, call in enumerate(calls) if call.startswith("cmake --build") and "build/asan" in call)
        self.assertLess(built, calls.index("tested"))
        self.assertEqual(calls.count("tested"), 2)

    def test_what_takes_long_is_run_alone_and_kept(self):
        done, calls = self.run_tests("--long")
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 0 failed")
        self.assertIn("-L ^long$", calls[-2])
        self.assertNotIn("asan", " ".join(calls))
        page = (self.folder / "bench/results/long_tests.md").read_text()
        self.assertIn("| pool: one | passed | 0 |", page)
        done, calls = self.run_tests("--long", "pool")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--long is a run of its own", done.stderr)

    def test_benches_are_built_where_they_are_run(self):
        for arguments, built in (
            ([], False),
            (["pool"], False),
            (["bench"], True),
            (["--long"], True),
            (["--all"], True),
        ):
            with self.subTest(arguments=arguments):
                (self.folder / "calls").write_text("")
                _, calls = self.run_tests(*arguments)
                release = [call for call in calls if "cmake/release.cmake" in call]
                self.assertEqual(
                    [f"-DBERTH_BUILD_BENCH={'ON' if built else 'OFF'}" in call for call in release], [True]
                )
                for call in calls:
                    self.assertTrue("cmake/release.cmake" in call or "-DBERTH_BUILD_BENCH=ON" not in call, call)
                tested = [call for call in calls if "--output-junit" in call][0]
                self.assertEqual("-LE ^long$" in tested, not built, tested)

    def test_an_unknown_folder_is_wrong_usage_that_names_the_others(self):
        done, calls = self.run_tests("pools")
        self.assertEqual((done.returncode, calls), (2, []))
        self.assertIn("no folder of tests 'pools', there are: bench, plan, pool", done.stderr)


if __name__ == "__main__":
    unittest.main()
