"""What all ranks must agree on, and one message if they do not."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from isogclr.distributed import Messages
from isogclr.errors import TrainingError


def refuse_together(messages: Messages, problem: str | None) -> None:
    """All ranks call it; if one of them has a problem, all of them raise, with the problems of all."""
    problems = [one for one in messages.gather(problem) if one is not None]
    if problems:
        raise TrainingError("; ".join(dict.fromkeys(problems)))


def check_versions(messages: Messages, versions: Mapping[str, str]) -> None:
    """Refuse packages that differ between ranks: their results would, and nobody could tell why."""
    everyone = messages.gather([socket.gethostname(), dict(versions)])
    expected = everyone[0][1]
    differences = []
    for rank, (host, found) in enumerate(everyone):
        others = [
            f"{name} {found.get(name)} (not {expected[name]})"
            for name in expected
            if found.get(name) != expected[name]
        ]
        if others:
            differences.append(f"rank {rank} on {host} has {', '.join(others)}")
    if differences:
        raise TrainingError(
            f"found other package versions than those of rank 0 on {everyone[0][0]}: {'; '.join(differences)}; "
            "expected the same everywhere: use one environment on a shared file system, or install the same on "
            "each node"
        )
