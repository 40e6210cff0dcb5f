"""SogCLR: the global contrastive loss with one fixed temperature (Yuan et al. 2022)."""

from __future__ import annotations

from torch import Tensor

from isogclr.config import SogCLRConfig, check_kind
from isogclr.distributed import Ranks
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState
from isogclr.losses.moving_average import MovingAverageLoss, Step


class SogCLRLoss(MovingAverageLoss):
    """Gradient of eq. 14 with τ_i = τ: iSogCLR without steps 7 to 9.

    Args:
        config: see `SogCLRConfig`.
        ranks, directions: see `MovingAverageLoss`.
    """

    name = "sogclr"
    config_class = SogCLRConfig
    config: SogCLRConfig

    def __init__(
        self,
        config: SogCLRConfig | None = None,
        ranks: Ranks | None = None,
        directions: tuple[str, ...] = ContrastiveLoss.directions,
    ) -> None:
        config = SogCLRConfig() if config is None else config
        check_kind(config, SogCLRConfig)
        super().__init__(config, ranks, directions)
        self.state_columns = tuple(f"{direction}_log_mean" for direction in directions)

    def _temperatures(self, state: SampleState, shared: SampleState | None) -> list[Tensor]:
        temperature = state.columns[self.state_columns[0]].new_full((len(state),), self.config.temperature)
        return [temperature] * len(self.directions)

    def _update(self, step: Step) -> LossOutput:
        columns = {f"{direction}_log_mean": anchors.log_mean for direction, anchors in step.anchors.items()}
        return step.output(columns, shared=None, details={})
