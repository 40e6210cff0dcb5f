"""iSogCLR: the robust global contrastive loss with a learned temperature for every sample (ICML 2023)."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor
from torch.nn.functional import pad

from isogclr import objective
from isogclr.config import ISogCLRConfig, check_kind
from isogclr.distributed import Ranks
from isogclr.losses.base import LossOutput, SampleState
from isogclr.losses.kernel import Directions
from isogclr.losses.moving_average import DIRECTIONS, Anchors, MovingAverageLoss, Step, mean_where

QUANTILES = (0.05, 0.5, 0.95)


class RhoWarning(UserWarning):
    """ρ is so large that the KL constraint can never bind in a batch of this size."""


class ISogCLRLoss(MovingAverageLoss):
    """Algorithm 2 of the paper, steps 4 to 11: one temperature for each image and one for each text.

    The differences to the paper, and why, stand in `docs/method.md`.

    Args:
        config: see `ISogCLRConfig`.
        ranks: see `MovingAverageLoss`.
    """

    name = "isogclr"
    config: ISogCLRConfig

    def __init__(self, config: ISogCLRConfig | None = None, ranks: Ranks | None = None) -> None:
        config = ISogCLRConfig() if config is None else config
        check_kind(config, ISogCLRConfig)
        super().__init__(config, ranks)
        self._rate_at = config.temperature_rate_at()
        self._rho_checked_for: int | None = None
        learned = ["temperature", "momentum"]
        if config.temperature_optimizer == "adam":
            learned.append("second_moment")
        if config.temperature_scope == "global":
            self.state_columns = tuple(f"{direction}_log_mean" for direction in DIRECTIONS)
            self.shared_columns = tuple(learned)
        else:
            learned.insert(1, "log_mean")
            self.state_columns = tuple(f"{direction}_{name}" for direction in DIRECTIONS for name in learned)
            if config.temperature_start == "typical":
                self.shared_columns = tuple(f"{direction}_temperature" for direction in DIRECTIONS)

    def _check_global_batch(self, batch: int) -> None:
        if batch == self._rho_checked_for:
            return
        self._rho_checked_for = batch
        limit = math.log(batch - 1)
        if self.config.rho >= limit:
            warnings.warn(
                f"rho is {self.config.rho:g}, but in a batch of {batch} the KL divergence can not exceed "
                f"log({batch} - 1) = {limit:.3f}: within a batch the constraint never binds, and temperatures fall "
                f"towards their lower bound. Choose rho below {limit:.3f}, or a larger batch",
                RhoWarning,
                stacklevel=6,
            )

    def _temperatures(self, state: SampleState, shared: SampleState | None) -> Directions:
        if self.config.temperature_scope == "global":
            assert shared is not None
            one = self._resolve(shared, "temperature", None).expand(len(state))
            return Directions(one, one)
        return Directions(*(self._resolve(state, f"{direction}_temperature", shared) for direction in DIRECTIONS))

    def _resolve(self, state: SampleState, column: str, typical: SampleState | None) -> Tensor:
        """A row of zeros is a sample that was never visited: it starts at a typical or at the initial value."""
        start: Tensor | float = self.config.temperature_init
        if typical is not None:
            start = self._resolve(typical, column, None)
        return torch.where(state.visits > 0, state.columns[column], start)

    def _update(self, step: Step) -> LossOutput:
        gradient = Directions(self._gradient(step.image), self._gradient(step.text))
        columns: dict[str, Tensor] = {}
        details = {"image_gradient": gradient.image, "text_gradient": gradient.text}
        shared = None
        if self.config.temperature_scope == "global":
            shared = self._shared_update(step, gradient)
            new = shared.columns["temperature"].expand(step.pairs.own_rows.shape[0])
            temperatures = Directions(new, new)
        else:
            for direction, anchors, own in zip(DIRECTIONS, (step.image, step.text), gradient, strict=True):
                columns |= self._learned(direction, anchors.temperature, own, step.state, step.number)
            temperatures = Directions(columns["image_temperature"], columns["text_temperature"])
            shared = self._typical(step, temperatures)
        for direction, anchors, new in zip(DIRECTIONS, (step.image, step.text), temperatures, strict=True):
            details[f"{direction}_temperature"] = new
            columns[f"{direction}_log_mean"] = self._stored_mean(anchors, new)
            details[f"{direction}_objective"] = objective.robust_objective(
                anchors.temperature, anchors.log_mean, self.config.rho
            )
        return step.output(columns, shared, details)

    def _stored_mean(self, anchors: Anchors, new_temperature: Tensor) -> Tensor:
        """log s as the next visit finds it, [b]."""
        if not self.config.carry_mean:
            return anchors.log_mean
        return objective.carried_over(anchors.log_mean, anchors.mean_hardness, anchors.temperature, new_temperature)

    def _gradient(self, anchors: Anchors) -> Tensor:
        """G(τ_i), [b]."""
        normalized = self.config.normalized_weights
        hardness = anchors.mean_hardness if normalized else anchors.weighted_hardness
        return objective.temperature_gradient(
            hardness, anchors.temperature, anchors.log_mean, self.config.rho, self.config.gradient_limit
        )

    def _learned(
        self, direction: str, temperature: Tensor, gradient: Tensor, state: SampleState, step: float
    ) -> dict[str, Tensor]:
        """Steps 8 and 9: new temperature, momentum and, with Adam, second moment, as columns of the state."""
        config, prefix = self.config, f"{direction}_" if direction else ""
        rate, weight = self._rate_at(step), config.momentum_weight
        first = objective.momentum(state.columns[f"{prefix}momentum"], gradient, weight)
        columns, heading = {f"{prefix}momentum": first}, first
        if config.temperature_optimizer == "adam":
            second_weight = config.second_moment_weight
            second = objective.momentum(state.columns[f"{prefix}second_moment"], gradient.square(), second_weight)
            heading = objective.adam_direction(first, second, state.visits + 1, weight, second_weight)
            columns[f"{prefix}second_moment"] = second
        bounds = (config.temperature_min, config.temperature_max)
        if config.temperature_optimizer == "log":
            new = objective.relative_step(temperature, heading, rate, config.rho, *bounds)
        else:
            new = objective.projected_step(temperature, heading, rate, *bounds)
        columns[f"{prefix}temperature"] = new
        return columns

    def _typical(self, step: Step, temperatures: Directions) -> SampleState | None:
        """Where samples that come for the first time start in the next step; None if that is fixed."""
        if step.shared is None:
            return None
        usable = step.active & torch.isfinite(temperatures.image) & torch.isfinite(temperatures.text)
        *sums, count = step.ranks.sum(objective.log_sum_of_temperatures(temperatures, usable))
        values = {
            name: torch.where(count > 0, (total / count).exp(), old)
            for total, (name, old) in zip(sums, step.shared.columns.items(), strict=True)
        }
        return SampleState(values, step.shared.visits + (count > 0))

    def _shared_update(self, step: Step, gradient: Directions) -> SampleState:
        """RGCL-g: one temperature; its G is the mean over all anchors of all ranks and both directions."""
        assert step.shared is not None
        total = torch.where(step.active, gradient.image + gradient.text, 0.0).sum()
        totals = step.ranks.sum(torch.stack([total, 2.0 * step.active.sum()]))
        mean = (totals[0] / totals[1]).reshape(1)
        temperature = self._resolve(step.shared, "temperature", None)
        columns = self._learned("", temperature, mean, step.shared, step.number)
        updated = torch.isfinite(torch.stack([*columns.values()])).all(dim=0)
        values = {name: torch.where(updated, columns[name], old) for name, old in step.shared.columns.items()}
        return SampleState(values, step.shared.visits + updated)

    def statistics(self, output: LossOutput) -> dict[str, Tensor]:
        """See `ContrastiveLoss.statistics`; `objective` is the curve to look at, not the loss."""
        result, details, config = super().statistics(output), output.details, self.config
        updated = details["updated"]
        both = details["image_objective"] + details["text_objective"]
        result["objective"] = mean_where(updated, both)
        for direction in DIRECTIONS:
            temperature = details[f"{direction}_temperature"]
            result[f"{direction}_temperature"] = mean_where(updated, temperature)
            # One NaN more, so that a rank without pairs has something to take the quantiles of.
            known = pad(torch.where(updated, temperature, math.nan), (0, 1), value=math.nan)
            for quantile in QUANTILES:
                name = f"{direction}_temperature_q{round(100 * quantile):02d}"
                result[name] = torch.nanquantile(known, quantile)
            result[f"{direction}_at_min"] = mean_where(updated, temperature <= config.temperature_min)
            result[f"{direction}_at_max"] = mean_where(updated, temperature >= config.temperature_max)
            result[f"{direction}_abs_gradient"] = mean_where(updated, details[f"{direction}_gradient"].abs())
        return result
