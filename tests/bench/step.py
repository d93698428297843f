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
# So that PyTorch is not handicapped: the widest vectors, tensors that stay mapped, and for Debian's the
# OpenBLAS that does not run threads of its own, told what this CPU is.
TUNED = {
    "ATEN_CPU_CAPABILITY": "avx512",
    "MALLOC_MMAP_THRESHOLD_": str(8 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
DEBIAN = {"OPENBLAS_CORETYPE": "SkylakeX", "LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu/openblas-openmp"}


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
               f"steps={steps}", *sizes, "--threads", str(arguments.threads), "--json", "--run-dir", folder]
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
    seconds, peaks = {}, {}
    for round_ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            runs = {"Tenon": lambda: tenon(arguments, model, os.path.join(folder, "run"))}
            if arguments.python:
                runs["PyTorch, newest"] = lambda: pytorch(arguments, arguments.python, {}, model)
                runs["PyTorch, newest, tuned"] = lambda: pytorch(arguments, arguments.python, TUNED, model)
            if arguments.debian:
                runs["PyTorch, Debian's, tuned"] = lambda: pytorch(
                    arguments, "/usr/bin/python3", {**TUNED, **DEBIAN}, model)
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
