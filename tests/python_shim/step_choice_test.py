"""Training steps on CUDA whose convolutions run by algorithms that the planner chose, on the stand-in. Its cuDNN has three, with no workspace, some,
and much: 0, 1 and 2. libtorch takes 1. 0 gives its bits and takes more time, 2, a transform, gives others and takes less."""

import json
import unittest

from support import PREAMBLE, ProgramCase

PROGRAM = (
    PREAMBLE
    + """
import ctypes
import berth
from torch import nn

calls = ctypes.CDLL(None).berth_standin_calls
calls.restype = ctypes.c_uint64

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
    def forward(self, x):
        return torch.relu(x + self.body(x))

# A program's counters, the last step's peak over what there was before it, and cuDNN's executions in each step.
def train(budget=0, kind=torch.float32, layout=torch.contiguous_format, steps=4, graph=None, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Block(16), Block(16), nn.ConvTranspose2d(16, 16, 2, 2),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).to("cuda", kind, memory_format=layout)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    program = berth.StepProgram(budget, **options, plan_wait=1e9)
    x, y = torch.randn(8, 3, 32, 32).to("cuda", kind, memory_format=layout), torch.zeros(8, dtype=torch.long, device="cuda")
    executed = []
    for _ in range(steps):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, ran = torch.cuda.memory_allocated(), calls(b"cudnnBackendExecute")
        with program.step():
            nn.functional.cross_entropy(net(x).float(), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        executed.append(calls(b"cudnnBackendExecute") - ran)
        peak = torch.cuda.max_memory_allocated() - before
    if graph:
        program.save_graph(graph)
    return program.stats(), peak, executed
"""
)
CONVOLUTIONS = 12  # six, forward and backward, of which the first one makes no gradient of its image
EXECUTIONS = 6 + 5 + 6


class StepChoice(ProgramCase):
    def test_a_budget_takes_algorithms_with_less_workspace(self):
        said = self.python(
            PROGRAM
            + """
free, peak, _ = train()
print(free.scheduled, free.alternatives, free.predicted_peak <= free.recorded_peak, free.predicted_peak - free.resident - peak)
for options in ({}, {"kind": torch.bfloat16, "layout": torch.channels_last}):
    tight, peak, _ = train("90%", **options)
    print(tight.budget_not_met, tight.predicted_peak <= 9 * tight.recorded_peak // 10, tight.chosen > 0, tight.predicted_peak - tight.resident - peak)
"""
        ).splitlines()
        self.assertEqual(said, [f"2 {CONVOLUTIONS} True 0"] + [" True True 0"] * 2)

    def test_other_bits_are_taken_only_where_they_are_allowed(self):
        said = self.python(
            PROGRAM
            + """
own, _, executed = train("90%", graph="own.json")
other, peak, _ = train("90%", graph="other.json", other_bits=True)
print(other.predicted_peak - other.resident - peak, other.chosen > own.chosen)
"""
        ).split()
        self.assertEqual(said, ["0", "True"])

        def algorithms(name):
            graph = json.loads((self.folder / name).read_text())
            return {
                part
                for one in graph["operators"]
                for way in one["alternatives"]
                for part in way.get("algorithm", "0").split("|")
            }

        self.assertEqual(algorithms("own.json"), {"0"})
        self.assertEqual(algorithms("other.json"), {"0", "2"})

    def test_every_planner_takes_what_it_has_room_for(self):
        self.assertEqual(
            self.python(
                PROGRAM
                + """
for engine in ("knapsack", "monet", "dymem"):
    stats, peak, _ = train("90%", engine=engine, copy_rate=10**9 if engine == "dymem" else 0, other_bits=True)
    print(engine, stats.scheduled, stats.last_refusal or "runs", stats.chosen > 0, stats.predicted_peak - stats.resident == peak or stats.offloaded_bytes > 0)
"""
            ),
            "".join(f"{engine} 2 runs True True\n" for engine in ("knapsack", "monet", "dymem")),
        )

    def test_a_file_spares_the_next_process_the_measurements(self):
        program = PROGRAM + "\nprint(train()[2])\n"

        def executions():
            return json.loads(self.python(program, BERTH_ALGORITHMS="x.algorithms"))

        usual = [EXECUTIONS] * 4
        first = executions()
        self.assertGreater(first[1], 100)  # the step that made it a program, and the trials of eight shapes behind it
        self.assertEqual(first[:1] + first[2:], usual[1:])
        self.assertEqual(executions(), usual)
        self.assertEqual(self.stderr, "")
        kept = (self.folder / "x.algorithms").read_text()
        self.assertTrue(kept.startswith("berth algorithms 1\n"))
        self.assertNotIn(str(self.folder), kept)
        (self.folder / "x.algorithms").write_text(kept[:-20])
        self.assertGreater(executions()[1], 100)
        self.assertEqual(len(self.stderr.splitlines()), 1, self.stderr)
        self.assertIn(
            "x.algorithms is damaged: its checksum is another: algorithms are measured again, and the file is replaced [algorithms-file]",
            self.stderr,
        )
        self.assertEqual(executions(), usual)

    def test_a_failing_algorithm_gives_way_to_the_operator(self):
        # The fourth step begins with a convolution that libtorch runs; the second one is run by an algorithm that was chosen.
        self.assertEqual(
            self.python(
                PROGRAM
                + """
import berth._library
fail = ctypes.CDLL(None).berth_standin_fail
adapter, steps = berth._library.step_adapter(), [0]
begin = adapter.begin_step
def begin_and_fail(program):
    steps[0] += 1
    if steps[0] == 4:
        fail(b"cudnnBackendExecute", ctypes.c_uint64(2), 5000, ctypes.c_uint64(1))
    begin(program)
adapter.begin_step = begin_and_fail
stats, peak, executed = train("100%", steps=5, other_bits=True)
print(stats.scheduled, stats.recovered, executed[2:])
"""
            ),
            f"3 0 [{EXECUTIONS}, {EXECUTIONS + 1}, {EXECUTIONS}]\n",
        )


if __name__ == "__main__":
    unittest.main(verbosity=2)
