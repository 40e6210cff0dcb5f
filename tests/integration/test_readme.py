"""The code in the README runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

README = Path(__file__).resolve().parents[2] / "README.md"


class Model(nn.Module):
    """What open_clip's models give: unit features and a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(6, 16), nn.Linear(6, 16)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return normalize(self.image(images), dim=1), normalize(self.text(texts), dim=1), self.logit_scale.exp()


@pytest.mark.filterwarnings("ignore::isogclr.losses.isogclr.RhoWarning")
def test_the_training_loop_runs_and_learns() -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 1
    torch.manual_seed(0)
    model = Model()
    pairs = torch.randn(24, 2, 6)
    pairs[:, 1] = pairs[:, 0]
    orders = [torch.randperm(24)[:16] for _ in range(300)]
    names = {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.02),
        "loader": [(pairs[rows, 0], pairs[rows, 1], rows) for rows in orders],
    }
    exec(blocks[0], names)
    table = names["table"]
    assert torch.equal(table.visits[:24], torch.bincount(torch.cat(orders), minlength=24))
    assert (table.columns["image_temperature"][:24] > 0).all()
    image, text, _ = model(pairs[:, 0], pairs[:, 1])
    assert ((image @ text.T).argmax(dim=1) == torch.arange(24)).float().mean() > 0.8
