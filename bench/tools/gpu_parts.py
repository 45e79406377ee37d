"""The parts of bench/gpu. A row takes the Bench and returns an Answer; what it raises is its failure."""

import json
import os
import pathlib
import shutil
import statistics
import time

import training
from gpu_rows import Skip, failed, measured, part, passed, ran
from training import ROOT, Failure, mebibytes

ALLOCATORS = {
    "caching": {"BERTH_MODE": "off"},
    "expandable": {"BERTH_MODE": "off", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    "async": {"BERTH_MODE": "off", "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"},
    "berth learn": {"BERTH_MODE": "learn"},
}


def decided(bench, good, text, **data):
    """pass or fail on a GPU; on the stand-in values mean nothing, so only that it ran."""
    if bench.standin:
        return ran(text, **data)
    return passed(text, **data) if good else failed(text, **data)


def trial(bench):
    """Whether only the script is tried: then what is compared with, where nothing is compared, is left out."""
    return bench.smoke and bench.standin


def size(bench):
    return ["--size", "small"] if bench.smoke else []


# ---------------------------------------------------------------------------------------------------------------- build

build = part("build", "configures and builds what the other parts run")
TARGETS = ["berth", "berth_torch_cuda_preload", "berth_shared", "cuda_latency", "page_costs", "berth_bench_train_cuda", "berth_cuda_gpu_test"]
BUILT = ["berth", "libberth_torch_cuda.so", "libberth_torch_cuda_allocator.so", "libberth.so", "bench/cuda_latency", "bench/page_costs", "bench/train/train_cuda", "tests/cuda/berth_cuda_gpu_test"]


@build.row("configure", "CMake, with the headers of .carry where that folder is there", wants=10, smoke=True)
def configure(bench):
    if bench.arguments.build_dir:
        return passed("not configured: --build-dir names a build that is taken as it is")
    if (bench.build / "CMakeCache.txt").is_file() and any((bench.build / name).is_file() for name in ("build.ninja", "Makefile")):
        return passed("configured already")
    carried = ROOT / ".carry"
    root = bench.torch_root()
    command = ["cmake", "-S", ROOT, "-B", bench.build, "-C", ROOT / "cmake/release.cmake", f"-DBERTH_TORCH_ROOT={root}", "-DBERTH_WITH_TORCH=ON",
               "-DBERTH_WITH_CUDA=ON", "-DBERTH_BUILD_TESTS=ON", "-DBERTH_BUILD_BENCH=ON", "-DBERTH_INSTALL=OFF"]
    if shutil.which("ninja"):
        command += ["-G", "Ninja"]
    if shutil.which("ccache"):
        command += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    if carried.is_dir():
        command += [f"-DCMAKE_PREFIX_PATH={carried}"]
        located = ["cmake", f"-DBerthTorch_ROOT={root}", "-P", ROOT / "cmake/BerthCudaLocate.cmake"]
        bench.run(located)
        if bench.last_errors.startswith("none") and (carried / "cuda/include").is_dir():
            command += [f"-DCUDAToolkit_ROOT={carried / 'cuda'}"]
    bench.build.mkdir(parents=True, exist_ok=True)
    try:
        bench.run(command, output=bench.build / "gpu-configure.log")
    except Failure:
        (bench.build / "CMakeCache.txt").unlink(missing_ok=True)  # so that the next call tries again
        raise
    return passed(f"with {'the headers of .carry' if carried.is_dir() else 'the headers of this machine, there is no .carry'}")


@build.row("programs", "berth, the libraries, cuda_latency, page_costs, train_cuda, the test of the device", wants=10, smoke=True)
def programs(bench):
    if not bench.arguments.build_dir:
        targets = TARGETS + (["berth_standin_libraries"] if bench.standin else [])
        keep_on = ["-k", "0"] if (bench.build / "build.ninja").is_file() else ["-k"]  # what can be built is of use to the other parts
        bench.run(["cmake", "--build", bench.build, "-j", len(os.sched_getaffinity(0)), "--target", *targets, "--", *keep_on],
                  output=bench.build / "gpu-build.log")
    missing = [name for name in BUILT if not (bench.build / name).exists()]
    if missing:
        return failed(f"not there: {', '.join(missing)}")
    return passed(f"{len(BUILT)} programs and libraries")


# ---------------------------------------------------------------------------------------------------------------- tests

tests = part("tests", "what the tests say on the stand-in, said again on the driver: the device, and the promises of CUDA memory")


def finding_cuda(bench):
    """For a program that links no libtorch: where it finds CUDA's runtime."""
    libraries = [bench.torch_root().parent / "nvidia/cu13/lib", pathlib.Path("/usr/local/cuda/lib64")]
    path = ":".join([*filter(None, [os.environ.get("LD_LIBRARY_PATH")]), *(str(folder) for folder in libraries if folder.is_dir())])
    return {"BERTH_MODE": "off", "LD_LIBRARY_PATH": path}


@tests.row("device", "the contract of devices on virtual and plain memory, pages with two addresses, mapping in a capture, what a page costs to map",
           point=4, smoke=True)
def device(bench):
    said = bench.cuda([bench.program("tests/cuda/berth_cuda_gpu_test"), "--durations", "yes"], finding_cuda(bench), copies=True, accept=(0, 77))
    if bench.last_code == 77:
        raise Failure(f"the test finds no GPU: {bench.last_errors.strip() or said.strip()}")
    figures = [line.removeprefix("figure: ") for line in said.splitlines() if line.startswith("figure: ")]
    return passed(said.strip().splitlines()[-1], figures=figures)


def promises(topic):
    def run(bench):
        script = ROOT / f"tests/torch/cuda_{topic}_test.py"
        extra = [shutil.which("cc") or shutil.which("gcc") or "cc"] if topic == "pools" else []
        said, wrong, tail = {}, {}, []
        for name, environment in {"native": {"BERTH_MODE": "off"}, "berth": {"BERTH_MODE": "learn"}}.items():
            bench.cuda([bench.python, "-B", script, *extra], {**environment, "TEST_ALLOCATOR": name}, accept=(0, 1))
            lines = bench.last_errors.strip().splitlines()
            said[name] = lines[-1] if lines else "said nothing"
            wrong[name] = [line.split()[1] for line in lines if line.startswith(("FAIL:", "ERROR:"))]
            if bench.last_code != 0 and not wrong[name]:
                raise Failure(f"{script.name} under {name} ended with 1\n" + "\n".join(lines[-30:]))
            tail = lines[-60:]
        ours = [case for case in wrong["berth"] if case not in wrong["native"]]
        text = f"under berth: {said['berth']}; under PyTorch's own: {said['native']}"
        if ours:
            return failed(f"{', '.join(ours)}; {text}", wrong=wrong, tail=tail)
        if wrong["native"]:
            text += f"; not to be had on this machine under either: {', '.join(wrong['native'])}"
        return passed(text, wrong=wrong)

    return run


for topic in ("streams", "pools", "statistics", "snapshot"):
    tests.row(topic, f"tests/torch/cuda_{topic}_test.py under berth, and under PyTorch's own allocator, which shows that the test is right",
              point=3 if topic == "streams" else 0)(promises(topic))


@tests.row("plug", "libberth.so as PyTorch's pluggable allocator: losses beside the native allocator's")
def plug(bench):
    steps = ["--steps", 4 if bench.smoke else 30, *size(bench)]
    ours = bench.child("plug", "--library", bench.program("libberth.so"), *steps, environment={"BERTH_MODE": "learn"}, installs=True)
    theirs = bench.child("plug", *steps, environment={"BERTH_MODE": "off"})
    return decided(bench, ours["losses_hex"] == theirs["losses_hex"], f"{len(ours['losses_hex'])} losses of an MLP under '{ours['allocator']}'",
                   losses_equal=None if bench.standin else ours["losses_hex"] == theirs["losses_hex"])


# ----------------------------------------------------------------------------------------------------------------- soak

soak = part("soak", "patterns in blocks on four streams, checked before the free; reuse over streams")


def soaked(threads, environment, seconds):
    def run(bench):
        given = ["--seconds", 1 if bench.smoke else seconds, "--threads", threads, *(["--blocks", 30, "--largest", 1 << 20] if bench.smoke else [])]
        found = bench.child("soak", *given, environment=environment)
        stats = found["stats"]
        served = f", {stats['hits']} hits of {stats['requests']} requests" if stats else ""
        words = "values not compared" if bench.standin else f"{found['wrong_words']} wrong words"
        text = (f"{words} in {found['blocks']} blocks, {found['bytes'] / 2**30:.1f} GiB, {found['crossings']} uses on another "
                f"stream{served}")
        return decided(bench, found["wrong_words"] == 0, text, **found)

    return run


soak.row("native", "the same under PyTorch's own allocator: the program keeps its rules", wants=40)(soaked(1, {"BERTH_MODE": "off"}, 20))
soak.row("berth", "one thread, learning in place", point=3, wants=140, smoke=True)(soaked(1, {"BERTH_MODE": "learn"}, 120))
soak.row("berth threads", "four threads with four streams each", point=3, wants=140)(soaked(4, {"BERTH_MODE": "learn"}, 120))
soak.row("berth checked", "the same with BERTH_CHECK=full", point=3, wants=60)(soaked(2, {"BERTH_MODE": "learn", "BERTH_CHECK": "full"}, 40))


@soak.row("sanitizer", "a short one under compute-sanitizer", point=3, wants=120)
def sanitizer(bench):
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if bench.standin or not found:
        raise Skip("no compute-sanitizer here" if not bench.standin else "the stand-in has its own checker")
    path = bench.folder / "child.json"
    environment = {"BERTH_MODE": "learn"}
    inner, _ = bench.launch([bench.python, "-B", pathlib.Path(__file__).parent / "gpu_children/soak.py", "--json", path, "--seconds", 20, "--blocks", 30,
                             "--largest", 1 << 20], environment)
    said = bench.run([found, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", 9, *inner], environment)
    wrong = json.loads(path.read_text())["wrong_words"]
    last = next((line for line in reversed(said.splitlines()) if "ERROR SUMMARY" in line), "no summary")
    return passed(f"{last.strip('= ')}, {wrong} wrong words") if wrong == 0 else failed(f"{wrong} wrong words")


# ------------------------------------------------------------------------------------------------------------- numerics

numerics = part("numerics", "losses and weights of planned training, bit for bit those of the native allocator, deterministic algorithms on")


def misses(result):
    """Per step, over the second half of the steps: requests that did not get the bytes that the plan has for them."""
    steps = result["steps"][len(result["steps"]) // 2:]
    return [step["misses"] + step["unplanned"] for step in steps]


def numbers(model, *how):
    def run(bench):
        steps = 10 if bench.smoke else 40
        given = ["--model", model, "--deterministic", "--written-out", "--weights", "--steps", steps, "--warmup", 0, *how, *size(bench)]
        trace, plan = bench.folder / "run.trace", bench.folder / "run.plan"
        train = lambda **environment: bench.child("train", *given, environment=environment)  # noqa: E731
        runs = {"native": train(BERTH_MODE="off")}
        if not trial(bench):
            runs["native again"] = train(BERTH_MODE="off")
        runs["berth record"] = train(BERTH_MODE="record", BERTH_TRACE=trace)
        planned = json.loads(bench.run([bench.program("berth"), "plan", trace, "-o", plan, "--json"]))
        bench.run([bench.program("berth"), "verify", plan, trace])
        runs["berth serve"] = train(BERTH_MODE="serve", BERTH_PLAN=plan)
        if not trial(bench):
            runs["berth learn"] = train(BERTH_MODE="learn")
        native = runs["native"]
        equal = {name: run["losses_hex"] == native["losses_hex"] and run["weights_sha256"] == native["weights_sha256"] for name, run in runs.items()}
        served = {name: statistics.mean(misses(run)) for name, run in runs.items() if name in ("berth serve", "berth learn")}
        requests = runs["berth serve"]["steps"][-1]["requests"]
        data = {"description": native["description"], "equal": None if bench.standin else equal, "misses_a_step": served, "requests_a_step": requests,
                "last_loss": None if bench.standin else native["last_loss"], "arena_bytes": planned["arena_bytes"],
                "lower_bound_bytes": planned["lower_bound_bytes"], "warnings": native["warnings"]}
        said = ", ".join(f"{name} {count:.1f}" for name, count in served.items())
        bound = planned["arena_bytes"] / planned["lower_bound_bytes"]
        text = f"{native['description']}: misses a step of {requests} requests: {said}; arena / bound {bound:.3f}"
        if bench.standin:
            return ran(text, **data)
        if not equal["native again"]:
            return failed(f"the native allocator does not repeat itself, so nothing is shown; {text}", **data)
        differ = [name for name, same in equal.items() if not same]
        planned_steps = sum(step["hits"] > 0.9 * step["requests"] for step in runs["berth learn"]["steps"])
        if not differ and planned_steps < steps // 2:
            return failed(f"equal, but berth learn served only {planned_steps} of {steps} steps; {text}", **data)
        return failed(f"DIFFER: {', '.join(differ)}; {text}", **data) if differ else passed(f"equal over {steps} steps; {text}", **data)

    return run


numerics.row("gpt2", "GPT-2, fp32", point=1, wants=100, smoke=True)(numbers("gpt2"))
numerics.row("resnet50", "ResNet-50, fp32", point=1, wants=100)(numbers("resnet50"))
numerics.row("gpt2 fp16", "GPT-2 with autocast, GradScaler and clipping", point=1, wants=100)(numbers("gpt2", "--precision", "fp16", "--clip"))
numerics.row("resnet50 fp16", "ResNet-50 with autocast and GradScaler, channels last", point=1, wants=100)(
    numbers("resnet50", "--precision", "fp16", "--channels-last"))

# -------------------------------------------------------------------------------------------------------------- repeats

repeats = part("repeats", "whether a step's requests repeat with the real libraries: misses of a plan learned in place")


def repeated(model, *how):
    def run(bench):
        steps = 12 if bench.smoke else 40
        found = bench.child("train", "--model", model, "--steps", steps, "--warmup", 0, *how, *size(bench), environment={"BERTH_MODE": "learn"})
        late = misses(found)
        counts = sorted({step["requests"] for step in found["steps"][len(found["steps"]) // 2:]})
        calls = sum(step["driver_calls"] for step in found["steps"][len(found["steps"]) // 2:])
        text = (f"{found['description']}: {counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} requests a step, "
                f"{statistics.mean(late):.1f} misses a step, {max(late)} at most; {calls} driver calls in {len(late)} steps")
        return measured(text, description=found["description"], requests=counts, misses=late, driver_calls=calls, stats=found["stats"])

    return run


for name, how in {
        "gpt2": ("gpt2",), "gpt2 bf16": ("gpt2", "--precision", "bf16", "--fused-optimizer"),
        "gpt2 fp16": ("gpt2", "--precision", "fp16", "--clip", "--accumulate", 2), "resnet50": ("resnet50",),
        "resnet50 benchmark": ("resnet50", "--benchmark", "--precision", "bf16", "--channels-last"), "llama bf16": ("llama", "--precision", "bf16"),
        "mlp": ("mlp",)}.items():
    repeats.row(name, " ".join(map(str, how)), point=2, wants=60)(repeated(*how))


@repeats.row("snapshot", "a real snapshot of an MLP's memory, kept beside the results for the readers' tests", point=2, wants=30)
def snapshot(bench):
    path = bench.folder / "gpu-snapshot-mlp.pickle"
    found = bench.child("snapshot", "--pickle", path, environment={"BERTH_MODE": "off"})
    if bench.output:
        bench.output.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, bench.output / path.name)
    return measured(f"{found['entries']} entries, {found['segments']} segments, {path.stat().st_size} bytes, without stack frames", **found)


# -------------------------------------------------------------------------------------------------------------- latency

latency = part("latency", "one allocation and its free beside PyTorch's caching allocator; what waiting for an event costs")


def latencies(threads):
    def run(bench):
        program, rounds = bench.program("bench/cuda_latency"), 1 if bench.smoke else 9
        times = {"caching": [], "berth": []}
        modes = {"caching": "off", "berth": "learn"}
        for turn in range(rounds):
            for name in list(modes)[:: 1 if turn % 2 == 0 else -1]:
                said = bench.cuda([program, "--threads", threads, "--steps", 20 if bench.smoke else 300], {"BERTH_MODE": modes[name]}, installs=True)
                times[name].append(json.loads(said)["median_ns"])
        ratios = [ours / theirs for ours, theirs in zip(times["berth"], times["caching"])]
        data = {"ns": {name: {"median": statistics.median(found), "min": min(found), "max": max(found)} for name, found in times.items()},
                "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}, "rounds": rounds, "threads": threads}
        return measured("berth {:.0f} ns, caching {:.0f} ns: {median:.3f} ({min:.3f} to {max:.3f})".format(
            data["ns"]["berth"]["median"], data["ns"]["caching"]["median"], **data["ratio"]), **data)

    return run


for count in (1, 2, 4):
    latency.row(f"{count} thread{'s' if count > 1 else ''}", "allocate + free, each thread on a stream of its own", point=6, smoke=count == 1)(latencies(count))


@latency.row("startup", "what installing berth and loading a plan of many slots adds to the first request, the mapping of the arena included", point=6)
def startup(bench):
    program, requests = bench.program("bench/cuda_latency"), 500 if bench.smoke else 10000
    trace, plan = bench.folder / "run.trace", bench.folder / "run.plan"
    command = [program, "--requests", requests, "--steps", 1]
    bench.cuda([*command, "--warmup", 5], {"BERTH_MODE": "record", "BERTH_TRACE": trace}, installs=True)
    said = json.loads(bench.run([bench.program("berth"), "plan", trace, "-o", plan, "--time-limit", 2, "--json"]))
    modes = {"caching": {"BERTH_MODE": "off"}, "berth": {"BERTH_MODE": "serve", "BERTH_PLAN": plan}}
    times = {name: [] for name in modes}
    for turn in range(1 if bench.smoke else 7):
        for name in list(modes)[:: 1 if turn % 2 == 0 else -1]:
            times[name].append(json.loads(bench.cuda([*command, "--warmup", 0], modes[name], installs=True))["start_ms"])
    added = [ours - theirs for ours, theirs in zip(times["berth"], times["caching"])]
    return measured(f"{statistics.median(added):.1f} ms ({min(added):.1f} to {max(added):.1f}) with {said['buffers']} slots, arena "
                    f"{mebibytes(said['arena_bytes'])}", start_ms=times, slots=said["buffers"], arena_bytes=said["arena_bytes"])


@latency.row("wait", "a stream waits for an event that is over, between two small kernels", point=3)
def wait(bench):
    found = bench.child("wait_cost", *(["--pairs", 50] if bench.smoke else []), environment={"BERTH_MODE": "off"})
    waits, alone = found["wait for what is over"], found["kernel alone"]
    return measured(f"host {waits['host_us'] - alone['host_us']:.2f} us, device {waits['device_us'] - alone['device_us']:.2f} us over a kernel alone "
                    f"({alone['device_us']:.2f} us)", **found)


# --------------------------------------------------------------------------------------------------------------- pages

pages = part("pages", "what it costs to move pages: to map, give access, alias, unmap; events; what of it waits for the device")


@pages.row("costs", "1 to 512 pages at once: the driver's calls and those of Device; the same for one page while the device copies", point=7, smoke=True)
def page_costs(bench):
    found = json.loads(bench.cuda([bench.program("bench/page_costs"), *(["--smoke"] if bench.smoke else [])], finding_cuda(bench)))
    most = max(map(int, found["us"]["alias"]))
    each = ", ".join(f"{call} {found['us'][call]['1']:.1f} us alone, {found['us'][call][str(most)] / most:.2f} us a page of {most}"
                     for call in ("commit", "alias", "decommit"))
    waits = [name for name, one in found["busy"]["calls"].items() if one["waited"] > found["rounds"] / 2]
    event = "event: {record:.2f} us to record, {query:.2f} us to ask, {wait:.1f} us to wait".format(**found["event_us"])
    waiting = "" if bench.standin else f"; these wait for the device: {', '.join(waits) or 'none'}"
    return measured(f"{each}; {event}{waiting}", **found)


# -------------------------------------------------------------------------------------------- step time and memory

GROUPS = [("train-gpt2", "gpt2", ("--precision", "bf16"), "GPT-2 small"), ("train-resnet", "resnet50", ("--precision", "bf16", "--channels-last"), "ResNet-50"),
          ("train-llama", "llama", ("--precision", "bf16"), "a Llama of 1.1 B weights")]


def beside(model, how, rounds):
    """Every allocator once a round, in an order that changes; what berth serves was recorded and planned before."""

    def run(bench):
        steps, warmup = (3, 8) if bench.smoke else (20, 20)
        given = ["--model", model, *how, "--steps", steps, "--warmup", warmup, *size(bench)]
        trace, plan = bench.folder / "run.trace", bench.folder / "run.plan"
        settings = dict(ALLOCATORS)
        if not bench.smoke:
            recorded = bench.child("train", *given, environment={"BERTH_MODE": "record", "BERTH_TRACE": trace})
            bench.run([bench.program("berth"), "plan", trace, "-o", plan])
            settings["berth serve"] = {"BERTH_MODE": "serve", "BERTH_PLAN": plan}
        else:
            settings = {name: settings[name] for name in ("caching", "berth learn")}
        runs, broken, longest = {name: [] for name in settings}, {}, 0.0
        for turn in range(1 if bench.smoke else rounds):
            if turn > 0 and bench.left() < 1.2 * longest * len(settings):
                break  # what is there is whole rounds
            for name in list(settings)[:: 1 if turn % 2 == 0 else -1]:
                if name in broken:
                    continue
                start = time.monotonic()
                try:
                    runs[name].append(bench.child("train", *given, environment=settings[name]))
                    longest = max(longest, time.monotonic() - start)
                except Failure as failure:
                    if name == "caching" or name.startswith("berth"):
                        raise
                    broken[name] = str(failure).splitlines()[-1][:200]
        data = {"description": runs["caching"][0]["description"], "rounds": len(runs["caching"]), "steps": steps, "broken": broken, "allocators": {}}
        median = lambda result, key: statistics.median(step[key] for step in result["steps"][warmup:])  # noqa: E731
        for name, results in runs.items():
            if not results:
                continue
            every = sorted(step["ms"] for result in results for step in result["steps"][warmup:])
            ratios = [median(ours, "ms") / median(theirs, "ms") for ours, theirs in zip(results, runs["caching"])]
            last = results[-1]
            data["allocators"][name] = {
                "step_ms": {"median": statistics.median(every), "p25": every[len(every) // 4], "p75": every[3 * len(every) // 4]},
                "step_over_caching": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
                "queue_ms": statistics.median(median(result, "queue_ms") for result in results),
                "reserved_peak_bytes": last["reserved_peak_bytes"], "allocated_peak_bytes": last["allocated_peak_bytes"],
                "reserved_over_allocated": last["reserved_peak_bytes"] / max(last["allocated_peak_bytes"], 1),
                "device_used_bytes": last["device_used_bytes"], "misses_a_step": statistics.mean(misses(last)) if last["stats"] else None,
                "driver_calls_a_step": statistics.mean(step["driver_calls"] for step in last["steps"][warmup:]) if last["stats"] else None,
                "arena_bytes": last["stats"].get("arena"), "arena_bound_bytes": last["stats"].get("arena_bound")}
        if not bench.smoke:
            data["berth_pool"] = {key: recorded[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")}
        said = "; ".join(f"{name} {mebibytes(one['reserved_peak_bytes'])} ({one['reserved_over_allocated']:.3f}), {one['step_ms']['median']:.1f} ms"
                         for name, one in data["allocators"].items())
        return measured(f"{data['description']}: {said}" + "".join(f"; {name}: {why}" for name, why in broken.items()), **data)

    return run


for group, model, how, text in GROUPS:
    rows = part(group, f"reserved memory and step time of {text} under every allocator, in rounds")
    rows.row("rounds", "caching, expandable segments, cudaMallocAsync, berth learn, berth serve", wants=240)(beside(model, how, 2 if model == "llama" else 3))
    if model == "resnet50":
        rows.row("benchmark", "the same where cuDNN tries its algorithms", wants=200)(beside(model, (*how, "--benchmark"), 1))

programs_part = part("train-cpp", "the C++ programs of bench/train on the GPU: memory and step time")


def cpp(model):
    def run(bench):
        data_folder = next((folder for folder in (ROOT / "build/data", ROOT / ".carry/data") if (folder / "text.txt").is_file()), None)
        if data_folder is None:
            raise Skip("no data: cmake/setup fetches it into build/data, and cmake/carry takes it along")
        found = {"rounds": []}
        for turn in range(1 if bench.smoke else 3):
            one = {}
            chosen = list(ALLOCATORS) if not bench.smoke else ["caching", "berth learn"]
            for name in chosen[:: 1 if turn % 2 == 0 else -1]:
                path = bench.folder / "run.json"
                bench.cuda([bench.program("bench/train/train_cuda"), "--device", "cuda", "--model", model, "--data", data_folder, "--steps",
                            3 if bench.smoke else 20, "--warmup", 8 if bench.smoke else 20, "--threads", 1, "--quiet", "--json", path,
                            *training.settling(ALLOCATORS[name])], ALLOCATORS[name], installs=True)
                result = json.loads(path.read_text())
                one[name] = {"step_ms": statistics.median(step["ms"] for step in result["steps"]), **result["memory"], "losses": result["losses_hex"]}
            found["rounds"].append(one)
        first = found["rounds"][0]
        length = min(len(one["losses"]) for one in first.values())
        found["losses_equal"] = None if bench.standin else {
            name: one["losses"][:length] == first["caching"]["losses"][:length] for name, one in first.items()}
        for one in found["rounds"]:
            for result in one.values():
                del result["losses"]
        said = "; ".join(f"{name} {mebibytes(first[name]['reserved_peak_bytes'])} "
                         f"({first[name]['reserved_peak_bytes'] / max(first[name]['allocated_peak_bytes'], 1):.3f}), "
                         f"{statistics.median(one[name]['step_ms'] for one in found['rounds']):.1f} ms" for name in first)
        return measured(f"{result_text(model)}: {said}", **found)

    return run


def result_text(model):
    return {"gpt": "GPT of 4 layers", "resnet18": "ResNet-18", "lstm": "LSTM", "mlp": "MLP"}[model]


for model in ("gpt", "resnet18", "lstm", "mlp"):
    programs_part.row(model, f"bench/train's {result_text(model)} under every allocator", wants=60, smoke=model == "mlp")(cpp(model))

# ------------------------------------------------------------------------------------------------------- step programs

steps_part = part("steps", "step programs: memory and time beside eager and checkpoints, predicted beside measured, cuDNN's algorithms by choice")


def stepped(model, precision):
    def run(bench):
        algorithms = bench.folder / "algorithms"
        given = ["--model", model, "--precision", precision, "--steps", 2 if bench.smoke else 15, *size(bench), "--algorithms", algorithms,
                 "--library", bench.program("libberth_torch_cuda_allocator.so")]
        found = bench.child("steps", *given, environment={"BERTH_MODE": "off"})
        eager = next(one for one in found["runs"] if one["label"] == "eager")
        rows, wrong = [], []
        for one in found["runs"]:
            program = one.get("program", {})
            ratios = [ours / theirs for ours, theirs in zip(one["ms"], eager["ms"])]
            rows.append({"label": one["label"], "peak_bytes": one["peak"], "predicted_bytes": one.get("predicted"), "ms": statistics.median(one["ms"]),
                         "queued_ms": statistics.median(one["queued_ms"]), "ratio": statistics.median(ratios),
                         "predicted_ratio": program["predicted_ns"] / program["recorded_ns"] if program.get("recorded_ns") else None,
                         "losses_equal": None if bench.standin else one["losses_hex"] == eager["losses_hex"],
                         **{name: program.get(name) for name in ("scheduled", "runs_again", "choices", "chosen", "budget_not_met", "last_refusal")}})
            if program and (not program["scheduled"] or program["last_refusal"]):
                wrong.append(f"{one['label']} ran no schedule: {program['last_refusal']}")
            if not bench.standin and "other bits" not in one["label"] and one["losses_hex"] != eager["losses_hex"]:
                wrong.append(f"{one['label']} has other losses")
        known = len(algorithms.read_text().splitlines()) - 2 if algorithms.is_file() else 0
        off = [row["peak_bytes"] - row["predicted_bytes"] for row in rows if row["predicted_bytes"] is not None]
        said = "; ".join(f"{row['label']} {mebibytes(row['peak_bytes'])} {row['ratio']:.2f} x" for row in rows)
        said += f"; {sum(one == 0 for one in off)} of {len(off)} predicted peaks are the measured ones, at most {max(map(abs, off))} bytes off"
        data = {"description": found["description"], "runs": rows, "shapes_measured": known}
        if wrong:
            return failed(f"{'; '.join(wrong)}: {found['description']}: {said}", **data)
        return decided(bench, True, f"{found['description']}: {said}", **data)

    return run


for model in ("gpt2", "resnet50"):
    for precision in ("fp32", "bf16"):
        steps_part.row(f"{model} {precision}", f"{model}, {precision}: eager, checkpoints, engines and budgets in turns", wants=200,
                       smoke=model == "resnet50" and precision == "fp32")(stepped(model, precision))

# --------------------------------------------------------------------------------------------------------------- graphs

graphs = part("graphs", "captured graphs: losses beside the native allocator's")


def graphed(how):
    def run(bench):
        if how == "compile":
            try:
                bench.run([bench.python, "-c", "import importlib.util as u; import sys; sys.exit(0 if u.find_spec('triton') else 3)"])
            except Failure:
                raise Skip("no triton here, which torch.compile needs") from None
            if bench.standin:
                raise Skip("triton's kernels do not load on the stand-in")
        given = ["--how", how, "--steps", 6 if bench.smoke else 30, *size(bench)]
        ours = bench.child("graphs", *given, environment={"BERTH_MODE": "learn"})
        theirs = bench.child("graphs", *given, environment={"BERTH_MODE": "off"}) if not trial(bench) else ours
        same = ours["losses_hex"] == theirs["losses_hex"]
        return decided(bench, same, f"{len(ours['losses_hex'])} losses {'not compared' if bench.standin else 'equal' if same else 'DIFFER'}; reserved "
                       f"{mebibytes(ours['reserved_peak_bytes'])} under berth, {mebibytes(theirs['reserved_peak_bytes'])} under the native allocator",
                       berth={key: ours[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")},
                       native={key: theirs[key] for key in ("reserved_peak_bytes", "allocated_peak_bytes")})

    return run


graphs.row("graph", "a whole step in one CUDAGraph, memory asked for beside it", point=5, smoke=True)(graphed("graph"))
graphs.row("callables", "make_graphed_callables", point=5)(graphed("callables"))
graphs.row("compile", "torch.compile, mode reduce-overhead: states of the pool are saved and restored", point=5, wants=150)(graphed("compile"))

# -------------------------------------------------------------------------------------------------------------- sharing

sharing = part("sharing", "other processes, other GPUs, NCCL")


def shared(consumer):
    def run(bench):
        found = bench.child("sharing", "--consumer", consumer, "--rounds", 3 if bench.smoke else 40, environment={"BERTH_MODE": "learn"})
        good = found["exit_code"] == 0 and not found["wrong"]
        values = "values not compared" if bench.standin else f"{len(found['wrong'])} wrong"
        text = f"{found['rounds']} tensors shared with a process under '{found['consumer']}', {values}"
        if bench.standin:
            return ran(text, **found) if found["exit_code"] == 0 else failed(text, **found)
        return passed(text, **found) if good else failed(text, **found)

    return run


sharing.row("processes", "a tensor of virtual memory, shared with a process that runs berth", point=4, smoke=True)(shared("same"))
sharing.row("native process", "the same with a process under PyTorch's own allocator", point=4)(shared("native"))


@sharing.row("peers", "copies between two GPUs", point=4)
def peers(bench):
    if not bench.standin and bench.gpus < 2:
        raise Skip("one GPU here")
    found = bench.child("peers", environment={"BERTH_MODE": "learn"}, devices=2)
    return decided(bench, not found["wrong"], f"{len(found['sizes'])} sizes, {len(found['wrong'])} of them wrong, peer access: {found['can_access']}", **found)


@sharing.row("nccl", "one rank: set_device first, collectives, DDP, a registered pool", point=4)
def nccl(bench):
    found = bench.child("distributed", *(["--steps", 5] if bench.smoke else []), environment={"BERTH_MODE": "learn"})
    return decided(bench, found["equal"], f"collectives {'not compared' if bench.standin else 'equal' if found['equal'] else 'DIFFER'}, registered pool: {found['registered_pool']}", **found)


# ------------------------------------------------------------------------------------------------------------ lifecycle

lifecycle = part("lifecycle", "the ends of a program")


@lifecycle.row("exit", "blocks, streams and graphs that outlive main", point=5)
def exits(bench):
    bench.child("lifecycle", "--how", "exit", environment={"BERTH_MODE": "learn"})
    words = bench.last_errors.strip()
    return failed(f"it complains: {words.splitlines()[-1]}", tail=words.splitlines()) if words else passed("silent, exit code 0")


@lifecycle.row("fork", "frees in a forked child reach no driver, and the parent goes on", point=5, smoke=True)
def forks(bench):
    found = bench.child("lifecycle", "--how", "fork", environment={"BERTH_MODE": "learn"})
    good = found["child_exit_code"] == 0 and found["sums_right"] and found["kept_right"]
    text = f"the child ended with {found['child_exit_code']}, the parent's values are {'right' if found['sums_right'] and found['kept_right'] else 'WRONG'}"
    return passed(text, **found) if good else failed(text, **found)
