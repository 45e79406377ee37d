#!/usr/bin/env python3
"""Writes the table of figures in README.md from the pages of bench/results, each row with its page's commit and date.

With --check it changes nothing: it prints the rows that differ and exits with 1.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT = r"^\*\*gpt\*\*"  # where the pages have its table
HEAD = "| what | berth | baseline | measured at |\n| --- | --- | --- | --- |\n"


class Missing(Exception):
    """A page has no such figure any more."""


class Page:
    """A page of results: its tables, commit and date."""

    def __init__(self, path):
        self.name = path.name
        self.text = path.read_text(encoding="utf-8")

    def find(self, pattern):
        match = re.search(pattern, self.text, re.MULTILINE)
        if match is None:
            raise Missing(f"{self.name} has nothing like '{pattern}'")
        return match

    def measured_at(self):
        commit, dirty = self.find(r"\b[Cc]ommit ([0-9a-f]{7})[0-9a-f]*(\+?)").groups()
        return f"{commit}{dirty}, {self.find(r'20[0-9]{2}-[0-9]{2}-[0-9]{2}')[0]}"

    def rows(self, after):
        """The first table behind a text: a dictionary a row, by the names of the columns."""
        lines = self.text[self.find(after).end() :].splitlines()[1:]
        first = next((n for n, line in enumerate(lines) if line.startswith("|")), None)
        if first is None:
            raise Missing(f"{self.name} has no table behind '{after}'")
        table = []
        for line in lines[first:]:
            if not line.startswith("|"):
                break
            table.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        return [dict(zip(table[0], row)) for row in table[2:]]

    def cell(self, after, row, column):
        for cells in self.rows(after):
            if next(iter(cells.values())) == row and cells.get(column):
                return cells[column]
        raise Missing(f"{self.name} has no '{column}' of '{row}' behind '{after}'")


def number(text):
    return float(re.match(r"[\d,.]+", text)[0].replace(",", ""))


def milliseconds(text):
    return f"{int(number(text) + 0.5)} ms"


def demo(page, model):
    return [milliseconds(page.cell(model, row, "step")) for row in ("berth learn", "glibc")]


def demo_memory(page):
    return [page.cell("^GPT", row, "peak memory") for row in ("berth learn", "glibc")]


def traces(page):
    ratios = [
        row["arena / bound"] for row in page.rows("^# Recorded runs") if re.fullmatch(r"[\d.]+", row["arena / bound"])
    ]
    return len(ratios), max(ratios, key=float)


def orders(page):
    rows = page.rows("^## Order")
    proven = [row for row in rows if row["proven"] == "yes"]
    return f"{len(proven)} of {len(rows)}", f"{max(number(row['s']) for row in rows):.2f} s at most"


def over_eager(page, row):
    return f"{number(page.cell(GPT, row, 'over eager')):.2f} x"


def figures(results):
    """Rows of the table: what, berth, baseline, measured at."""
    pages = {
        name: Page(results / f"{name}.md")
        for name in ("demo", "traces", "changing", "cuda", "step", "partition", "schedule")
    }
    page = pages.get
    step, partition, changing = page("step"), page("partition"), page("changing")
    mean = changing.find(r"^Of (\d+) programs .*Mean: berth (\d+\.\d+), expandable (\d+\.\d+)")
    runs, worst = traces(page("traces"))
    share = number(step.cell(GPT, "checkpoint", "of eager, %"))
    proven, slowest = orders(page("schedule"))
    ns = [page("cuda").cell(r"^\*\*Allocate \+ free\*\*", "1", column) for column in ("berth", "caching")]
    memory = [partition.cell(GPT, "40%", column) for column in ("berth, MiB", "PyTorch, MiB")]
    gpt, resnet = demo(page("demo"), "^GPT"), demo(page("demo"), "^ResNet-18")
    peak = demo_memory(page("demo"))
    rows = [
        ("demo", "[GPT on the CPU, a step][demo]", gpt[0], f"{gpt[1]}, glibc"),
        ("demo", "[the same, peak memory][demo]", peak[0], f"{peak[1]}, glibc"),
        ("demo", "[ResNet-18 on the CPU, a step][demo]", resnet[0], f"{resnet[1]}, glibc"),
        ("traces", f"[arena / bound, {runs} runs][traces]", f"{worst} at most", "1.000, the bound"),
        ("changing", f"[reserved / live, {mean[1]} programs][48], stand-in", mean[2], f"{mean[3]}, expandable"),
        ("cuda", "[CUDA allocate + free][cuda], stand-in", f"{ns[0]} ns", f"{ns[1]} ns, PyTorch"),
        (
            "step",
            "[GPT step in 60 % of the memory][steps]",
            over_eager(step, "berth, 60 %"),
            f"{over_eager(step, 'eager')}, eager",
        ),
        (
            "step",
            f"[the same GPT, in {share:.0f} %][steps]",
            over_eager(step, "berth, memory of checkpoint"),
            f"{over_eager(step, 'checkpoint')}, checkpoints",
        ),
        ("partition", "[torch.compile, GPT at 40 %][compile]", f"{memory[0]} MiB", f"{memory[1]} MiB, PyTorch"),
        ("schedule", f"[order of graphs, proven: {proven}][orders]", slowest, ""),
    ]
    return [
        f"| {what} | {ours} | {baseline} | {pages[name].measured_at()} |".replace("|  |", "| |")
        for name, what, ours, baseline in rows
    ]


def replaced(readme, rows):
    """The README's text with these rows, and the rows that it has."""
    before, head, after = readme.partition(HEAD)
    if not head:
        raise Missing("README.md has no table of figures")
    table = re.match(r"(?:\|.*\n)*", after)[0]
    return before + head + "".join(f"{row}\n" for row in rows) + after[len(table) :], table.splitlines()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 where a row differs")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="of the repository")
    arguments = parser.parse_args()
    readme = arguments.root / "README.md"
    try:
        rows = figures(arguments.root / "bench/results")
        text, old = replaced(readme.read_text(encoding="utf-8"), rows)
    except Missing as missing:
        print(f"readme_figures: {missing}", file=sys.stderr)
        return 1
    if not arguments.check:
        readme.write_text(text, encoding="utf-8")
        return 0
    for row in [row for row in old if row not in rows]:
        print(f"README.md has:     {row}")
    for row in [row for row in rows if row not in old]:
        print(f"bench/results has: {row}")
    if old != rows:
        print("bench/tools/readme_figures.py writes them")
    return 0 if old == rows else 1


if __name__ == "__main__":
    sys.exit(main())
