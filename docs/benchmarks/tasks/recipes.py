"""What is trained on each set: the same in every system."""

# Two layers of GraphSAGE (mean), ReLU between, Adam; links: dot product, binary cross-entropy over the pairs and their negatives.
# Fanouts are equal where most nodes are seeds: PyG's layers all run over the edges that a node was sampled once, 10 of a seed, where
# DGL and MorphGL sample 5 anew for the farther hop of 10,5.
LINKS = {"task": "link", "hidden": 64, "embedding": 64, "dropout": 0.0, "fanouts": [10, 10], "batch_size": 1024, "negatives": 1,
         "lr": 0.003, "scores": ["roc-auc", "mrr"]}
LABELS = {"task": "multilabel", "hidden": 128, "dropout": 0.2, "fanouts": [15, 10], "batch_size": 512, "lr": 0.003,
          "scores": ["micro-f1", "roc-auc"]}
RECIPES = {
    "cora": {**LINKS, "batch_size": 512, "epochs": 20},
    "wiki-vote": {**LINKS, "batch_size": 2048, "epochs": 8},
    "ml-100k": {**LINKS, "batch_size": 2048, "epochs": 8},
    "blocks": {**LABELS, "epochs": 25},
    "blogcatalog": {**LABELS, "epochs": 20},
    "grid": {"task": "regress", "hidden": 128, "dropout": 0.0, "fanouts": [10, 10], "batch_size": 512, "lr": 0.003, "epochs": 25,
             "scores": ["rmse", "r2"]},
}
