"""SogCLR: the global contrastive loss with one fixed temperature (Yuan et al. 2022)."""

from __future__ import annotations

from isogclr.config import SogCLRConfig, check_kind
from isogclr.distributed import Ranks
from isogclr.losses.base import LossOutput, SampleState
from isogclr.losses.kernel import Directions
from isogclr.losses.moving_average import MovingAverageLoss, Step


class SogCLRLoss(MovingAverageLoss):
    """Gradient of eq. 14 with τ_i = τ: iSogCLR without steps 7 to 9.

    Args:
        config: see `SogCLRConfig`.
        ranks: see `MovingAverageLoss`.
    """

    name = "sogclr"
    state_columns = ("image_log_mean", "text_log_mean")
    config: SogCLRConfig

    def __init__(self, config: SogCLRConfig | None = None, ranks: Ranks | None = None) -> None:
        config = SogCLRConfig() if config is None else config
        check_kind(config, SogCLRConfig)
        super().__init__(config, ranks)

    def _temperatures(self, state: SampleState, shared: SampleState | None) -> Directions:
        temperature = state.columns["image_log_mean"].new_full((len(state),), self.config.temperature)
        return Directions(temperature, temperature)

    def _update(self, step: Step) -> LossOutput:
        columns = {"image_log_mean": step.image.log_mean, "text_log_mean": step.text.log_mean}
        return step.output(columns, shared=None, details={})
