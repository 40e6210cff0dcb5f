"""Whether everything that a commit would hold is finite: weights, buffers, optimizer, state that all samples share.

A row of the store needs no look: a loss keeps the old row where the new one is not finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Finiteness:
    """Looks at the content of a checkpoint before it is one.

    Args:
        model: before a checkpoint is loaded into it. Buffers that are not finite by design, such as a mask of −inf,
            are no fault later.
    """

    def __init__(self, model: nn.Module) -> None:
        buffers = {name for name, _ in model.named_buffers()}
        self._by_design = {name for name in not_finite(model.state_dict()) if name in buffers}

    def broken(self, trained: Mapping[str, Any]) -> list[str]:
        """Names of tensors that are not finite. Waits for the device.

        Args:
            trained: the checkpoint's `state_dict`, `optimizer` and so on.
        """
        weights = [name for name in not_finite(trained["state_dict"]) if name not in self._by_design]
        return weights + not_finite({name: value for name, value in trained.items() if name != "state_dict"})


@torch.no_grad()
def not_finite(content: Any) -> list[str]:
    """The places of tensors with a value that is not finite, within dicts and lists. One wait for each device."""
    by_device: dict[torch.device, list[tuple[str, Tensor]]] = {}
    for name, value in _tensors(content, ""):
        by_device.setdefault(value.device, []).append((name, torch.isfinite(value).all()))
    found = []
    for checked in by_device.values():
        flags = torch.stack([flag for _, flag in checked]).tolist()
        found += [name for (name, _), is_finite in zip(checked, flags, strict=True) if not is_finite]
    return found


def _tensors(content: Any, where: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(content, Tensor):
        if content.is_floating_point():
            yield where, content
    elif isinstance(content, Mapping):
        for name, value in content.items():
            yield from _tensors(value, f"{where}/{name}" if where else str(name))
    elif isinstance(content, list | tuple):
        for number, value in enumerate(content):
            yield from _tensors(value, f"{where}/{number}")
