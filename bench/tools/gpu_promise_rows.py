"""Rows of bench/gpu: the tests of the adapter on the driver, plain memory, libberth.so in PyTorch."""

import shutil

from gpu_rows import Group, decided, failed, passed, size
from gpu_working_rows import trains_equally
from training import ROOT, Failure

promised = Group("promises", "tests/torch/cuda_*_test.py on the driver; plain memory; libberth.so")


def promises(topic):
    def run(bench):
        script = ROOT / f"tests/torch/cuda_{topic}_test.py"
        extra = [shutil.which("cc") or shutil.which("gcc") or "cc"] if topic == "pools" else []
        said, wrong, tail = {}, {}, []
        # PyTorch's own allocator shows that a test is right: where one fails, that is asked.
        for name, environment in {"berth": {"BERTH_MODE": "learn"}, "native": {"BERTH_MODE": "off"}}.items():
            bench.cuda([bench.python, "-B", script, *extra], {**environment, "TEST_ALLOCATOR": name}, accept=(0, 1))
            lines = bench.last_errors.strip().splitlines()
            said[name] = lines[-1] if lines else "said nothing"
            wrong[name] = [line.split()[1] for line in lines if line.startswith(("FAIL:", "ERROR:"))]
            if bench.last_code != 0 and not wrong[name]:
                raise Failure(f"{script.name} under {name} ended with 1\n" + "\n".join(lines[-30:]))
            if not wrong["berth"]:
                return passed(said["berth"])
            tail = tail or lines[-60:]
        ours = [case for case in wrong["berth"] if case not in wrong["native"]]
        text = f"under berth: {said['berth']}; under PyTorch's own: {said['native']}"
        if ours:
            return failed(f"{', '.join(ours)}; {text}", wrong=wrong, tail=tail)
        return passed(f"{text}; not to be had on this machine under either: {', '.join(wrong['native'])}", wrong=wrong)

    return run


for topic in ("streams", "pools", "statistics", "snapshot"):
    promised.row(
        topic,
        f"tests/torch/cuda_{topic}_test.py under berth; where one fails, under PyTorch's own allocator too",
        wants=20,
        point=3 if topic == "streams" else 0,
    )(promises(topic))
promised.row("plain", "the MLP of start/train with BERTH_MEMORY=plain", wants=30, point=4)(
    trains_equally({"BERTH_MEMORY": "plain"})
)


@promised.row("plug", "libberth.so as PyTorch's pluggable allocator: losses beside the native allocator's", wants=30)
def plug(bench):
    steps = ["--steps", 4 if bench.small else 30, *size(bench)]
    ours = bench.child(
        "plug", "--library", bench.program("libberth.so"), *steps, environment={"BERTH_MODE": "learn"}, installs=True
    )
    theirs = bench.child("plug", *steps, environment={"BERTH_MODE": "off"})
    return decided(
        bench,
        ours["losses_hex"] == theirs["losses_hex"],
        f"{len(ours['losses_hex'])} losses of an MLP under '{ours['allocator']}'",
        losses_equal=None if bench.standin else ours["losses_hex"] == theirs["losses_hex"],
    )
