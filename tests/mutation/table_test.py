"""That the table of mutants fits the sources, without a build."""

import io
import contextlib
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutants  # noqa: E402
import table  # noqa: E402


class Table(unittest.TestCase):
    def test_each_text_is_in_its_file_once(self):
        for mutant in table.MUTANTS:
            with self.subTest(mutant=mutant.name):
                self.assertEqual(mutants.occurrences(mutant), 1, f"in {mutant.file}")
                self.assertNotEqual(mutant.old, mutant.new)

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
            }
            | {f"S{n}" for n in range(1, 16)},
        )

    def test_names_and_changes_are_unique(self):
        self.assertEqual(len({mutant.name for mutant in table.MUTANTS}), len(table.MUTANTS))
        self.assertEqual(len({(mutant.file, mutant.old, mutant.new) for mutant in table.MUTANTS}), len(table.MUTANTS))

    def test_each_test_program_is_built(self):
        text = "\n".join(path.read_text() for path in (mutants.ROOT / "tests").glob("*/CMakeLists.txt"))
        for program in mutants.programs(table.MUTANTS):
            name = program.removeprefix("berth_").removesuffix("_test")
            self.assertRegex(text, rf"berth_test\({name}\s")


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


if __name__ == "__main__":
    unittest.main()
