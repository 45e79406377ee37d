"""bench/demo, bench/allocators, bench/recording and bench/cuda in their smallest form, on the programs just built: smoke_test.py BUILD DATA."""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD, DATA = sys.argv[1:]


def run(name, *arguments):
    result = subprocess.run(
        [ROOT / "bench" / name, "--smoke", "--build-dir", BUILD, "--data", DATA, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    print(result.stdout, result.stderr, sep="\n")
    if result.returncode != 0:
        sys.exit(f"bench/{name} ended with {result.returncode}")
    return result.stdout


model = json.loads(run("demo", "--json"))["models"][0]
assert model["losses_agree"], "losses differ between allocators"
for name in ("berth learn", "berth serve"):
    counts = model["allocators"][name]["counts"]
    assert counts["hits"] > 0, f"{name} served nothing from a plan: {counts}"
serve = model["allocators"]["berth serve"]
assert serve["counts"]["misses"] == 0, f"requests of a steady step missed the plan: {serve['counts']}"
assert serve["arena_bytes"] >= serve["arena_bound_bytes"] > 0, serve
assert "losses of all runs equal" in run("allocators")
assert "time over pool" in run("recording")

if pathlib.Path(BUILD, "bench/train/train_cuda").is_file() and pathlib.Path(BUILD, "standin/lib").is_dir():
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "cuda"
        run("cuda", "--output", str(output))
        model = json.loads(output.with_suffix(".json").read_text())["models"][0]
    for name in ("berth serve", "berth learn"):
        one = model["allocators"][name]
        assert one["memory_calls"] == 0, f"{name} called for memory in a planned step: {one}"
        assert one["hits_per_step"] == one["requests_per_step"] > 0, f"{name} missed the plan: {one}"
        assert one["arena_bytes"] == one["arena_bound_bytes"], one
        assert one["reserved_peak_bytes"] <= model["allocators"]["expandable"]["reserved_peak_bytes"], one
