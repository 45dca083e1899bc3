"""Devices that mini-batches are delivered to."""

import json
import re
import sys
import weakref

# By graph, what loaders of it found: by settings, the fastest route's operators and the seconds of all.
_FOUND = weakref.WeakKeyDictionary()


def found_routes(data, *settings):
    """A dictionary of what loaders of `data` have measured, and the key of these settings in it. Where `data` has no hash or no weak
    references, nothing is remembered."""
    try:
        found = _FOUND.setdefault(data, {})
    except TypeError:
        found = {}
    return found, json.dumps(settings, sort_keys=True)


def device_of(device):
    """The place that a device's name, torch's device or number is, such as "cuda:0"; None for host memory."""
    if device is None or str(device) == "cpu":
        return None
    name = f"cuda:{device}" if isinstance(device, int) and not isinstance(device, bool) else str(device)
    if name == "cuda":
        torch = sys.modules.get("torch")
        here = torch is not None and torch.cuda.is_available()
        name = f"cuda:{torch.cuda.current_device() if here else 0}"
    if re.fullmatch(r"cuda:[0-9]+", name) is None:
        raise ValueError(f'device: {device!r}; give "cuda", or "cuda:1" for the second one')
    return name


def refuse_on_device(device, output, **options):
    """Refuses what mini-batches on a device do not have, and what only they have."""
    ours = {name: options.pop(name) for name in ("route", "device_memory")}
    for name, value in ours.items():
        if device is None and value is not None:
            raise ValueError(f'{name}: mini-batches stay in host memory; give device="cuda", too')
    if device is None:
        return
    if output == "numpy":
        raise ValueError('output: numpy has no arrays on devices; give "dlpack", whose arrays have to_host()')
    cures = {
        "edge_ids": "edges have no numbers on a device; leave it out, or copy mini-batches of the host by batch.to(device)",
        "memory": "a graph that is left on disk is sampled and gathered in host memory; leave device out, or memory",
        "cache": "it is of a graph left on disk; leave it out, device_memory is what the device caches within",
    }
    for name, value in options.items():
        if value:
            raise NotImplementedError(f"{name}: {cures[name]}")
