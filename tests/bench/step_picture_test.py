"""The picture of bench/step, of rows as it measures them."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree as xml

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench/tools"
sys.path[:0] = [str(TOOLS), str(TOOLS / "step_children")]
import rows as compared  # noqa: E402
import step_picture  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


def row(label, share, time, remark=""):
    return {
        "label": label,
        "peak": share,
        "activations": 100,
        "over_eager": [time - 0.01, time, time + 0.01],
        "remark": remark,
    }


def drawn(rows, model="gpt"):
    """The panel of one model, read back."""
    picture = xml.fromstring(step_picture.picture({model: rows}))
    return next(one for one in picture.findall(f"{SVG}g") if one.find(f"{SVG}text").text == model)


def words(panel):
    return [one.text for one in panel.iter(f"{SVG}text")]


class Picture(unittest.TestCase):
    def test_each_engine_of_the_table_has_a_mark_of_its_own(self):
        engines = {step_picture.engine_of(one.label) for one in compared.rows()} | {"checkpoint"}
        self.assertEqual(engines, set(step_picture.STYLES))
        self.assertEqual(len(set(step_picture.STYLES.values())), len(step_picture.STYLES))

    def test_there_is_a_panel_a_model(self):
        models = {
            "gpt": [row("eager", 100, 1)],
            "resnet18-c++": [row("eager", 100, 1)],
            "a < b": [row("eager", 100, 1)],
        }
        panels = xml.fromstring(step_picture.picture(models)).findall(f"{SVG}g")
        self.assertEqual([one.find(f"{SVG}text").text for one in panels], list(models))

    def test_a_line_joins_the_budgets_of_an_engine_from_the_least_on(self):
        panel = drawn(
            [row("eager", 100, 1), row("berth, 80 %", 80, 0.95), row("berth, 40 %", 40, 1.1), row("berth, 60 %", 60, 1)]
        )
        lines = panel.findall(f"{SVG}polyline")
        self.assertEqual(len(lines), 1)
        across = [float(point.split(",")[0]) for point in lines[0].get("points").split()]
        up = [float(point.split(",")[1]) for point in lines[0].get("points").split()]
        self.assertEqual((across, up), (sorted(across), sorted(up)))
        self.assertEqual(len(across), 3)

    def test_budgets_that_were_not_met_are_not_drawn(self):
        met = [row("eager", 100, 1), row("berth, 80 %", 80, 1)]
        self.assertEqual(
            len(list(drawn(met).iter())), len(list(drawn([*met, row("berth, 60 %", 80, 1, "not met")]).iter()))
        )

    def test_what_takes_long_stands_at_the_upper_edge_with_its_number(self):
        panel = drawn(
            [row("eager", 100, 1), row("vdnn with offload, 60 %", 60, 3.2), row("dymem with offload, 60 %", 60, 2.1)]
        )
        self.assertEqual([one for one in words(panel) if one.endswith(" x")], ["3.2 x", "2.1 x"])
        heights = [float(one.get("y")) for one in panel.iter(f"{SVG}text") if one.text.endswith(" x")]
        self.assertGreaterEqual(heights[1] - heights[0], 12)

    def test_axes_have_names_with_units(self):
        said = words(drawn([row("eager", 100, 1)]))
        self.assertIn("peak memory of the step, % of the step as written", said)
        self.assertIn("time, x of the step as written", said)


if __name__ == "__main__":
    unittest.main()
