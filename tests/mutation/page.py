"""The kept results of mutants: a page in Markdown with a row for each mutant's last run."""

import dataclasses
import re
import subprocess
import time

from table import MUTANTS, WITHOUT

HEAD = """# tests/mutants

`tests/mutants --resume --output bench/results/mutants.md`. Each row is one statement that was removed or changed, and the first test that then failed. Rules: 2.1 to 2.4 and ends as in csrc/runtime/README.md; S1 to S15 as in csrc/README.md.

| rule | mutant | what is removed | killed by | s | commit | date |
| --- | --- | --- | --- | ---: | --- | --- |
"""
SURVIVED = "**survived**: "


@dataclasses.dataclass
class Row:
    name: str
    by: str  # the test that failed; of a survivor SURVIVED and why
    seconds: float
    commit: str
    date: str

    @property
    def killed(self):
        return not self.by.startswith(SURVIVED)


def row_of(result, commit):
    by = result.by if result.killed else SURVIVED + result.by
    return Row(result.mutant.name, by, result.seconds, commit, time.strftime("%Y-%m-%d", time.gmtime()))


def read(path):
    """The page's rows by mutant; none where there is no page."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 7 and re.fullmatch(r"\d+", cells[4]):
            rows[cells[1]] = Row(cells[1], cells[3], float(cells[4]), cells[5], cells[6])
    return rows


def text(rows):
    """The page of these rows, in the order of the table; mutants that are no more are left out."""
    cell = lambda words: words.replace("|", r"\|")
    lines = []
    for mutant in MUTANTS:
        if row := rows.get(mutant.name):
            lines.append(
                f"| {mutant.rule} | {row.name} | {cell(mutant.what)} | {cell(row.by)} | {row.seconds:.0f} | {row.commit} | {row.date} |"
            )
    killed = sum(rows[mutant.name].killed for mutant in MUTANTS if mutant.name in rows)
    count = f"{killed} of {len(lines)} mutants killed; {len(MUTANTS) - len(lines)} of {len(MUTANTS)} have not run yet."
    return (
        HEAD
        + "\n".join(lines + [f"| {rule} | | none | {why} | | | |" for rule, why in WITHOUT.items()] + ["", count])
        + "\n"
    )


def write(path, rows):
    """Whole or not at all."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text(rows), encoding="utf-8")
    beside.replace(path)


def is_still_true(row, file, root):
    """Whether the mutant was killed and its source file is as it was then."""
    unchanged = ["git", "diff", "--quiet", row.commit, "--", str(file)]
    return row.killed and subprocess.run(unchanged, cwd=root, capture_output=True).returncode == 0
