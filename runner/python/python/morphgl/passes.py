"""Passes over a loader: which epoch and mini-batch is next, the order of the seeds, and the state that goes on from there."""

import hashlib
import operator

import numpy as np

from . import _morphgl

STATE_VERSION = 1
# What differs between two loaders is named as the argument that it comes from: these first, which others follow from, and seeds last.
FIRST = ("loader", "sampler")
SEEDS = ("input_nodes", "edge_label_index", "input_time")


class Passes:
    """What loaders do between epochs. Every pass is the next epoch; a loaded state is gone on with first.

    A loader sets `_count`, the mini-batches per epoch, `_sampler`, which draws positions of the seeds or is None, `_draws_seed`, whether its
    seed was drawn and not given, and gives `_draw_by(seed)`, which draws by another one, `_identity()`, all that its mini-batches depend
    on, and `_pass(epoch, first, order)`, a generator of the mini-batches of an epoch
    from index `first` on, whose seeds have the positions `order`, or None for the loader's own order.
    """

    # Epoch, index of its first mini-batch and drawn positions of the next pass; and the same of where the latest pass stands.
    _next = (0, 0, None)
    _stands = None
    _number = 0

    def __len__(self):
        """Mini-batches per epoch."""
        return self._count

    def set_epoch(self, epoch):
        """The next pass is epoch `epoch`, from its first mini-batch on."""
        self._begin_at(int(epoch), 0, None)

    def _begin_at(self, epoch, index, order):
        self._next, self._stands = (epoch, index, order), None
        # A pass that goes on no longer counts.
        self._number += 1

    def __iter__(self):
        epoch, first, order = self._next
        if order is None and self._sampler is not None:
            order = drawn(self._sampler, len(self.dataset))
        batches = self._pass(epoch, first, order)
        self._begin_at(epoch + 1, 0, None)
        self._stands = (epoch, first, order)
        return self._counted(batches, epoch, first, order, self._number)

    def _counted(self, batches, epoch, index, order, number):
        """The mini-batches, each of which is given when the state says so."""
        try:
            for batch in batches:
                index += 1
                if self._number == number:
                    self._stands = (epoch, index, order)
                yield batch
            if self._number == number:
                self._stands = None
        finally:
            batches.close()

    def state_dict(self):
        """Where the latest pass stands: plain numbers and text, with the `epoch` and the `index` of the next mini-batch.

        A loader of the same seeds and options, which draws by the state's `seed` if it was given none, goes on from there after
        :meth:`load_state_dict`, with the mini-batches that this one
        would give, bit for bit, whatever its `threads`, `prefetch` and `output`. A pass that has given its last mini-batch stands behind
        it until the loop ends; then the next epoch is next. With a torch sampler the state has the positions that the epoch's `order`
        drew; the orders of later epochs are the sampler's own.
        """
        epoch, index, order = self._stands or self._next
        state = {"version": STATE_VERSION, "epoch": epoch, "index": index, "loader": self._identity()}
        return state if order is None else {**state, "order": order.tolist()}

    def load_state_dict(self, state):
        """The next pass begins where `state`, of :meth:`state_dict`, stands; later ones are the next epochs."""
        if not isinstance(state, dict) or not {"version", "epoch", "index", "loader"} <= state.keys():
            raise ValueError("state: it is not what state_dict() of a loader returns")
        if state["version"] != STATE_VERSION:
            raise ValueError(f"state: its version is {state['version']}, and {STATE_VERSION} is read; make it by this version")
        ours, theirs = self._identity(), state["loader"]
        if self._draws_seed:
            ours["seed"] = theirs.get("seed")
        for name in sorted(ours.keys() | theirs.keys(), key=lambda name: (name not in FIRST, name in SEEDS, name)):
            one, other = ours.get(name), theirs.get(name)
            if one == other:
                continue
            if name in SEEDS:
                raise ValueError(f"state: {name} differs from that of the state's loader; give the same")
            raise ValueError(f"state: {name} is {other!r} of the state's loader and {one!r} of this one; give the same")
        order = state.get("order")
        if order is not None:
            order = checked(np.asarray(order, np.int64).reshape(-1), len(self.dataset))
        elif self._sampler is not None and state["index"]:
            raise ValueError("state: it lacks the order of its epoch, which a sampler drew")
        epoch, index = int(state["epoch"]), int(state["index"])
        count = self._batches_of(None if order is None else len(order))
        if epoch < 0 or not 0 <= index <= count:
            raise ValueError(f"state: mini-batch {index} of epoch {epoch}; an epoch has {count}")
        if self._draws_seed:
            self._draw_by(int(theirs["seed"]))
        self._begin_at(epoch, index, order)

    def _batches_of(self, seeds):
        """Mini-batches of so many seeds; of None, those of an epoch in the loader's own order."""
        if seeds is None:
            return self._count
        return seeds // self.batch_size if self.drop_last else -(-seeds // self.batch_size)


def digest(array):
    """A short text that tells arrays apart."""
    array = np.ascontiguousarray(array)
    return hashlib.blake2b(array.view(np.uint8).reshape(-1).data if array.size else b"", digest_size=16).hexdigest()


def order_of(seed, epoch, count):
    """The positions of a shuffled epoch's seeds in their order; int64. O(count)."""
    return np.asarray(_morphgl.epoch_order(seed, epoch, count)).astype(np.int64)


def positions(order, first, count):
    """Positions of `count` seeds from place `first` of an epoch's order on; int64, a copy."""
    return np.arange(first, first + count) if order is None else order[first:first + count].copy()


def checked_sampler(sampler, shuffle):
    """A sampler of positions, such as torch's, which draws the order of an epoch's seeds."""
    if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):
        raise TypeError(f"sampler: {type(sampler).__name__} is neither a name nor an iterable of positions with a length, as torch's samplers are")
    if shuffle:
        raise ValueError("shuffle: sampler draws the order of the seeds; give one of them")
    return sampler


def drawn(sampler, count):
    """The positions that a sampler draws for an epoch."""
    made = list(sampler)
    try:
        order = np.fromiter((operator.index(position) for position in made), np.int64, len(made))
    except TypeError:
        kind = type(made[0]).__name__
        raise TypeError(f"sampler: it gives {kind}, which is no position; give batch_size, and a sampler of single positions") from None
    return checked(order, count)


def checked(order, count):
    outside = order[(order < 0) | (order >= count)]
    if outside.size:
        raise ValueError(f"sampler: position {outside[0]} does not exist, there are {count} seeds; give one below that")
    return order
