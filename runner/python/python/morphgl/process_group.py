"""Ranks of a process group of torch.distributed, which train together."""

import datetime
import json
import os
import pathlib
import socket
import warnings

import torch
import torch.distributed as dist


def ranks_of(process_group):
    """The :class:`ProcessGroup` of a group of torch's, None for none."""
    if process_group is None:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            warnings.warn(f"torch.distributed has {dist.get_world_size()} processes, and this one trains alone; for all of them together "
                          "give process_group=torch.distributed.group.WORLD", stacklevel=4)
        return None
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError("process_group: torch.distributed is not initialized; call torch.distributed.init_process_group() in processes "
                         "that torchrun starts")
    return ProcessGroup(process_group)


# The gloo groups of earlier runs, by the default group, members and limit of waits: some versions of torch give a new group of the same
# members an earlier one's name, and connect it wrongly.
MADE = {}


class ProcessGroup:
    """Collectives of the processes of `process_group` over a gloo group of their own, which all of them make together."""

    def __init__(self, process_group):
        self.members = dist.get_process_group_ranks(process_group)
        self.rank, self.size = dist.get_rank(process_group), len(self.members)
        self.host = socket.gethostname()
        self.group = None

    def open(self, seconds):
        """Connects the processes; each wait for others ends after so many seconds."""
        self.key = (dist.group.WORLD, *self.members, seconds)
        if self.key not in MADE:
            limit, is_part = datetime.timedelta(seconds=seconds), self.size < dist.get_world_size()
            MADE[self.key] = dist.new_group(self.members, timeout=limit, backend="gloo", use_local_synchronization=is_part)
        self.group = MADE[self.key]

    def close(self):
        """Disconnects this process: what the others wait for fails."""
        if self.group is not None:
            del MADE[self.key]
            dist.destroy_process_group(self.group)
            self.group = None

    def all_gather(self, mine):
        """The bytes of every process, by rank."""
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in self.members]
        dist.all_gather(lengths, torch.tensor([len(mine)]), group=self.group)
        longest = int(max(lengths))
        own = torch.zeros(longest, dtype=torch.uint8)
        if mine:
            own[:len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
        all_bytes = [torch.empty_like(own) for _ in self.members]
        if longest:
            dist.all_gather(all_bytes, own, group=self.group)
        return [part[:int(length)].numpy().tobytes() for part, length in zip(all_bytes, lengths)]

    def all_reduce(self, values):
        """Replaces the float32 of a bytearray by their sums over all processes, each added in the order of ranks: the same bits from every
        exchange that MorphGL has."""
        if not values:
            return
        values = torch.frombuffer(values, dtype=torch.float32)
        # The part that each process adds.
        parts = [len(values) * (rank + 1) // self.size - len(values) * rank // self.size for rank in range(self.size)]
        own = parts[self.rank]
        received = torch.empty(own * self.size)
        dist.all_to_all_single(received, values, [own] * self.size, parts, group=self.group)
        first, *others = received.view(self.size, own)
        for other in others:
            first += other
        dist.all_to_all_single(values, first.repeat(self.size), parts, [own] * self.size, group=self.group)

    def broadcast(self, tensors):
        """Makes the tensors of the first process those of all."""
        for tensor in tensors:
            # As bytes: gloo does not take every type.
            of_host = tensor.detach().to("cpu").reshape(-1)
            dist.broadcast(of_host.view(torch.uint8), self.members[0], group=self.group)
            tensor.copy_(of_host.view_as(tensor))

    def of_first(self, mine):
        """The bytes of the first process."""
        return self.all_gather(mine if self.rank == 0 else b"")[0]

    def share(self, document, path):
        """The run's document, and at `path` its file, if it has one, as the first process has them: the others leave out what was before a
        run was resumed."""
        content = self.of_first(pathlib.Path(path).read_bytes() if os.path.exists(path) else b"")
        if content and self.rank > 0:
            pathlib.Path(path).write_bytes(content)
        return json.loads(self.of_first(json.dumps(document).encode()))
