"""bench/scaling: how the time and the memory of the first plan grow with the number of buffers, from a thousand to ten million, on
two families of problems, beside n log n. Needs `build/release/bench/scaling`; writes NAME.md and NAME.svg.
"""

import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import peers  # noqa: E402
import training  # noqa: E402
from training import Failure, note  # noqa: E402

FAMILIES = {"train": "#1f6feb", "mixed": "#d1570a"}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 440, 70, 50, 30, 150


def sizes(most):
    """1, 3 and 10 to a decade."""
    return [n for k in range(3, 12) for n in (10**k, 3 * 10**k) if n <= most]


def measure(program, family, count):
    run = peers.Run([program, "--buffers", count, "--family", family, "--repeats", 5 if count <= 30_000 else 1], 3600)
    if run.code != 0:
        raise Failure(f"{program.name} ended with {run.code} for {count} buffers: {run.text[-500:]}")
    return json.loads(run.text)


class Picture:
    """A log-log picture: buffers to the right, seconds up."""

    def __init__(self, points):
        self.points = points
        seconds = [p["seconds"] for p in points]
        counts = [p["buffers"] for p in points]
        self.x = (math.floor(math.log10(min(counts))), math.ceil(math.log10(max(counts))))
        self.y = (math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds))))

    def at(self, count, seconds):
        right = (math.log10(count) - self.x[0]) / max(1, self.x[1] - self.x[0])
        up = (math.log10(seconds) - self.y[0]) / max(1, self.y[1] - self.y[0])
        return LEFT + right * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def line(self, points, style):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return f'<polyline points="{path}" fill="none" {style}/>'

    def text(self, x, y, words, anchor="middle", color="#444"):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{words}</text>'

    def draw(self):
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        ]
        for k in range(self.x[0], self.x[1] + 1):
            x, bottom = self.at(10**k, 10 ** self.y[0])
            parts += [
                self.line([(x, bottom), self.at(10**k, 10 ** self.y[1])], 'stroke="#ddd"'),
                self.text(x, bottom + 18, {3: "1 k", 4: "10 k", 5: "100 k", 6: "1 M", 7: "10 M"}.get(k, f"{10**k:,}")),
            ]
        for k in range(self.y[0], self.y[1] + 1):
            left, y = self.at(10 ** self.x[0], 10**k)
            parts += [
                self.line([(left, y), self.at(10 ** self.x[1], 10**k)], 'stroke="#ddd"'),
                self.text(left - 8, y + 4, f"{10**k:g} s", "end"),
            ]
        parts.append(self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "buffers"))
        parts.append(self.text(LEFT, 18, "Processor time of the first plan, one thread", "start", "#111"))
        for family, color in FAMILIES.items():
            points = [p for p in self.points if p["family"] == family]
            if not points:
                continue
            line = [self.at(p["buffers"], p["seconds"]) for p in points]
            parts.append(self.line(line, f'stroke="{color}" stroke-width="2"'))
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in line]
            parts.append(self.text(line[-1][0] + 10, line[-1][1] + 4, family, "start", color))
            # n log n through its middle.
            middle = points[len(points) // 2]
            scale = middle["seconds"] / (middle["buffers"] * math.log(middle["buffers"]))
            guide = [self.at(p["buffers"], scale * p["buffers"] * math.log(p["buffers"])) for p in points]
            parts.append(self.line(guide, f'stroke="{color}" stroke-dasharray="3 4" opacity="0.6"'))
        parts.append(self.text(WIDTH - RIGHT + 10, HEIGHT - BOTTOM - 6, "dashed: n log n", "start"))
        return "\n".join([*parts, "</svg>"]) + "\n"


def main(argv):
    report = peers.Report("scaling", __doc__)
    report.parser.add_argument("--most", type=int, default=10_000_000, help="buffers (default: %(default)s)")
    arguments = report.parser.parse_args(argv)
    if arguments.smoke:
        arguments.most = 3000
    if arguments.most < 1000:
        report.parser.error("--most: at least 1000")
    program = arguments.build_dir.resolve() / "bench/scaling"
    if not program.is_file():
        raise Failure(f"{program} is missing: a build with -DBERTH_BUILD_BENCH=ON makes it")
    points = []
    for family in FAMILIES:
        for count in sizes(arguments.most):
            note(f"scaling: {family}: {count:,} buffers")
            points.append(measure(program, family, count))
    rows = [
        [
            p["family"],
            f"{p['buffers']:,}",
            f"{p['seconds']:.4f}",
            f"{1e9 * p['seconds'] / p['buffers'] / math.log2(p['buffers']):.1f}",
            f"{100 * p['gap']:.4f}",
            f"{p['bytes_a_buffer']:.0f}" if p["buffers"] >= 100_000 else "",
        ]  # below, what the process has at its start hides it
        for p in points
    ]
    if not arguments.smoke or "--output" in argv:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.with_suffix(".svg").write_text(Picture(points).draw())
    report.keep(
        argv,
        arguments,
        "The first plan, one dive on one thread, in processor time (up to 30,000 buffers the least of five); memory beyond the problem's own.",
        ["family", "buffers", "s", "ns / (n log2 n)", "gap, %", "bytes a buffer"],
        rows,
    )
    return 0


if __name__ == "__main__":
    training.run_main("scaling", main)
