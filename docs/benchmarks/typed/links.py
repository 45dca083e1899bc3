"""Filtered ranks of movies for users of MovieLens-100k by a typed model, by MorphGL and by PyG: the same layers, pairs and options, five
seeds.

    python docs/benchmarks/typed/links.py --binary target/release/morphgl --data recbole/dataset_example/ml-100k > links.json

Needs torch and torch_geometric, and the folder of the package recbole. Users have features (age, gender, occupation), movies learned
embeddings; ratings are the edges `user-rates-movie` with their reverses, 80% of them to train on, 10% to validate, 10% to test. The model
is R-SAGE of two layers with all neighbours. A mini-batch has positives and drawn movies; the positives and their reverses are left out of
the edges that its messages pass along. A test pair's movie is ranked among all movies but those that the user has another rating of, ties
averaged, by the epoch of the best validation.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np

WIDTH, NEGATIVES, BATCH, LR, DROPOUT = 64, 4, 4096, 0.01, 0.1
MANIFEST = """name = "ml-100k"
[nodes.user]
file = "users.csv"
id = "id"
features = ["f*"]
[nodes.movie]
file = "movies.csv"
id = "id"
[[edges]]
type = "rates"
file = "ratings.csv"
source = { type = "user", column = "user" }
target = { type = "movie", column = "movie" }
reverse = true
links = true
"""


def tables(data, directory):
    """The tables of a manifest, from RecBole's."""

    def rows(name):
        with open(os.path.join(data, name), encoding="utf-8") as file:
            table = csv.reader(file, delimiter="\t")
            names = [column.split(":")[0] for column in next(table)]
            return [dict(zip(names, row)) for row in table]

    def write(name, header, lines):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *lines])

    users = rows("ml-100k.user")
    jobs = sorted({user["occupation"] for user in users})
    features = [[user["user_id"], int(user["age"]) / 100, int(user["gender"] == "M"), *(int(user["occupation"] == job) for job in jobs)]
                for user in users]
    write("users.csv", ["id", *(f"f{at}" for at in range(len(jobs) + 2))], features)
    write("movies.csv", ["id"], [[movie["item_id"]] for movie in rows("ml-100k.item")])
    write("ratings.csv", ["user", "movie"], [[rating["user_id"], rating["item_id"]] for rating in rows("ml-100k.inter")])
    with open(os.path.join(directory, "graph.toml"), "w", encoding="utf-8") as file:
        file.write(MANIFEST)


class Ratings:
    """The dataset's arrays: pairs as numbers of user and movie."""

    def __init__(self, path):
        load = lambda name: np.load(os.path.join(path, f"{name}.npy")).astype(np.int64)
        nodes = json.load(open(os.path.join(path, "graph.json")))["types"]["nodes"]
        self.users, self.movies = nodes[0]["count"], nodes[1]["count"]
        self.features = np.load(os.path.join(path, "features.0.npy")).astype(np.float32)
        indptr, indices = load("indptr"), load("indices")
        targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        pairs = lambda ends: np.stack([ends[0], ends[1] - self.users])
        self.train = pairs(np.stack([indices, targets])[:, targets >= self.users])
        self.valid, self.test = (pairs(load(f"{split}_edges").reshape(-1, 2).T) for split in ("valid", "test"))

    def ranks(self, scores, pairs):
        """Rank of each pair's movie by a matrix of scores of all."""
        known = np.zeros((self.users, self.movies), bool)
        for split in (self.train, self.valid, self.test):
            known[split[0], split[1]] = True
        users, movies = pairs
        own = scores[users, movies]
        others = ~known[users]
        rows = scores[users]
        higher = ((rows > own[:, None]) & others).sum(1)
        equal = ((rows == own[:, None]) & others).sum(1)
        return 1 + higher + equal / 2


def by_pyg(path, epochs, seed):
    import torch
    from torch import nn
    from torch_geometric.nn import HeteroConv, SAGEConv

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng, data = np.random.default_rng(seed), Ratings(path)
    edge_types = [("user", "rates", "movie"), ("movie", "rev_rates", "user")]
    project = nn.Linear(data.features.shape[1], WIDTH)
    embedding = nn.Parameter((torch.rand(data.movies, WIDTH) * 2 - 1) * (3 / WIDTH) ** 0.5)
    convs = nn.ModuleList(HeteroConv({of: SAGEConv(WIDTH, WIDTH) for of in edge_types}, aggr="sum") for _ in range(2))
    optimizer = torch.optim.Adam([*project.parameters(), embedding, *convs.parameters()], lr=LR)
    features, train = torch.from_numpy(data.features), torch.from_numpy(data.train)

    def embed(edges, training):
        x = {"user": project(features), "movie": embedding}
        index = {edge_types[0]: edges, edge_types[1]: edges.flip(0)}
        x = {name: nn.functional.dropout(rows.relu(), DROPOUT, training) for name, rows in convs[0](x, index).items()}
        return convs[1](x, index)

    best = (-1, None)
    for _ in range(epochs):
        order = rng.permutation(train.shape[1])
        for start in range(0, len(order), BATCH):
            own = order[start:start + BATCH]
            others = np.ones(train.shape[1], bool)
            others[own] = False
            x = embed(train[:, others], True)
            users, movies = train[:, own]
            drawn = torch.from_numpy(rng.integers(0, data.movies, (len(own), NEGATIVES)))
            ahead = (x["user"][users] * x["movie"][movies]).sum(1, keepdim=True) - (x["user"][users][:, None] * x["movie"][drawn]).sum(2)
            optimizer.zero_grad()
            nn.functional.softplus(-ahead).mean().backward()
            optimizer.step()
        with torch.no_grad():
            x = embed(train, False)
            scores = (x["user"] @ x["movie"].T).numpy()
        mrr = float((1 / data.ranks(scores, data.valid)).mean())
        if mrr > best[0]:
            best = mrr, data.ranks(scores, data.test)
    ranks = best[1]
    return {"mrr": float((1 / ranks).mean()), "hits@10": float((ranks <= 10).mean())}


def by_morphgl(binary, path, epochs, seed, directory):
    run = os.path.join(directory, f"run-{seed}")

    def call(*words):
        done = subprocess.run([str(word) for word in (binary, *words, "--json", "--quiet")], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return json.loads(done.stdout)

    call("train", path, "--task", "link", "--loss", "bpr", "--model", "rsage", "--layers", 2, "--fanouts=-1,-1", "--hidden", WIDTH,
         "--embedding", WIDTH, "--dropout", DROPOUT, "--negatives", NEGATIVES, "--batch-size", BATCH, "--lr", LR, "--epochs", epochs,
         "--score", "filtered-mrr", "--seed", seed, "--threads", 1, "--profile-seconds", 0.1, "--plan", "sequential", "--run", run)
    scores = call("evaluate", run, "--score", "filtered-mrr", "--score", "filtered-hits@10")["test"]["scores"]
    return {"mrr": scores["filtered-mrr"], "hits@10": scores["filtered-hits@10"]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", default="morphgl", help="the morphgl binary")
    arguments.add_argument("--data", required=True, help="folder with ml-100k.inter, .user and .item")
    arguments.add_argument("--epochs", type=int, default=30)
    arguments.add_argument("--seeds", type=int, default=5)
    given = arguments.parse_args()
    result = {"epochs": given.epochs, "test": {}}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "ml-100k")
        tables(given.data, directory)
        subprocess.run([given.binary, "import", "manifest", os.path.join(directory, "graph.toml"), "-o", path, "--edge-split",
                        "0.8,0.1,0.1", "--seed", "0", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        sides = {"morphgl": lambda seed: by_morphgl(given.binary, path, given.epochs, seed, directory),
                 "pyg": lambda seed: by_pyg(path, given.epochs, seed)}
        for side, run in sides.items():
            runs = [run(seed) for seed in range(given.seeds)]
            result["test"][side] = {"runs": runs}
            for name in runs[0]:
                values = [of[name] for of in runs]
                mean, deviation = statistics.mean(values), statistics.stdev(values) if given.seeds > 1 else 0.0
                result["test"][side][name] = {"mean": mean, "deviation": deviation}
                print(f"{side:8} {name:8} {mean:.4f} ± {deviation:.4f}", file=sys.stderr)
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
