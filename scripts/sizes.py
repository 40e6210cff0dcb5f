"""What data sets of some sizes cost in memory, on disk and on the wire: the tables of docs/slurm.md.

    python scripts/sizes.py

Computed from the formats themselves (docs/store_format.md, docs/index_format.md, isogclr/exchange.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from isogclr.config import ISogCLRConfig
from isogclr.exchange import pack
from isogclr.losses import ISogCLRLoss, SampleState
from isogclr.state import schema_for
from isogclr.state.layout import Header

KEY_BYTES = 9  # img2dataset: 000070042
KEY_END_BYTES = 4
SCHEMA = schema_for(ISogCLRLoss(ISogCLRConfig.preset("paper")).state_columns)


@dataclass(frozen=True)
class Case:
    """A data set and how it may be trained."""

    name: str
    samples: int
    batch: int
    ranks: int
    width: int  # of the features


CASES = (
    Case("CC3M", 2_900_000, 512, 8, 256),
    Case("CC12M", 12_400_000, 2048, 8, 512),
    Case("LAION-400M", 407_000_000, 32_768, 128, 512),
    Case("2 B", 2_000_000_000, 65_536, 512, 768),
)


def store_header(samples: int) -> Header:
    """The header of iSogCLR's store knows the sizes of its files."""
    return Header(SCHEMA, samples, "fingerprint")


def index_bytes(samples: int) -> int:
    """Keys and where they end; what there is for each shard does not count."""
    return samples * (KEY_BYTES + KEY_END_BYTES)


def exchange_bytes(ranks: int, local_batch: int) -> int:
    """That a rank receives in a step: one line per sample and one per rank, from every other rank."""
    return (ranks - 1) * (local_batch + 1) * line_bytes()


def line_bytes() -> int:
    """Of a sample in the exchange, as it is packed."""
    state = SampleState({name: torch.zeros(1) for name in SCHEMA.state_columns}, torch.zeros(1, dtype=torch.int64))
    packed = pack(torch.zeros(1, dtype=torch.int64), state, SCHEMA.state_columns)
    return packed.shape[1] * packed.element_size()


def feature_bytes(case: Case) -> int:
    """Features of both towers in fp32, which any contrastive loss gathers."""
    return (case.ranks - 1) * (case.batch // case.ranks) * 2 * case.width * 4


def shown(size: float) -> str:
    """With three digits at most."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            number = size / scale
            return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
    return f"{size:.0f} B"


def tables() -> str:
    """Both, in Markdown."""
    disk = [
        "| | samples | store, on each node | snapshot, in each commit | shard index |",
        "|---|---|---|---|---|",
    ]
    wire = [
        "| | global batch | ranks | exchange of state | features, for comparison |",
        "|---|---|---|---|---|",
    ]
    for case in CASES:
        header = store_header(case.samples)
        sizes = (header.live_bytes, header.snapshot_bytes, index_bytes(case.samples))
        disk.append(f"| {case.name} | {case.samples:,} | {' | '.join(map(shown, sizes))} |")
        received = (exchange_bytes(case.ranks, case.batch // case.ranks), feature_bytes(case))
        wire.append(f"| {case.name} | {case.batch:,} | {case.ranks} | {' | '.join(map(shown, received))} |")
    return "\n".join([*disk, "", *wire])


if __name__ == "__main__":
    print(tables())
