"""Whole training steps of Tenon and of PyTorch, side by side: bursts in turn, medians, ratios, peak memory.

Started by scripts/dev/bench step. Every burst is a process of its own; its first two steps do not count.
"""
import argparse, json, os, shlex, statistics, subprocess, sys, tempfile

MODELS = {  # burst: steps that count
    "124M": dict(layers=12, heads=12, width=768, vocab=50304, context=1024, batch=4, tokens=256, burst=3),
    "10M": dict(layers=6, heads=6, width=384, vocab=256, context=256, batch=16, tokens=256, burst=4),
    "quickstart": dict(layers=4, heads=4, width=256, vocab=256, context=128, batch=8, tokens=128, burst=20),
    "tiny": dict(layers=2, heads=2, width=64, vocab=256, context=64, batch=1, tokens=64, burst=200),
}
# So that PyTorch is not handicapped: the widest vectors of the CPU, tensors that stay mapped, and for Debian's the
# OpenBLAS that does not run threads of its own, told what this CPU is.
TUNED = {
    "MALLOC_MMAP_THRESHOLD_": str(8 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
DEBIAN = {"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu/openblas-openmp"}
# By instruction set: the CPU's flags, what PyTorch is told when it is tuned, and what its libraries are told when all shall
# keep to it.
VECTORS = {
    "avx512": dict(
        needs={"avx512f", "avx512bw", "avx512dq", "avx512vl"}, aten="avx512", openblas="SkylakeX",
        pinned={"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"}),
    "avx2": dict(
        needs={"avx2", "fma"}, aten="avx2", openblas="Haswell",
        pinned={"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
}


def environments(isa):
    """Of PyTorch as it is, tuned, and Debian's. What a CPU lacks would end in an illegal instruction."""
    with open("/proc/cpuinfo") as file:
        flags = {word for line in file if line.startswith("flags") for word in line.split()}
    there = [name for name, vectors in VECTORS.items() if vectors["needs"] <= flags]
    if isa != "auto" and isa not in there:
        sys.exit(f"--isa {isa}: this machine lacks these instructions; it has: {', '.join(there) or 'none of them'}")
    vectors = VECTORS[isa] if isa != "auto" else VECTORS[there[0]] if there else None
    plain = {"ATEN_CPU_CAPABILITY": vectors["aten"], **vectors["pinned"]} if isa != "auto" else {}
    tuned = {**plain, **TUNED, **({"ATEN_CPU_CAPABILITY": vectors["aten"]} if vectors else {})}
    return plain, tuned, {**tuned, **DEBIAN, **({"OPENBLAS_CORETYPE": vectors["openblas"]} if vectors else {})}


def execute(command, environment):
    """Output of a process, and its peak resident size in bytes (with its children's)."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"failed: {shlex.join(command)}\n{output}")
    return output, usage.ru_maxrss * 1024


def tenon(arguments, model, folder):
    sizes = [f"{key}={value}" for key, value in model.items() if key != "burst"]
    steps = model["burst"] + 2
    command = [arguments.tenon, "train", os.path.join(os.path.dirname(__file__), "gpt.lua"), f"file={arguments.text}",
               f"steps={steps}", *sizes, f"isa={arguments.isa}", "--threads", str(arguments.threads), "--json",
               "--run-dir", folder]
    output, peak = execute(arguments.prefix + command, {})
    events = [json.loads(line) for line in output.splitlines()]
    tokens = model["batch"] * model["tokens"]
    return [tokens / event["tokens_per_s"] for event in events if event.get("event") == "step"][2:], peak


def pytorch(arguments, python, environment, model):
    sizes = [word for key, value in model.items() if key != "burst" for word in (f"--{key}", str(value))]
    command = [python, os.path.join(os.path.dirname(__file__), "gpt.py"), *sizes, "--steps", str(model["burst"] + 2),
               "--threads", str(arguments.threads)]
    output, peak = execute(arguments.prefix + command, environment)
    return json.loads(output.splitlines()[-1])["seconds"][2:], peak


def measure(arguments, name):
    model = MODELS[name]
    plain, tuned, debian = environments(arguments.isa)
    seconds, peaks = {}, {}
    for round_ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            runs = {"Tenon": lambda: tenon(arguments, model, os.path.join(folder, "run"))}
            if arguments.python:
                runs["PyTorch, newest"] = lambda: pytorch(arguments, arguments.python, plain, model)
                runs["PyTorch, newest, tuned"] = lambda: pytorch(arguments, arguments.python, tuned, model)
            if arguments.debian:
                runs["PyTorch, Debian's, tuned"] = lambda: pytorch(arguments, "/usr/bin/python3", debian, model)
            for who, run in runs.items():
                times, peak = run()
                seconds.setdefault(who, []).extend(times)
                peaks[who] = max(peaks.get(who, 0), peak)
    return {who: dict(seconds=statistics.median(times), best=min(times), samples=len(times), peak_bytes=peaks[who])
            for who, times in seconds.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tenon", required=True, help="the command")
    parser.add_argument("--text", required=True, help="text file to train on")
    parser.add_argument("--python", help="of an environment that has the newest PyTorch")
    parser.add_argument("--debian", action="store_true", help="with the PyTorch of /usr/bin/python3")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--isa", choices=["auto", *VECTORS], default="auto", 
                        help="instructions that all keep to; auto: the widest that the CPU has")
    parser.add_argument("--prefix", type=shlex.split, default=[], help="in front of every command, as 'chrt -r 1'")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    everything = {}
    for name in arguments.models:
        rows = everything[name] = measure(arguments, name)
        if arguments.json:
            continue
        tokens = MODELS[name]["batch"] * MODELS[name]["tokens"]
        print(f"{name}: {tokens} tokens a step, {arguments.threads} threads, {arguments.rounds} rounds")
        print(f"  {'':<26}{'ms / step':>11}{'best':>11}{'tokens/s':>11}{'x Tenon':>9}{'peak MiB':>10}")
        for who, row in rows.items():
            print(f"  {who:<26}{row['seconds'] * 1e3:>11.2f}{row['best'] * 1e3:>11.2f}{tokens / row['seconds']:>11.0f}"
                  f"{row['seconds'] / rows['Tenon']['seconds']:>9.2f}{row['peak_bytes'] / 2**20:>10.0f}", flush=True)
    if arguments.json:
        print(json.dumps(everything))


main()
