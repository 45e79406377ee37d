"""The table of tests that are not run, each with its reason: exclusions.tsv."""

import csv
import dataclasses
import fnmatch
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parent / "exclusions.tsv"
WHERE = re.compile(r"standin|berth|always|\d+\.\d+")


@dataclasses.dataclass(frozen=True)
class Exclusion:
    where: str  # standin: without a GPU; berth: what only the native allocator does; always; 2.6: tests of that version
    test: str  # a pattern of PART:CLASS.METHOD
    reason: str


def load(path=TABLE):
    """The rows of the table; ValueError names a row that cannot be used."""
    rows = []
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if not row or row[0].startswith("#"):
                continue
            if len(row) != 3 or not WHERE.fullmatch(row[0]) or not all(row):
                raise ValueError(
                    f"{path.name}:{number}: wanted 'WHERE<tab>PART:CLASS.METHOD<tab>REASON', WHERE one of standin, berth, always, a version"
                )
            rows.append(Exclusion(*row))
    return rows


def reason(rows, test, standin, allocator, version):
    """Why `test` of a checkout of `version` is not run here, or None."""
    here = {"always", *(["standin"] if standin else []), *(["berth"] if allocator == "berth" else [])}
    for row in rows:
        applies = row.where in here or f"{version}.".startswith(f"{row.where}.")
        if applies and fnmatch.fnmatchcase(test, row.test):
            return row.reason
    return None
