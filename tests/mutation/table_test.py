"""That the table of mutants fits the sources, without a build."""

import io
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutants  # noqa: E402
import page  # noqa: E402
import points  # noqa: E402
import table  # noqa: E402


class Table(unittest.TestCase):
    def test_each_mutant_has_its_point_and_changes_something(self):
        for mutant in table.MUTANTS:
            with self.subTest(mutant=mutant.name):
                file, text = points.changed(mutant.name, mutant.change)
                self.assertNotEqual(text, (points.ROOT / file).read_text(encoding="utf-8"))

    def test_each_point_has_its_mutant(self):
        self.assertEqual(set(points.points()), {mutant.name for mutant in table.MUTANTS})

    def test_each_rule_has_a_mutant_or_a_reason(self):
        rules = {mutant.rule for mutant in table.MUTANTS}
        self.assertFalse(rules & set(table.WITHOUT))
        self.assertEqual(
            rules | set(table.WITHOUT),
            {
                "2.1",
                "2.2",
                "2.3",
                "2.4",
                "ends",
                "alias",
                "handles",
                "pages",
                "plain",
                "parked",
                "kinds",
                "learning",
                "trial",
                "planning",
                "folder",
                "plan",
                "graph",
                "referee",
                "order",
                "kept",
                "copies",
                "step",
                "barrier",
                "threads",
                "streams",
            }
            | {f"S{n}" for n in range(1, 16)},
        )

    def test_names_and_changes_are_unique(self):
        self.assertEqual(len({mutant.name for mutant in table.MUTANTS}), len(table.MUTANTS))
        changes = {points.changed(mutant.name, mutant.change) for mutant in table.MUTANTS}
        self.assertEqual(len(changes), len(table.MUTANTS))

    def test_each_test_program_is_built(self):
        text = "\n".join(path.read_text() for path in (mutants.ROOT / "tests").glob("*/CMakeLists.txt"))
        for program in mutants.programs(table.MUTANTS):
            name = program.removeprefix("berth_").removesuffix("_test")
            self.assertRegex(text, rf"berth_test\({name}\s")


class Points(unittest.TestCase):
    TEXT = """  // mutant: one, two
  // Why it is so.
  if (f(a, "};") && b[0] == '{')
    return {1, 2};
  // mutant: three
  for (int i = 0; i < 3; ++i) {
    // mutant: four
    g([&] { h(); i = Point{1}.x; });
    k();
  }
"""

    def changed(self, name, change):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "csrc").mkdir()
            (root / "csrc" / "a.cc").write_text(self.TEXT)
            file, text = points.changed(name, change, root)
            self.assertEqual(file, "csrc/a.cc")
            return text

    def test_statements_end_where_they_end(self):
        branch = "if (f(a, \"};\") && b[0] == '{')\n    return {1, 2};"
        self.assertEqual(self.changed("two", points.Drop()), self.TEXT.replace(branch, ""))
        self.assertEqual(self.changed("four", points.Drop(2)).count("();"), 0)
        self.assertIn("  x {\n    // mutant: four", self.changed("three", points.Replace("x {")))
        self.assertIn("if (true)\n    return {1, 2};", self.changed("one", points.ALWAYS))
        self.assertIn("i < 4;", self.changed("three", points.Swap("i < 3", "i < 4")))

    def test_what_is_not_there_is_lost(self):
        for name, change in (
            ("five", points.Drop()),
            ("three", points.NEVER),
            ("four", points.Drop(3)),
            ("one", points.Swap("absent", "")),
            ("three", points.Swap("i", "j")),
        ):
            with self.subTest(name=name), self.assertRaises(points.Lost):
                self.changed(name, change)


class Script(unittest.TestCase):
    def test_the_failed_test_is_found_in_a_report_that_may_be_cut_short(self):
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder, "report.xml")
            self.assertEqual(mutants.failed_test(report), "before its first test")
            report.write_text(
                '<Group><TestCase name="One &lt; two">\n</TestCase><TestCase name="A block&apos;s bytes">\n<Exp'
            )
            self.assertEqual(mutants.failed_test(report), "A block's bytes")
            report.write_text(
                '<TestCase name="One"><OverallResult success="true"/></TestCase>'
                '<TestCase name="Two"><Expression success="false"/></TestCase><TestCase name="Three">'
            )
            self.assertEqual(mutants.failed_test(report), "Two")

    def test_list_names_each_mutant_and_builds_nothing(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(mutants.main(["--list"]), 0)
        for mutant in table.MUTANTS:
            self.assertIn(mutant.name, output.getvalue())

    def test_an_unknown_name_is_wrong_usage(self):
        with contextlib.redirect_stderr(io.StringIO()) as output, self.assertRaises(SystemExit) as ended:
            mutants.main(["s99"])
        self.assertEqual(ended.exception.code, 2)
        self.assertIn("s99", output.getvalue())


class Page(unittest.TestCase):
    def rows(self):
        first, second = table.MUTANTS[0].name, table.MUTANTS[1].name
        return {
            second: page.Row(second, page.SURVIVED + "every test passes", 7, "abc1234", "2026-11-22"),
            first: page.Row(first, "A | B (signal 6)", 12, "abc1234", "2026-11-22"),
        }

    def test_what_is_written_is_read_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            self.assertEqual(page.read(path), {})
            page.write(path, self.rows() | {"gone": page.Row("gone", "A", 1, "abc1234", "2026-11-22")})
            self.assertEqual(page.read(path), self.rows())
            self.assertIn(f"1 of 2 mutants killed; {len(table.MUTANTS) - 2} of {len(table.MUTANTS)}", path.read_text())

    def test_a_result_holds_as_long_as_its_source_file_is_unchanged(self):
        with tempfile.TemporaryDirectory() as folder:
            git = lambda *words: subprocess.run(
                ["git", "-c", "user.name=A", "-c", "user.email=a@b", *words],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            (pathlib.Path(folder) / "a.cc").write_text("1")
            git("init", "-q")
            git("add", ".")
            git("commit", "-q", "-m", "A")
            row = page.Row("x", "A", 1, git("rev-parse", "HEAD"), "2026-11-22")
            self.assertTrue(page.is_still_true(row, "a.cc", folder))
            self.assertFalse(page.is_still_true(page.Row("x", page.SURVIVED, 1, row.commit, row.date), "a.cc", folder))
            self.assertFalse(page.is_still_true(page.Row("x", "A", 1, "0" * 40, row.date), "a.cc", folder))
            (pathlib.Path(folder) / "a.cc").write_text("2")
            self.assertFalse(page.is_still_true(row, "a.cc", folder))

    def test_resuming_needs_a_page(self):
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            mutants.main(["--resume"])


if __name__ == "__main__":
    unittest.main()
