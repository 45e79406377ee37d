#!/usr/bin/env python3
"""What `berth show --html` writes, in a headless Chromium; skipped (77) where there is none. Usage: page_test.py BERTH NAMED_RUN"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from browser import Browser, find_browser  # noqa: E402

BERTH, NAMED_RUN = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")
REQUESTS = 50_000
# Of a machine with two cores that does much else; on a quiet one a tenth of it.
MOST_LOAD_SECONDS, MOST_DRAW_MS = 10, 400


def show(*arguments):
    subprocess.run([BERTH, "show", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.trace = pathlib.Path(cls.folder) / "run.trace"
        cls.html = pathlib.Path(cls.folder) / "run.html"
        subprocess.run([NAMED_RUN, cls.trace, str(REQUESTS)], check=True)
        answer = subprocess.run(
            [BERTH, "show", cls.trace, "--html", cls.html, "--json"], check=True, stdout=subprocess.PIPE
        )
        cls.summary = json.loads(answer.stdout)
        cls.browser = Browser(find_browser())
        cls.addClassCleanup(cls.browser.__exit__)

    def setUp(self):
        self.browser.resize(1400, 900)
        self.browser.dark(False)
        self.browser.requests.clear()
        self.browser.complaints.clear()

    def tearDown(self):
        self.assertEqual(self.browser.complaints, [])
        self.assertEqual([url for url in self.browser.requests if not url.startswith(("file:", "data:"))], [])

    def open(self, path=None):
        return self.browser.open(path or self.html)

    def run_js(self, script):
        return self.browser.run(script)

    def text(self, selector):
        return self.run_js(f"document.querySelector({json.dumps(selector)}).textContent")

    def window(self):
        return self.run_js("[page.state.window.t0, page.state.window.t1]")

    def middle(self, selector):
        return self.run_js(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )

    def place_of(self, block, layout=0):
        """Zooms to a block; where it is drawn then."""
        self.run_js(f"page.zoomTo(page.maps[{layout}], {block})")
        self.browser.settle()
        return self.run_js(
            f"((map, i) => {{ const box = map.over.getBoundingClientRect(), v = map.view;"
            f" const t = (Math.max(v.birth[i], page.state.window.t0) + Math.min(v.end[i], page.state.window.t1)) / 2;"
            f" return [box.x + map.xOf(t, page.state.window), box.y + map.yOf(map.layout.addresses[i] + v.bytes[i] / 2)]; }})"
            f"(page.maps[{layout}], {block})"
        )

    def large_block(self):
        """Of the second step, which is then looked at."""
        self.run_js("page.showStep(1)")
        self.run_js("page.showStep(1)")
        self.browser.settle()
        return self.run_js(
            "(() => { const v = page.view, {t0, t1} = page.state.window; let best = -1;"
            " for (let i = 0; i < v.count; ++i) if (v.birth[i] > t0 && v.end[i] < t1 && v.of.module[i]"
            " && !(v.bytes[i] <= v.bytes[best])) best = i; return best; })()"
        )

    def test_a_run_of_50000_requests_opens_and_draws_quickly(self):
        seconds = self.open()
        draw = self.run_js(
            "(() => { const t = []; for (let k = 0; k < 9; ++k) { const s = performance.now(); page.dirty.base = true;"
            " page.drawNow(); t.push(performance.now() - s); } return t.sort((a, b) => a - b)[4]; })()"
        )
        print(
            f"page of {self.html.stat().st_size / 1e6:.1f} MB: {seconds:.2f} s to open, {draw:.0f} ms to draw",
            flush=True,
        )
        self.assertGreater(self.run_js("page.view.count"), REQUESTS)
        self.assertLess(seconds, MOST_LOAD_SECONDS)
        self.assertLess(draw, MOST_DRAW_MS)

    def test_the_page_says_what_show_says(self):
        self.open()
        self.assertEqual(self.run_js("page.view.live.most"), self.summary["peak_bytes"])
        by_module = {row["name"]: row["bytes"] for row in self.run_js("page.view.holders('module')")}
        for holder in self.summary["holders"]["module"]:
            if holder["name"]:
                self.assertEqual(by_module.get(holder["name"]), holder["bytes"], holder["name"])
        self.assertIn("run.trace", self.text("#title"))
        self.assertEqual(self.run_js("page.view.recorded.most"), 4096 << 20)
        self.assertRegex(self.text("#line-keys"), "the run itself reserved 4 GiB")
        self.assertRegex(self.text("#facts"), r"berth reserves.*PyTorch reserves")

    def test_names_cannot_break_out_of_the_page(self):
        self.open()
        self.assertEqual(self.run_js("typeof window.broken"), "undefined")
        self.assertEqual(self.run_js("document.images.length"), 0)
        self.assertIn("</script><script>window.broken = 1</script>", self.text("#legend"))
        self.assertNotIn("</script><script>window", self.html.read_text())

    def test_hover_says_what_a_block_is(self):
        self.open()
        block = self.large_block()
        for layout in (0, 1):
            self.browser.hover(*self.place_of(block, layout))
            self.assertFalse(self.run_js("document.getElementById('tip').hidden"))
            tip = self.text("#tip")
            for word in ("operatoraten::", "modulemodel.layers.", "size16 MiB", "alive", "step2", "address"):
                self.assertIn(word, tip)
        self.browser.hover(5, 5)
        self.assertTrue(self.run_js("document.getElementById('tip').hidden"))

    def test_a_click_keeps_a_block_and_keys_go_from_one_to_the_next(self):
        self.open()
        selected = self.large_block()
        self.browser.click(*self.place_of(selected))
        self.assertEqual(self.run_js("page.state.selected"), selected)
        self.assertIn("MiB", self.text("#details"))
        self.browser.press(".")
        self.assertEqual(self.run_js("page.state.selected"), selected + 1)
        self.browser.press("Escape")
        self.assertEqual(self.run_js("page.state.selected"), -1)

    def test_wheel_drag_and_keys_zoom_and_move(self):
        self.open()
        whole = self.window()
        x, y = self.middle(".map .over")
        at = self.run_js(f"page.maps[0].timeAt({x} - page.maps[0].over.getBoundingClientRect().x, page.state.window)")
        self.browser.wheel(x, y, -600)
        near = self.window()
        self.assertAlmostEqual(near[1] - near[0], (whole[1] - whole[0]) / 4, delta=1)
        self.assertLess(near[0], at)
        self.assertLess(at, near[1])
        self.browser.drag(x, y, x - 60, y)
        moved = self.window()
        self.assertGreater(moved[0], near[0])
        self.assertAlmostEqual(moved[1] - moved[0], near[1] - near[0], delta=1)
        addresses = "page.maps[0].addresses.a1 - page.maps[0].addresses.a0"
        before = self.run_js(addresses)
        self.browser.wheel(x, y, -300, modifiers=8)
        self.assertAlmostEqual(self.run_js(addresses), before / 2, delta=before / 50)
        self.browser.press("0")
        self.assertEqual(self.window(), whole)
        self.browser.press("p")
        peak = self.run_js("page.view.peakTime")
        self.assertTrue(self.window()[0] <= peak <= self.window()[1])
        self.assertLess(self.window()[1] - self.window()[0], 1000)
        self.browser.press("+")
        self.assertLess(self.window()[1] - self.window()[0], 200)

    def test_search_highlights_modules_and_goes_to_them(self):
        self.open()
        self.browser.press("/")
        self.browser.call("Input.insertText", text="layers.47")
        self.browser.settle()
        wanted = self.run_js(
            "(() => { let n = 0; for (let i = 0; i < page.view.count; ++i)"
            " n += page.view.nameOf('module', i).includes('layers.47'); return n; })()"
        )
        self.assertGreater(wanted, 100)
        self.assertIn(f"{wanted:,} blocks", self.text("#chip"))
        self.browser.press("Enter")
        self.assertEqual(self.run_js("page.view.nameOf('module', page.state.selected)"), "model.layers.47")
        self.browser.press("Escape")
        self.assertTrue(self.run_js("document.getElementById('chip').hidden"))

    def test_holders_of_the_peak_highlight_their_boxes(self):
        self.open()
        self.browser.click(*self.middle("#holders tbody tr:nth-child(2)"))
        self.assertIn("at the peak", self.text("#chip"))
        self.assertGreater(self.run_js("page.matches.length"), 0)

    def test_misses_are_on_a_tab_of_their_own(self):
        self.open()
        self.browser.click(*self.middle("#tab-misses"))
        self.assertTrue(self.run_js("document.getElementById('memory').hidden"))
        self.assertIn("requests were served", self.text("#misses"))
        self.assertEqual(
            self.run_js("page.steps.counts.reduce((sum, step) => sum + step.reduce((a, b) => a + b), 0)"),
            self.run_js("page.view.count"),
        )
        self.browser.press("1")
        self.assertFalse(self.run_js("document.getElementById('memory').hidden"))

    def test_nothing_runs_over_the_edge_wide_or_narrow_light_or_dark(self):
        for width, height, dark in ((1400, 900, False), (1000, 700, True), (700, 1000, False), (390, 800, True)):
            self.browser.resize(width, height)
            self.browser.dark(dark)
            self.open()
            with self.subTest(width=width):
                self.assertLessEqual(self.run_js("document.documentElement.scrollWidth"), width)
                drawn = self.run_js("page.maps.every((map) => map.image && map.blocks.some((block) => block >= 0))")
                self.assertTrue(drawn)

    def test_plans_lifetimes_schedules_and_statistics_have_a_page(self):
        folder = pathlib.Path(self.folder)
        plan, stats, rows = folder / "run.plan", folder / "run.json", folder / "rows.csv"
        subprocess.run(
            [BERTH, "plan", self.trace, "-o", plan, "--time-limit", "1"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stats.write_text('{"requests": 10, "hits": 7, "misses_size": 3, "misses": []}')
        rows.write_text("id,lower,upper,size\na,5,10,4\n</script>,7,12,4\nc,10,20,8\n")
        graph, schedule = ROOT / "tests/graph/data/lstm.trace.gz", folder / "x.schedule"
        subprocess.run(
            [BERTH, "schedule", graph, "--order-only", "-o", schedule],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        inputs = {
            "plan": [plan],
            "lifetimes": [rows],
            "schedule": [schedule, graph],
            "served": [self.trace, "--plan", plan],
        }
        for name, arguments in inputs.items():
            with self.subTest(name):
                page = folder / f"{name}.html"
                show(*arguments, "--html", page)
                self.open(page)
                self.assertTrue(self.run_js("page.maps[0].blocks.some((block) => block >= 0)"))
        show(stats, "--html", folder / "stats.html")
        self.open(folder / "stats.html")
        self.assertIn("70.0 %", self.text("#misses"))
        self.assertTrue(self.run_js("document.getElementById('memory').hidden"))


if __name__ == "__main__":
    if find_browser() is None:
        print("skipped: no Chromium (chromium, google-chrome, or BERTH_BROWSER)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
