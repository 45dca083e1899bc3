#!/usr/bin/env python3
"""Kills training jobs at random moments, resumes them until they are done, and compares with an undisturbed run, bit for bit.

    docs/reliability/kill.py MORPHGL [--kills N] [--jobs cpu,cora,sim,cuda] [--seed S]

MORPHGL is a binary; `cuda` needs one built with feature `cuda` and a device, or with `emulate` and MORPHGL_EMULATION=devices=1 set.
N is the number of SIGKILLs of all jobs together, and of stops; a job that is done before its share is reached starts again from the beginning.
Compared are `metrics.jsonl` but for times, and `model.safetensors` (of the simulated trainer, which saves no model, the ledger
in the last checkpoint: which mini-batch was trained how often, with which content).

How much is trained again is counted by as many stops: SIGSTOP at a random moment, and a copy of the run directory, which is what a
SIGKILL would have left; then SIGINT and SIGCONT. The next checkpoint that the process writes, at its interval or for the
interrupt, is at least as far as the process was, so what the copy trains again is at most the difference; the copy is resumed. Allowed are the
mini-batches of --checkpoint-every, and those that were sent to a device ahead of a checkpoint that was due.

Exit status 1 says that something differed, or that more was trained again than --checkpoint-every says.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

CORA = pathlib.Path(__file__).resolve().parents[2] / "testdata/planetoid/ind.cora"
ROW = ["epoch", "loss", "train_accuracy", "valid_loss", "valid_accuracy", "replanned"]
REPORT = ["batches", "seeds", "edges", "score", "stopped", "remaining", "counters"]
SIM = "batching-cpu=12ms,transferring-pcie=6ms,batching-device=3ms,transferring-device=1ms,training=2ms"
SMALL = ["--layers", "2", "--hidden", "16", "--fanouts", "5,5", "--profile-seconds", "0.2"]
# Mini-batches sent to training ahead, by the job: `queue_depth` of its training operator where that is more than 1.
AHEAD = {"sim": 2, "cuda": 2}
NATIVE = ["--training", "Training_CPU_Native"]


def jobs():
    """Dataset, options, environment and whether two routes are planned, by job."""
    return {
        "cpu": (None, [*NATIVE, "--hidden", "32", "--fanouts", "5,5,5", "--epochs", "6", "--batch-size", "256",
                       "--profile-seconds", "0.5", "--checkpoint-every", "20b"], {}, "pipeline"),
        "cora": ("cora", [*NATIVE, "--model", "gcn", "--fanouts=-1,-1", "--hidden", "16", "--batch-size", "16",
                          "--epochs", "60", "--profile-seconds", "0.2", "--checkpoint-every", "7b"], {}, "pipeline"),
        "sim": ("small", ["--training", "Training_SIM_Ledger", "--batch-size", "1", "--layers", "1", "--fanouts", "2",
                          "--evaluation", "none", "--threads", "2", "--profile-seconds", "1", "--epochs", "6",
                          "--checkpoint-every", "25b"], {"MORPHGL_SIM": SIM}, "interleaved"),
        "cuda": ("small", ["--training", "Training_CUDA_Native", "--fanouts", "4,3", "--hidden", "8", "--batch-size", "8",
                           "--epochs", "6", "--threads", "2", "--profile-seconds", "0.2", "--evaluation", "none",
                           "--checkpoint-every", "5b"], {}, "both"),
    }


def rows(run):
    found = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        kept = {name: row[name] for name in ROW}
        kept.update({name: row["report"].get(name) for name in REPORT})
        kept["shares"] = [share["batches"] for share in row["report"]["shares"]]
        found.append(kept)
    return found


def checkpoints(run):
    return sorted((run / "checkpoints").glob("*.checkpoint"))


def header(data):
    """The header of a checkpoint's safetensors file, and its length."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), length


def position(path):
    """Mini-batches trained at a checkpoint."""
    found = json.loads(header(path.read_bytes())[0]["__metadata__"]["morphgl_checkpoint"])
    within = found["position"]["within"] or {"earlier": None, "part": {"batches": 0}}
    number = sum(share["batches"] for share in found["position"]["plan"]["schedule"]["shares"])
    return found["epoch"] * number + (within["earlier"] or {"batches": 0})["batches"] + within["part"]["batches"]


def stop(process, run, copy):
    """Copies the directory of a run that is stopped, interrupts the run, and replaces it by the copy.

    Returns the mini-batches trained again at most, `None` where the run was not in training.
    """
    process.send_signal(signal.SIGSTOP)
    # The state of each of its threads follows the name in parentheses.
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    while any(task.read_text().rsplit(")", 1)[1].split()[0] not in "TZ" for task in tasks.glob("*/stat")):
        time.sleep(0.001)
    if (run / "config.toml").exists():
        shutil.copytree(run, copy)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    process.wait()
    if not copy.exists():
        return None
    at = checkpoints(copy)[-1]
    later = [path for path in checkpoints(run) if path.name > at.name]
    # Of three or more later checkpoints the first is removed already: the process was slow to be interrupted.
    again = position(later[0]) - position(at) if later and int(later[0].stem) == int(at.stem) + 1 else None
    shutil.rmtree(run)
    copy.rename(run)
    return again


def ledger(run):
    """The tensors of the last checkpoint's parameters."""
    data = checkpoints(run)[-1].read_bytes()
    found, length = header(data)
    tensors = {name: t["data_offsets"] for name, t in found.items() if name.startswith("parameters/")}
    return {name: data[8 + length + a : 8 + length + b] for name, (a, b) in tensors.items()}


def result(run):
    model = run / "model.safetensors"
    return rows(run), model.read_bytes() if model.exists() else ledger(run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("morphgl", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--jobs", default="cpu,cora,sim,cuda")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    binary = args.morphgl.resolve()
    known, names = jobs(), args.jobs.split(",")
    place = pathlib.Path(tempfile.mkdtemp(prefix="morphgl-kill-"))
    call = lambda *command, **more: subprocess.run([binary, *command], cwd=place, check=True, capture_output=True, **more)
    call("generate", "sbm", "-o", "small", "--nodes", "300", "--classes", "3", "--dim", "8", "--degree", "6")
    if "cora" in names:
        call("import", "planetoid", CORA, "-o", "cora")
    differed = 0

    def first_plan(train, plan, environment):
        """A strategy's name, or for `both` a plan file with half of each route: none is planned where training takes longest."""
        if plan != "both":
            return plan
        unkept = train[: train.index("--checkpoint-every")]
        plans = [json.loads(call(*unkept, "--json", "--plan", p, env=environment).stdout)["plan"] for p in ["pipeline", "device"]]
        schedule = plans[0]["schedule"]
        schedule["shares"] += plans[1]["schedule"]["shares"]
        number = schedule["shares"][0]["batches"]
        schedule["shares"][0]["batches"] = number // 2
        schedule["shares"][1]["batches"] = number - number // 2
        schedule.update(policy="interleaved", group=2)
        (place / "both.json").write_text(json.dumps(plans[0]))
        return "both.json"

    print("| job | SIGKILLs | of them before the first checkpoint | stops | mini-batches trained again: mean, most, allowed | runs to the end | same bits |")
    print("|---|---|---|---|---|---|---|")
    for number, name in enumerate(names):
        dataset, options, environment, plan = known[name]
        environment = {**os.environ, **environment}
        train = ["train", *([dataset] if dataset else []), *options]
        every = next(option for option in options if option.endswith("b") and option[:-1].isdigit())
        again = ["--checkpoint-every", every]
        start = time.monotonic()
        call(*train, "--plan", first_plan(train, plan, environment), "--run", f"{name}-whole", env=environment)
        took = time.monotonic() - start
        expected = result(place / f"{name}-whole")
        train += ["--plan", f"{name}-whole/plan.json"]
        kills, runs, early, again_after, same = 0, 0, 0, [], True
        share = args.kills // len(names) + (number < args.kills % len(names))
        while min(kills, len(again_after)) < share:
            run = place / f"{name}-{runs}"
            runs += 1
            command = [*train, "--run", run.name]
            while True:
                resumable = (run / "config.toml").exists()
                if resumable:
                    command = ["train", "--resume", run.name, *again]
                log = open(place / "stderr", "w+")
                process = subprocess.Popen([binary, *command, "--json"], cwd=place, env=environment, stderr=log, stdout=log)
                ways = ["kill"] * (kills < share) + ["stop"] * (len(again_after) < share)
                try:
                    code = process.wait(random.uniform(0, 1.2 * took) if ways else None)
                except subprocess.TimeoutExpired:
                    if random.choice(ways) == "stop":
                        counted = stop(process, run, place / "copy")
                        again_after += [] if counted is None else [counted]
                        continue
                    process.kill()
                    process.wait()
                    kills += 1
                    early += not (run / "config.toml").exists()
                    continue
                if code != 0:
                    log.seek(0)
                    sys.exit(f"{name}: status {code}: {log.read()}")
                break
            same &= result(run) == expected
            shutil.rmtree(run)
        allowed = int(every[:-1]) + AHEAD.get(name, 0)
        differed += not same or max(again_after) > allowed
        counted = f"{sum(again_after) / share:.1f}, {max(again_after)}, {allowed}"
        print(f"| {name} | {kills} | {early} | {len(again_after)} | {counted} | {runs} | {'yes' if same else 'NO'} |", flush=True)
    shutil.rmtree(place)
    sys.exit(differed > 0)


if __name__ == "__main__":
    main()
