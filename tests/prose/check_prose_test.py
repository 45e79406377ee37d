"""The check of sentences, on files that are made up."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check_prose  # noqa: E402

LONG = " ".join(["word"] * 31)
FITS = " ".join(["word"] * 30)


class Prose(unittest.TestCase):
    def lines(self, name, text):
        """The numbers of the lines where a file's sentences that are too long begin."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return [number for number, _, _ in check_prose.too_long(path)]

    def test_a_sentence_of_31_words_is_found(self):
        self.assertEqual(self.lines("README.md", f"# Title\n\nShort.\n{LONG}.\n"), [3])
        self.assertEqual(self.lines("README.md", f"{FITS}. {FITS}.\n"), [])

    def test_a_sentence_may_begin_with_a_small_letter(self):
        self.assertEqual(self.lines("README.md", f"{FITS}. berth {FITS[5:]}."), [])

    def test_items_and_cells_are_sentences_of_their_own(self):
        self.assertEqual(self.lines("README.md", f"- {FITS}\n- {FITS}\n1. {FITS}\n| {FITS} | {FITS} |\n"), [])
        self.assertEqual(self.lines("README.md", f"- {FITS}\n- {LONG}\n| a | {LONG} |\n"), [2, 3])

    def test_code_is_not_read_and_counts_as_one_word(self):
        self.assertEqual(self.lines("README.md", f"```\n{LONG}\n```\n\n    {LONG}\n\n`{LONG}` word.\n"), [])

    def test_a_link_counts_by_its_text(self):
        self.assertEqual(self.lines("README.md", f"{FITS[5:]} [a](b c d e f)."), [])

    def test_abbreviations_end_no_sentence(self):
        self.assertEqual(self.lines("README.md", f"{FITS[:70]} e.g. {FITS[:100]}."), [1])
        self.assertEqual(self.lines("README.md", f"{FITS[:70]} refusal. {FITS[:100]}."), [])

    def test_comments_of_a_header_are_read(self):
        self.assertEqual(self.lines("include/berth/x.h", f"// {FITS}\n// {FITS}.\nint x;\n"), [1])
        self.assertEqual(
            self.lines("include/berth/x.h", f"/* {FITS[:70]}\n * {FITS[:100]} */\nint x; /* {FITS} */\n"), [1]
        )

    def test_a_comment_behind_code_is_apart_from_the_next_line(self):
        self.assertEqual(self.lines("include/berth/x.h", f"int x;  // {FITS}\n// {FITS}.\nint y;\n"), [])
        self.assertEqual(self.lines("include/berth/x.h", f"int x;  // {FITS}\n        // {FITS}.\nint y;\n"), [1])

    def test_neighbours_among_literals_are_one_text(self):
        self.assertEqual(self.lines("csrc/x.cc", f'f("{FITS} "\n  "{FITS}");\n'), [1])
        self.assertEqual(self.lines("csrc/x.cc", f'f("{FITS}", "{FITS}");\n// "{LONG}"\n'), [])

    def test_an_entry_of_a_help_text_begins_a_sentence(self):
        self.assertEqual(self.lines("csrc/x.cc", f'f(R"(name   {FITS}\nother  {FITS}\n       {FITS})");\n'), [1])
        self.assertEqual(self.lines("csrc/x.cc", f'f("name   {FITS}\\nother  {FITS}\\n");\n'), [])

    def test_docstrings_and_messages_of_python_are_read(self):
        self.assertEqual(self.lines("x.py", f'"""{FITS}.\n\n{LONG}."""\nx = 1\n'), [1])
        self.assertEqual(
            self.lines("x.py", f'raise Error(f"{FITS} "\n            "{{x}}")\nraise Error("{FITS}. {FITS}")\n'), [1]
        )
        self.assertEqual(self.lines("x.py", f'HELP = """{FITS}\n  python -m berth {LONG}\n"""  # {LONG}\n'), [])

    def test_a_link_to_nothing_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve() / "root"
            root.mkdir()
            (root / "there.md").write_text("# A heading\n")
            (root.parent / "outside.md").write_text("")
            page = root / "README.md"
            page.write_text(
                "[a](there.md) [b](there.md#a-heading) [c](https://x.y/z) `[d](e)`\n```\n[f](g)\n```\n"
                "[h](nowhere.md) [i](there.md#none)\n[j](../outside.md)\n\n[k]: nothing.md\n"
            )
            self.assertEqual(
                list(check_prose.broken_links(page, root)),
                [(5, "nowhere.md"), (5, "there.md#none"), (6, "../outside.md"), (8, "nothing.md")],
            )

    def test_a_file_that_is_named_and_missing_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "csrc/core").mkdir(parents=True)
            (root / "csrc/core/file.h").write_text("")
            page = root / "README.md"
            page.write_text(
                "`csrc/core/file.h` `csrc/core/file` `csrc/core`\n`bench/results/NAME.md` `x/y`\n`csrc/core/fil`\n"
            )
            self.assertEqual(list(check_prose.missing_files(page, root)), [(3, "csrc/core/fil")])

    def test_all_files_that_users_read_are_read(self):
        for name in (
            "README.md",
            "CHANGELOG.md",
            "csrc/pool/README.md",
            "include/berth/place.h",
            "csrc/cli/show.cc",
            "python_shim/berth/_place.py",
            "python_shim/module/place_module.cc",
        ):
            self.assertTrue(check_prose.is_read(name), name)
        for name in (
            "tests/run",
            "tests/prose/check_prose.py",
            "csrc/plan/generated/plan_generated.h",
            "bench/results/pool.md",
        ):
            self.assertFalse(check_prose.is_read(name), name)


if __name__ == "__main__":
    unittest.main()
