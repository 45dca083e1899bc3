"""PyTorch Lightning trains by PyG's data modules with `morphgl.pyg.Sampler`, and by MorphGL's loaders. Skipped without it."""

import warnings

import numpy as np
import pytest

torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
lightning = pytest.importorskip("lightning.pytorch")
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.data.lightning import LightningLinkData, LightningNodeData  # noqa: E402
from torch_geometric.nn import GraphSAGE  # noqa: E402

from morphgl import NeighborLoader  # noqa: E402
from morphgl.pyg import Sampler  # noqa: E402

NODES, BATCH = 300, 64


def learnable():
    """A graph whose classes follow from features."""
    random = np.random.default_rng(1)
    x = torch.from_numpy(random.standard_normal((NODES, 8), dtype=np.float32))
    nodes = torch.arange(NODES)
    masks = {"train_mask": nodes < 200, "val_mask": (nodes >= 200) & (nodes < 250), "test_mask": nodes >= 250}
    return Data(x=x, y=(x[:, 0] > 0).long(), edge_index=torch.from_numpy(random.integers(0, NODES, (2, 2000))), **masks)


class Model(lightning.LightningModule):
    """Counts the seeds of training, and keeps the loss of each epoch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net, self.seeds, self.losses = GraphSAGE(8, 16, 2, 2), 0, []

    def outputs(self, batch):
        return self.net(batch.x, batch.edge_index)[: batch.batch_size]

    def training_step(self, batch, _):
        self.seeds += batch.batch_size
        loss = torch.nn.functional.cross_entropy(self.outputs(batch), batch.y[: batch.batch_size])
        self.log("loss", loss, batch_size=batch.batch_size, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, _):
        right = (self.outputs(batch).argmax(-1) == batch.y[: batch.batch_size]).float().mean()
        self.log("right", right, batch_size=batch.batch_size)

    def on_train_epoch_end(self):
        self.losses.append(float(self.trainer.callback_metrics["loss"]))

    def predict_step(self, batch, _):
        return batch.input_id

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.02)


def trained(*data):
    """A model after three epochs over a data module, or over loaders; and its trainer."""
    model = Model()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", **quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on numbers of workers
        trainer.fit(model, *data)
    assert model.seeds == 3 * 200
    assert model.losses[-1] < model.losses[0]
    assert trainer.callback_metrics["right"] > 0.6
    return model, trainer


def test_data_modules_take_the_sampler():
    data = learnable()
    module = LightningNodeData(data, node_sampler=Sampler(data, [5, 5]), batch_size=BATCH, num_workers=0)
    model, trainer = trained(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.cat(trainer.predict(model, module)).tolist() == list(range(NODES))


def test_links_take_the_sampler():
    data = learnable()
    edges = data.edge_index[:, :200]
    module = LightningLinkData(data, input_train_edges=edges, link_sampler=Sampler(data, [5, 5]), batch_size=BATCH, neg_sampling="binary")
    first = next(iter(module.train_dataloader()))
    assert first.n_id[first.edge_label_index[:, :BATCH]].tolist() == edges[:, first.input_id].tolist()
    assert first.edge_label.tolist() == [1] * BATCH + [0] * BATCH


def test_our_loaders_are_loaders():
    data = learnable()
    of = lambda mask, **options: NeighborLoader(data, [5, 5], batch_size=BATCH, input_nodes=mask, **options)
    trained(of(data.train_mask, shuffle=True), of(data.val_mask))
