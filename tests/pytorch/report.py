"""What a run of the conformance suite says: on the terminal, as JSON, as a page."""

import collections
import re
import time

START = time.monotonic()
GOOD = ("passed", "skipped", "failed as expected")


def say(text):
    seconds = int(time.monotonic() - START)
    print(f"[{seconds // 60:2d}:{seconds % 60:02d}] {text}", flush=True)


def print_list(run):
    for test in sorted(run.outcomes):
        print(test)
    for test, reasons in sorted(run.excluded.items()):
        print(f"{test}  left out: {next(iter(reasons.values()))}")
    for (part, _), why in sorted(run.broken.items()):
        print(f"{part}: {why.strip().splitlines()[-1]}")


def last_line(detail):
    """The line that says most: of a traceback the error, else the last one. Files are named without their folders."""
    detail = re.sub(r"(?:/[^\s/:'\"()]+)+/([^\s/:'\"()]+)", r"\1", detail)
    lines = [line.strip() for line in detail.splitlines() if line.strip()]
    errors = [
        line
        for line in lines
        if ("Error" in line.split(":")[0] or line.startswith("Exception")) and not line.startswith("File")
    ]
    if lines and lines[0].startswith(("signal", "exit code")):
        return f"{lines[0]}: {lines[-1]}" if len(lines) > 1 else lines[0]
    return (errors or lines or [""])[-1][:240]


def result(run, facts):
    """Everything as one JSON value; the same for both forms of output."""
    tests = {}
    for test, outcomes in run.outcomes.items():
        tests[test] = {
            allocator: {
                "status": outcome.status,
                "seconds": outcome.seconds,
                "alone": outcome.alone,
                **({"detail": last_line(outcome.detail), "output": outcome.detail} if outcome.detail else {}),
            }
            for allocator, outcome in outcomes.items()
        }
    differences, failures = [], []
    for test, by_allocator in sorted(tests.items()):
        if "native" in by_allocator and by_allocator["native"]["status"] not in GOOD:
            failures.append(test)
        if len(by_allocator) == 2 and by_allocator["native"]["status"] != by_allocator["berth"]["status"]:
            differences.append(test)
        elif "berth" in by_allocator and "native" not in by_allocator and by_allocator["berth"]["status"] not in GOOD:
            differences.append(test)
    counts = {}
    for test, by_allocator in tests.items():
        for allocator, outcome in by_allocator.items():
            counts.setdefault(test.split(":")[0], {}).setdefault(allocator, collections.Counter())[
                outcome["status"]
            ] += 1
    for test, reasons in run.excluded.items():
        for allocator in reasons:
            counts.setdefault(test.split(":")[0], {}).setdefault(allocator, collections.Counter())["left out"] += 1
    broken = [
        {"part": part, "allocator": allocator, "why": why} for (part, allocator), why in sorted(run.broken.items())
    ]
    # A run of nothing shows nothing.
    idle = [
        allocator
        for allocator in facts["allocators"]
        if not any(allocator in by_allocator for by_allocator in tests.values())
    ]
    return {
        **facts,
        "tests": tests,
        "left_out": run.excluded,
        "broken": broken,
        "counts": counts,
        "native_failures": failures,
        "differences": differences,
        "idle": idle,
        "as_wanted": not idle and not failures and not differences,
    }


def totals(result):
    sums = {allocator: collections.Counter() for allocator in result["allocators"]}
    for part in result["counts"].values():
        for allocator, counts in part.items():
            sums[allocator].update(counts)
    return sums


def print_result(result):
    print()
    for allocator, counts in totals(result).items():
        print(
            f"{allocator}: "
            + (", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "nothing")
        )
    for broken in result["broken"]:
        print(f"not run: {broken['part']} ({broken['allocator']}): {last_line(broken['why'])}")
    if result["native_failures"]:
        print("\nPyTorch's own allocator does not pass, and the table of exclusions does not say why:")
        for test in result["native_failures"]:
            print(
                f"  {test}: {result['tests'][test]['native']['status']}: {result['tests'][test]['native'].get('detail', '')}"
            )
    if result["idle"]:
        print(f"\nNothing was run under {' or '.join(result['idle'])}, which shows nothing.")
    elif "berth" in result["allocators"]:
        print(f"\n{len(result['differences'])} differences" + (":" if result["differences"] else "."))
        for test in result["differences"]:
            print(f"  {test}")
            for allocator, outcome in result["tests"][test].items():
                print(f"    {allocator}: {outcome['status']} {outcome.get('detail', '')}")


def markdown(result):
    # A pipe would end a cell.
    def cell(text):
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [
        "# PyTorch's own tests under berth",
        "",
        f"`tests/conformance --pytorch DIR`, commit {result['commit']}, torch {result['torch']}, tests of PyTorch "
        f"{result['checkout'] or '-'}, device: {result['device']}, {result['date']}.",
        "",
        "| part | allocator | passed | skipped by PyTorch | failed | left out |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows = [
        (part, allocator, by_allocator[allocator])
        for part, by_allocator in sorted(result["counts"].items())
        for allocator in result["allocators"]
        if allocator in by_allocator
    ]
    rows += [("**all**", allocator, counts) for allocator, counts in totals(result).items()]
    for part, allocator, counts in rows:
        failed = sum(number for status, number in counts.items() if status not in (*GOOD, "left out"))
        passed = counts.get("passed", 0) + counts.get("failed as expected", 0)
        lines.append(
            f"| {part} | {allocator} | {passed} | {counts.get('skipped', 0)} | {failed} | {counts.get('left out', 0)} |"
        )
    for broken in result["broken"]:
        lines += ["", f"Not run: {broken['part']} ({broken['allocator']}): {cell(last_line(broken['why']))}"]
    if result["idle"]:
        lines += ["", f"**Nothing was run under {' or '.join(result['idle'])}, which shows nothing.**"]
    elif "berth" in result["allocators"]:
        lines += ["", "## Differences", ""]
        if not result["differences"]:
            lines.append("None.")
        else:
            lines += ["| test | native | berth |", "| --- | --- | --- |"]
            for test in result["differences"]:
                by = result["tests"][test]
                cells = [
                    f"{by[a]['status']} {by[a].get('detail', '')}" if a in by else "left out"
                    for a in ("native", "berth")
                ]
                lines.append(f"| {test} | {cell(cells[0])} | {cell(cells[1])} |")
    if result["native_failures"]:
        lines += ["", "## What PyTorch's own allocator does not pass", ""]
        lines += [
            f"- {test}: {cell(result['tests'][test]['native'].get('detail', ''))}" for test in result["native_failures"]
        ]
    reasons = collections.defaultdict(set)
    for test, by_allocator in result["left_out"].items():
        for allocator, reason in by_allocator.items():
            reasons[reason, allocator].add(test)
    lines += ["", "## Left out", "", "| reason | allocator | tests |", "| --- | --- | --- |"]
    merged = collections.defaultdict(list)
    for (reason, allocator), tests in reasons.items():
        merged[reason, tuple(sorted(tests))].append(allocator)
    for (reason, tests), allocators in sorted(merged.items()):
        lines.append(
            f"| {cell(reason)} | {', '.join(sorted(allocators))} | {len(tests)}: {', '.join(t.split('.')[-1] for t in tests)} |"
        )
    return "\n".join(lines) + "\n"
