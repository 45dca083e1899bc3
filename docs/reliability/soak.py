#!/usr/bin/env python3
"""Trains, interrupts, resumes, evaluates and predicts in turns, beside one long training that keeps checkpoints often.

    docs/reliability/soak.py MORPHGL [--minutes M] [--memory SIZE] [--nodes N] [--seed S]

Each cycle trains a model, sends SIGINT, SIGTERM and SIGKILL at random moments, resumes until the run is done, evaluates and
predicts; every command runs under --memory. Watched are, from /proc: memory that is no file's (RssAnon) of every command, and of
the long training also threads and open files over time. Exit status 1, and a line for each fault, where

- a command takes more than --memory, or ends with a status that docs/reliability.md does not give;
- memory, threads or open files of the long training grow after a sixth of the time: memory by more than 1% of --memory per hour and
  4 KiB per epoch, which is room for the epoch's row of metrics. Give it half an hour: memory grows until
  the timeline of the run is full, after some 33,000 mini-batches;
- a temporary file is left in a run directory or in $TMPDIR, or a process is left.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
SMALL = ["--training", "Training_CPU_Native", "--hidden", "32", "--fanouts", "5,5", "--profile-seconds", "0.5"]
# Epochs of many mini-batches: an epoch adds a row of metrics, which stays in memory.
LONG = ["--training", "Training_CPU_Native", "--hidden", "64", "--fanouts", "15,10,5", "--profile-seconds", "0.5"]
FILES = {"config.toml", "plan.json", "status.json", "metrics.jsonl", "checkpoints", "trace.json", "report.html", "model.safetensors"}
# Of a training that was signalled: status during training, before or after it, and before the program handles signals.
ENDS = {signal.SIGINT: {1, 130, -2}, signal.SIGTERM: {1, 143, -15}, signal.SIGKILL: {-9}}


def anonymous(pid):
    """RssAnon of a process in bytes, 0 where it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:")), 0)


def sample(pid):
    """RssAnon, threads and open files."""
    return anonymous(pid), len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))


def slope(points):
    """Least squares, of medians of 20 intervals: evaluations take memory for a moment."""
    size = max(1, len(points) // 20)
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    x, y = [[statistics.median(p[k] for p in part) for part in parts] for k in (0, 1)]
    return statistics.linear_regression(x, y).slope


class Soak:
    def __init__(self, binary, memory, place):
        self.binary, self.place, self.memory = binary, place, memory
        digits = memory.rstrip("KMGTiB")
        self.limit = float(digits) * {"KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}[memory[len(digits) :]]
        self.temporary = place / "tmp"
        self.temporary.mkdir()
        self.faults, self.peaks, self.counts = [], collections.Counter(), collections.Counter()
        self.long, self.samples, self.next_sample, self.left_by_kills = None, [], 0.0, set()

    def fault(self, text):
        print(f"fault: {text}", file=sys.stderr, flush=True)
        self.faults.append(text)

    def start(self, *args):
        self.log = open(self.place / ("log-long" if "long" in args else "log"), "w+")
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        return subprocess.Popen([self.binary, *args], cwd=self.place, env=environment, stdout=self.log, stderr=self.log, start_new_session=True)

    def sample_long(self):
        if self.long and time.monotonic() >= self.next_sample:
            self.next_sample = time.monotonic() + 1
            if self.long.poll() is None:
                self.samples.append((time.monotonic(), *sample(self.long.pid)))

    def wait(self, process, name, seconds=None):
        """Waits for the end, or for so many seconds; returns the status."""
        end = None if seconds is None else time.monotonic() + seconds
        while process.poll() is None and (end is None or time.monotonic() < end):
            self.peaks[name] = max(self.peaks[name], anonymous(process.pid))
            self.sample_long()
            time.sleep(0.02)
        return process.poll()

    def ended(self, process, name, expected):
        """Checks the status, and what is left."""
        if process.returncode not in expected:
            self.log.seek(0)
            self.fault(f"{name}: status {process.returncode}: {self.log.read()[-2000:]}")
        try:
            os.killpg(process.pid, 0)
            self.fault(f"{name}: it left a process")
        except ProcessLookupError:
            pass
        left = {p for p in self.place.rglob("*") if ".partial-" in p.name and "long" not in p.parts} | set(self.temporary.iterdir())
        if process.returncode < 0:
            # Removed by the next process that writes a checkpoint; that none remain is checked when the run is done.
            self.left_by_kills |= left
        elif left - self.left_by_kills:
            self.fault(f"{name}: it left {', '.join(map(str, left - self.left_by_kills))}")

    def run(self, name, *args):
        process = self.start(*args)
        self.wait(process, name)
        self.ended(process, name, {0})
        self.counts[name] += 1

    def cycle(self, number, took):
        run = self.place / f"run-{number}"
        model = ["sage", "gcn", "gat"][number % 3]
        options = [*SMALL, "--model", model, "--epochs", "4", "--memory", self.memory, *(["--mmap"] if number % 2 else [])]
        order = list(ENDS)
        random.shuffle(order)
        for sent in [*order, None]:
            resumed = (run / "config.toml").exists()
            args = ["--resume", run.name] if resumed else ["set", *options, "--run", run.name]
            name = "train --resume" if resumed else "train"
            process = self.start("train", *args, "--checkpoint-every", "40b")
            status = self.wait(process, name, random.uniform(0, took) if sent else None)
            if status is None:
                process.send_signal(sent)
                self.counts[sent.name] += 1
                self.wait(process, name)
                # One that is done at the moment of the signal ends with 0.
                self.ended(process, name, ENDS[sent] | {0})
            else:
                self.ended(process, name, {0})
            self.counts[name] += 1
        self.whole(run, 4)
        trained = f"{run.name}/model.safetensors"
        self.run("evaluate", "evaluate", trained, "set", "--fanouts", "5,5", "--memory", self.memory)
        out = ["out.csv", "out.npy"][number % 2]
        self.run("predict", "predict", trained, "set", "--memory", self.memory, "--mmap", "-o", out)
        (self.place / out).unlink()
        shutil.rmtree(run)

    def whole(self, run, epochs):
        """Checks the directory of a run that is done."""
        names = {p.name for p in run.iterdir()}
        if names != FILES:
            self.fault(f"{run.name}: it has {sorted(names)}")
        checkpoints = sorted(p.name for p in (run / "checkpoints").iterdir())
        if not 1 <= len(checkpoints) <= 2 or not all(name.endswith(".checkpoint") for name in checkpoints):
            self.fault(f"{run.name}: checkpoints {checkpoints}")
        rows = [json.loads(line)["epoch"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        status = json.loads((run / "status.json").read_text())["status"]
        if rows != list(range(epochs)) or status != "done":
            self.fault(f"{run.name}: {len(rows)} rows, {status}")

    def end_long(self):
        """Interrupts the long training, resumes it for an epoch, and judges its samples."""
        process, run = self.long, self.place / "long"
        process.send_signal(signal.SIGTERM)
        self.wait(process, "long training")
        self.ended(process, "long training", {1})
        kept = int(sorted((run / "checkpoints").glob("*.checkpoint"))[-1].name.split(".")[0])
        epochs = len((run / "metrics.jsonl").read_text().splitlines()) + 1
        self.run("train --resume", "train", "--resume", "long", "--epochs", str(epochs))
        self.whole(run, epochs)
        start, span = self.samples[0][0], self.samples[-1][0] - self.samples[0][0]
        steady = [s for s in self.samples if s[0] - start >= span / 6]
        self.peaks["long training"] = max(self.peaks["long training"], *(s[1] for s in self.samples))
        growth = slope(steady) * 3600
        allowed = self.limit / 100 + 4096 * epochs / span * 3600
        if growth > allowed:
            self.fault(f"long training: memory grows by {growth / MIB:.2f} MiB per hour, {allowed / MIB:.2f} are allowed")
        third = len(steady) // 3
        for k, what in [(2, "threads"), (3, "open files")]:
            before, after = max(s[k] for s in steady[: 2 * third]), max(s[k] for s in steady[2 * third :])
            if after > before:
                self.fault(f"long training: {before} {what} at most, {after} in the last third")
        medians = [statistics.median(s[1] for s in part) / MIB for part in (steady[:third], steady[-third:])]
        threads, files = [f"{min(s[k] for s in steady)} to {max(s[k] for s in steady)}" for k in (2, 3)]
        print(f"\nlong training: {span / 60:.1f} minutes, {epochs} epochs, {kept} checkpoints; RssAnon in the median {medians[0]:.1f} MiB in the "
              f"first third after warm-up, {medians[1]:.1f} MiB in the last; {growth / MIB:+.2f} MiB per hour; {threads} threads, {files} open files")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("morphgl", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--nodes", type=int, default=150_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    place = pathlib.Path(tempfile.mkdtemp(prefix="morphgl-soak-"))
    soak = Soak(args.morphgl.resolve(), args.memory, place)
    soak.run("generate", "generate", "sbm", "-o", "set", "--nodes", str(args.nodes), "--classes", "8", "--dim", "64", "--degree", "10")
    end = time.monotonic() + 60 * args.minutes
    soak.long = soak.start("train", "set", *LONG, "--batch-size", "128", "--epochs", "1000000", "--memory", args.memory,
                           "--checkpoint-every", "100b", "--run", "long")
    start, cycles = time.monotonic(), 0
    took = 5.0
    while time.monotonic() < end:
        if soak.long.poll() is not None:
            soak.fault("the long training ended")
            break
        begun = time.monotonic()
        soak.cycle(cycles, took)
        # A cycle has the time of about three trainings.
        took = 0.7 * took + 0.3 * (time.monotonic() - begun) / 3
        cycles += 1
    soak.end_long()
    signals = ", ".join(f"{soak.counts[s.name]} {s.name}" for s in ENDS)
    print(f"{cycles} cycles in {(time.monotonic() - start) / 60:.1f} minutes; {signals}; {len(soak.faults)} faults\n")
    print("| command | runs | most RssAnon of one, MiB |")
    print("|---|--:|--:|")
    soak.counts["long training"] = 1
    for name, peak in soak.peaks.items():
        print(f"| {name} | {soak.counts[name]} | {peak / MIB:.0f} |")
        if peak > soak.limit and name != "generate":
            soak.fault(f"{name}: it took {peak / MIB:.0f} MiB under --memory {args.memory}")
    if not soak.faults:
        shutil.rmtree(place)
    sys.exit(len(soak.faults) > 0)


if __name__ == "__main__":
    main()
