"""The picture of bench/step: a panel a model, memory of the step over its time, a line an engine through its budgets."""

import html
import math
import statistics

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 480, 320, 64, 40, 20, 56
COLUMNS, MARGIN, LEGEND_ROW, LEGEND_COLUMNS = 2, 10, 22, 4
MOST = 1.5  # time, of eager: what takes longer stands at the upper edge, with its number
# By the engine that a row's label begins with: color and mark. What orders alone and what offloads have the color of what they belong to.
STYLES = {
    "eager": ("#111111", "square"),
    "checkpoint": ("#8a8a8a", "square"),
    "release": ("#0a3d91", "diamond"),
    "olla": ("#0a3d91", "cross"),
    "chen": ("#b8860b", "up"),
    "checkmate": ("#c0392b", "up"),
    "knapsack": ("#8e44ad", "down"),
    "monet": ("#1e8449", "down"),
    "berth": ("#1f77d0", "circle"),
    "vdnn with offload": ("#b8860b", "plus"),
    "dymem with offload": ("#c0392b", "plus"),
    "berth with offload": ("#1f77d0", "plus"),
}


def engine_of(label):
    return label.partition(",")[0]


def text(x, y, words, anchor="start", **more):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(str(words))}</text>'


def line(x0, y0, x1, y1, color, width=1):
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{color}" stroke-width="{width}"/>'


def mark(x, y, engine, size=4.5):
    color, form = STYLES[engine]
    if form == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{color}"/>'
    if form in ("cross", "plus"):
        a = size * (0.8 if form == "cross" else 0)
        ends = [(-a, -a, a, a), (-a, a, a, -a)] if a else [(-size, 0, size, 0), (0, -size, 0, size)]
        return "".join(line(x + p, y + q, x + r, y + s, color, 2.2) for p, q, r, s in ends)
    corners = {
        "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        "up": [(0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        "down": [(0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
    }[form]
    return f'<polygon points="{" ".join(f"{x + 0.85 * size * a:.1f},{y + 0.85 * size * b:.1f}" for a, b in corners)}" fill="{color}"/>'


def points_of(rows):
    """(memory, time) of eager by engine, from the least memory on; rows that say why they are none are left out."""
    points = {}
    for row in rows:
        if not row.get("remark"):
            points.setdefault(engine_of(row["label"]), []).append(
                (row["peak"] / row["activations"], statistics.median(row["over_eager"]))
            )
    return {engine: sorted(points[engine]) for engine in STYLES if engine in points}


def ticks(least, most):
    """Steps of a tenth, or wider ones where those would be too many."""
    step = next(one for one in (0.1, 0.2, 0.5, 1) if (most - least) / one <= 8)
    return [k * step for k in range(math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9) + 1)]


def panel(model, rows, left, top):
    points = points_of(rows)
    times = [min(time, MOST) for some in points.values() for _, time in some]
    least, most = math.floor(10 * min(0.95, *times) - 0.2) / 10, min(MOST, math.ceil(10 * max(1.1, *times) + 0.2) / 10)
    shares = [memory for some in points.values() for memory, _ in some]
    leanest, widest = max(0, math.floor(10 * min(shares) - 0.5) / 10), max(1.04, 0.02 + max(shares))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    at_x = lambda memory: LEFT + (memory - leanest) / (widest - leanest) * (right - LEFT)  # noqa: E731
    at_y = lambda time: bottom - (min(time, most) - least) / (most - least) * (bottom - TOP)  # noqa: E731
    parts = [f'<g transform="translate({left},{top})">', text(LEFT, TOP - 14, model, font_size=15, font_weight="bold")]
    for memory in ticks(leanest, widest):
        parts += [
            line(at_x(memory), TOP, at_x(memory), bottom, "#e4e4e4"),
            text(at_x(memory), bottom + 17, f"{100 * memory:.0f}", "middle"),
        ]
    for time in ticks(least, most):
        parts += [
            line(LEFT, at_y(time), right, at_y(time), "#e4e4e4"),
            text(LEFT - 7, at_y(time) + 4, f"{time:.1f}", "end"),
        ]
    parts += [
        line(LEFT, at_y(1), right, at_y(1), "#999999"),
        line(at_x(1), TOP, at_x(1), bottom, "#999999"),
        text((LEFT + right) / 2, bottom + 36, "peak memory of the step, % of the step as written", "middle"),
        f'<g transform="translate(18,{(TOP + bottom) / 2:.1f}) rotate(-90)">{text(0, 0, "time, x of the step as written", "middle")}</g>',
    ]
    for engine, some in points.items():
        if len(some) > 1:
            way = " ".join(f"{at_x(memory):.1f},{at_y(time):.1f}" for memory, time in some if time <= most)
            parts.append(
                f'<polyline points="{way}" fill="none" stroke="{STYLES[engine][0]}" stroke-width="{2.5 if engine == "berth" else 1.5}"/>'
            )
    above = 0  # so many stand at the upper edge, one below the other
    for engine, some in points.items():
        for memory, time in some:
            if time <= most:
                parts.append(mark(at_x(memory), at_y(time), engine))
                continue
            y = TOP + 5 + 14 * above
            parts += [
                mark(at_x(memory), y, engine),
                text(at_x(memory) + 9, y + 4, f"{time:.1f} x", fill=STYLES[engine][0]),
            ]
            above += 1
    return "\n".join([*parts, "</g>"])


def picture(models):
    """SVG of {model: rows}: what lies further left and lower is better."""
    rows = -(-len(models) // COLUMNS)
    width = 2 * MARGIN + COLUMNS * WIDTH
    legend = MARGIN + rows * HEIGHT
    height = legend + (-(-len(STYLES) // LEGEND_COLUMNS) + 2.5) * LEGEND_ROW
    parts = [
        panel(model, found, MARGIN + k % COLUMNS * WIDTH, MARGIN + k // COLUMNS * HEIGHT)
        for k, (model, found) in enumerate(models.items())
    ]
    for k, engine in enumerate(STYLES):
        x, y = (
            MARGIN + LEFT + k % LEGEND_COLUMNS * (width - LEFT) / LEGEND_COLUMNS,
            legend + (k // LEGEND_COLUMNS + 0.5) * LEGEND_ROW,
        )
        parts += [mark(x, y, engine), text(x + 12, y + 4, engine)]
    for k, words in enumerate(
        [
            "A line joins the budgets of one engine; better is further left and further down.",
            f"Budgets that were not met are not drawn; what takes more than {MOST:g} x stands at the upper edge.",
        ]
    ):
        parts.append(text(MARGIN + LEFT - 4, height - (1.5 - k) * LEGEND_ROW + 6, words, fill="#444444"))
    return (
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
                f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
                *parts,
                "</svg>",
            ]
        )
        + "\n"
    )
