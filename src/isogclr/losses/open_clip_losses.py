"""open_clip's own losses behind our interface. Nothing of theirs is changed."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from isogclr.distributed import Ranks
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState
from isogclr.losses.inputs import check_logit_scale


class _OpenClipLoss(ContrastiveLoss):
    """Calls a loss of open_clip with what it takes.

    Args:
        options: passed on to open_clip's constructor, beside `rank` and `world_size`.
        ranks: the processes that share a batch; None takes those of the default group.
    """

    averages_over_ranks = False
    inner: nn.Module

    def __init__(self, ranks: Ranks | None = None, **options: object) -> None:
        super().__init__()
        ranks = ranks or Ranks()
        self._options = options
        self.inner = self._create(rank=ranks.rank, world_size=ranks.size, **options)

    def _create(self, **options: object) -> nn.Module:
        raise NotImplementedError

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        logit_scale: Tensor | None = None,
        logit_bias: Tensor | None = None,
        rows: Tensor | None = None,
        state: SampleState | None = None,
        shared: SampleState | None = None,
        step: float = 0,
    ) -> LossOutput:
        """See `ContrastiveLoss.forward`; samples and steps change nothing."""
        scale = check_logit_scale(self.name, logit_scale, values=False)
        return LossOutput(self.inner(first, second, scale, logit_bias))

    def described_options(self) -> dict[str, Any]:
        """See `ContrastiveLoss.described_options`."""
        return dict(self._options)


class ClipLoss(_OpenClipLoss):
    """`open_clip.loss.ClipLoss`. Without `gather_with_grad` its gradient on W ranks is 1/W of the global one."""

    name = "clip"

    def _create(self, **options: object) -> nn.Module:
        from open_clip.loss import ClipLoss as Original  # noqa: PLC0415 (open_clip takes seconds to import)

        return cast(nn.Module, Original(**options))


class SigLipLoss(_OpenClipLoss):
    """`open_clip.loss.SigLipLoss`."""

    name = "siglip"

    def _create(self, **options: object) -> nn.Module:
        from open_clip.loss import SigLipLoss as Original  # noqa: PLC0415

        return cast(nn.Module, Original(**options))
