"""The shortest honest demonstration of what there is: temperatures learned on a small long-tailed data set.

Made-up concepts, some frequent and some rare; an image and a text are two noisy views of one. Two small networks
learn to match them with `ISogCLRLoss`, and the report is what the paper is about: which temperatures the samples of
frequent and of rare concepts end up with. The demo on real images comes with the trainer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from isogclr.config import ISogCLRConfig
from isogclr.losses import ISogCLRLoss, SampleState

CONCEPTS = 200
INPUTS = 32
FEATURES = 32
BATCH = 128
LARGEST = 100  # samples of the most frequent concept; the rarest has one
TEST_SAMPLES = 400


@dataclass(frozen=True)
class Pairs:
    """Two views of each sample, [N, INPUTS], and the concept that it shows."""

    images: Tensor
    texts: Tensor
    concepts: Tensor


def long_tailed_pairs(generator: torch.Generator) -> tuple[Pairs, Pairs]:
    """Training pairs whose concepts fall off with their rank, and test pairs of the same concepts."""
    centres = torch.randn(CONCEPTS, INPUTS, generator=generator)
    counts = [int(LARGEST / (rank + 1) ** 0.75) for rank in range(CONCEPTS)]
    train = torch.repeat_interleave(torch.arange(CONCEPTS), torch.tensor(counts))
    test = torch.randint(0, CONCEPTS, (TEST_SAMPLES,), generator=generator)
    return _views(centres, train, generator), _views(centres, test, generator)


def _views(centres: Tensor, concepts: Tensor, generator: torch.Generator) -> Pairs:
    # What is special about a sample shows in both views; the rest is noise of each.
    special = 0.5 * torch.randn(len(concepts), INPUTS, generator=generator)
    images, texts = (
        centres[concepts] + special + 0.3 * torch.randn(len(concepts), INPUTS, generator=generator)
        for _ in range(2)
    )
    return Pairs(images, texts, concepts)


def tower() -> nn.Module:
    """A small encoder."""
    return nn.Sequential(nn.Linear(INPUTS, 128), nn.GELU(), nn.Linear(128, FEATURES))


def train(pairs: Pairs, config: ISogCLRConfig, epochs: int) -> tuple[nn.Module, nn.Module, SampleState]:
    """Both towers, and one row of state for each sample."""
    image_tower, text_tower, loss = tower(), tower(), ISogCLRLoss(config)
    optimizer = torch.optim.AdamW([*image_tower.parameters(), *text_tower.parameters()], lr=1e-3)
    table = loss.initial_state(len(pairs.concepts))
    for epoch in range(1, epochs + 1):
        order = torch.randperm(len(pairs.concepts))
        for rows in torch.split(order, BATCH):
            if len(rows) < BATCH:
                continue
            output = loss(
                normalize(image_tower(pairs.images[rows]), dim=1),
                normalize(text_tower(pairs.texts[rows]), dim=1),
                rows=rows,
                state=table.take(rows),
            )
            optimizer.zero_grad()
            output.loss.backward()
            optimizer.step()
            assert output.state is not None
            table.put(rows, output.state)
        if epoch % max(1, epochs // 8) == 0:
            found = loss.statistics(output)
            print(
                f"  epoch {epoch:3d}   objective {found['objective']:8.4f}   "
                f"image τ {found['image_temperature']:.4f}   text τ {found['text_temperature']:.4f}"
            )
    return image_tower, text_tower, table


@torch.no_grad()
def recall_at_1(image_tower: nn.Module, text_tower: nn.Module, pairs: Pairs) -> float:
    """Share of test images whose nearest text is their own."""
    images = normalize(image_tower(pairs.images), dim=1)
    texts = normalize(text_tower(pairs.texts), dim=1)
    nearest = (images @ texts.T).argmax(dim=1)
    return float((nearest == torch.arange(len(nearest))).float().mean())


def run_demo(epochs: int, seed: int) -> None:
    """Train and print; a few seconds."""
    torch.manual_seed(seed)
    train_pairs, test_pairs = long_tailed_pairs(torch.Generator().manual_seed(seed))
    config = ISogCLRConfig(rho=1.5, temperature_init=0.05, temperature_rate=0.003, normalized_weights=True)
    counts = torch.bincount(train_pairs.concepts, minlength=CONCEPTS)
    print(
        f"iSogCLR on {len(train_pairs.concepts)} made-up pairs of {CONCEPTS} concepts, "
        f"{int(counts.max())} to {int(counts.min())} pairs each\n"
    )
    image_tower, text_tower, table = train(train_pairs, config, epochs)
    recall = recall_at_1(image_tower, text_tower, test_pairs)
    print(f"\nheld-out pairs, image → text R@1: {100 * recall:.1f} % (chance {100 / TEST_SAMPLES:.2f} %)\n")
    print("temperatures learned, by how frequent a sample's concept is:\n")
    print("  pairs of the concept   samples   mean image τ   mean text τ")
    frequency = counts[train_pairs.concepts]
    for low, high in ((1, 2), (3, 5), (6, 15), (16, LARGEST)):
        member = (frequency >= low) & (frequency <= high) & (table.visits > 0)
        image, text = (table.columns[f"{direction}_temperature"][member].mean() for direction in ("image", "text"))
        print(f"  {low:>6} to {high:<12}   {int(member.sum()):>7}   {image:>12.4f}   {text:>11.4f}")
