"""Filtered ranks of the triples of UMLS by MorphGL and by PyKEEN: DistMult on learned embeddings, without messages, five seeds.

    python docs/benchmarks/typed/knowledge.py --binary target/release/morphgl > knowledge.json

Needs torch and pykeen, whose package has the triples and their splits. Each relation has a reverse with a vector of its own (MorphGL's
`--symmetrise`, PyKEEN's `create_inverse_triples`): the head of a triple is predicted as the tail of its reverse, so ranks are those of
both ends. Both sides draw tails as negatives, train by the same loss, negatives, mini-batches, width, rate and epochs at most, and keep
the epoch of the best validation. Ranks are filtered by the triples of all splits, ties averaged.

MorphGL's models are DistMult (`morphgl-embedding`), and `mlp` of one layer, a linear map of the embeddings (`morphgl-mlp`). PyKEEN has
DistMult without constraint and regularizer (`pykeen-distmult`), the second one (`pykeen-mlp`: an embedding behind torch's Linear, the
same initial distributions), and DistMult as it is by default (`pykeen-default`: entities of length 1, a regularizer of relations).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = {"embedding": ["--model", "embedding"], "mlp": ["--model", "mlp", "--layers", 1, "--hidden", 128]}
WIDTH, NEGATIVES, BATCH, LR, FREQUENCY, PATIENCE = 128, 32, 512, 0.01, 5, 6
RANKS = {"mrr": "inverse_harmonic_mean_rank", "hits@1": "hits_at_1", "hits@10": "hits_at_10"}


def by_pykeen(kind, epochs, seed):
    import torch
    from pykeen.datasets import UMLS
    from pykeen.models import DistMult, ERModel
    from pykeen.nn import Embedding
    from pykeen.nn.representation import TransformedRepresentation
    from pykeen.pipeline import pipeline

    torch.manual_seed(seed)
    dataset = UMLS(create_inverse_triples=True)
    given = {"triples_factory": dataset.training, "loss": "BCEWithLogitsLoss", "random_seed": seed}
    if kind == "mlp":
        start = lambda x: torch.nn.init.uniform_(x, -(3 / WIDTH) ** 0.5, (3 / WIDTH) ** 0.5)
        embedding = Embedding(max_id=dataset.num_entities, shape=WIDTH, initializer=start)
        entities = TransformedRepresentation(torch.nn.Linear(WIDTH, WIDTH), max_id=dataset.num_entities, shape=(WIDTH,), base=embedding)
        relations = Embedding(max_id=dataset.training.num_relations, shape=WIDTH, initializer=torch.nn.init.ones_)
        model = ERModel(interaction="distmult", entity_representations=entities, relation_representations=relations, **given)
    else:
        own = {} if kind == "default" else {"entity_constrainer": None, "regularizer": None}
        model = DistMult(embedding_dim=WIDTH, **own, **given)
    metric = f"both.realistic.{RANKS['mrr']}"
    done = pipeline(dataset=dataset, model=model, training_loop="slcwa", negative_sampler="basic",
                    negative_sampler_kwargs={"num_negs_per_pos": NEGATIVES, "corruption_scheme": ("tail",)},
                    optimizer="Adam", optimizer_kwargs={"lr": LR}, evaluator_kwargs={"filtered": True}, stopper="early",
                    stopper_kwargs={"frequency": FREQUENCY, "patience": PATIENCE, "relative_delta": 0.0, "metric": metric},
                    training_kwargs={"num_epochs": epochs, "batch_size": BATCH, "use_tqdm": False},
                    evaluation_kwargs={"use_tqdm": False}, random_seed=seed, device="cpu")
    return {name: done.metric_results.get_metric(f"both.realistic.{metric}") for name, metric in RANKS.items()}


def by_morphgl(model, binary, dataset, directory, epochs, seed):
    run = os.path.join(directory, f"{model}-{seed}")

    def call(*words):
        done = subprocess.run([str(word) for word in (binary, *words, "--json", "--quiet")], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        return json.loads(done.stdout)

    call("train", dataset, "--task", "link", *MODELS[model], "--embedding", WIDTH, "--decoder", "distmult",
         "--negatives", NEGATIVES, "--batch-size", BATCH, "--lr", LR, "--epochs", epochs, "--evaluate-every", FREQUENCY,
         "--patience", FREQUENCY * PATIENCE, "--score", "filtered-mrr", "--seed", seed, "--profile-seconds", 0.1, "--run", run)
    scores = call("evaluate", run, *(word for name in RANKS for word in ("--score", f"filtered-{name}")))["test"]["scores"]
    return {name: scores[f"filtered-{name}"] for name in RANKS}


def folder():
    import pykeen.datasets.umls as umls

    return os.path.dirname(umls.__file__)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", default="morphgl", help="the morphgl binary")
    arguments.add_argument("--epochs", type=int, default=150)
    arguments.add_argument("--sides", default="morphgl-embedding,pykeen-distmult", help="and morphgl-mlp, pykeen-mlp, pykeen-default")
    arguments.add_argument("--triples", help="folder of train.txt, valid.txt and test.txt [default: that of pykeen]")
    arguments.add_argument("--seeds", type=int, default=5)
    given = arguments.parse_args()
    runs = {side: [] for side in given.sides.split(",")}
    with tempfile.TemporaryDirectory() as directory:
        dataset = os.path.join(directory, "umls")
        sides = {**{f"morphgl-{model}": lambda seed, model=model: by_morphgl(model, given.binary, dataset, directory, given.epochs, seed)
                    for model in MODELS},
                 **{f"pykeen-{kind}": lambda seed, kind=kind: by_pykeen(kind, given.epochs, seed)
                    for kind in ("mlp", "distmult", "default")}}
        if any(side.startswith("morphgl") for side in runs):
            subprocess.run([given.binary, "import", "triples", given.triples or folder(), "-o", dataset, "--symmetrise", "--quiet"],
                           check=True, stdout=subprocess.DEVNULL)
        for seed in range(given.seeds):
            for side, of_side in runs.items():
                of_side.append(sides[side](seed))
            print(seed, {side: of_side[-1] for side, of_side in runs.items()}, file=sys.stderr)
    result = {"epochs": given.epochs, "runs": runs, "test": {}}
    for side, of_side in runs.items():
        values = {name: [run[name] for run in of_side] for name in RANKS}
        deviation = statistics.stdev if given.seeds > 1 else lambda _: 0.0
        result["test"][side] = {name: {"mean": statistics.mean(of), "deviation": deviation(of)} for name, of in values.items()}
        print(side, {name: f"{of['mean']:.4f} ± {of['deviation']:.4f}" for name, of in result["test"][side].items()}, file=sys.stderr)
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
