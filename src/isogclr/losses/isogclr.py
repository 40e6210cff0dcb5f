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
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState
from isogclr.losses.moving_average import Anchors, MovingAverageLoss, Step, mean_where, total

QUANTILES = (0.05, 0.5, 0.95)


class RhoWarning(UserWarning):
    """ρ is so large that the KL constraint can never bind in a batch of this size."""


class ISogCLRLoss(MovingAverageLoss):
    """Algorithm 2 of the paper, steps 4 to 11: one temperature for each image and one for each text.

    With one direction it is algorithm 1, for two views of each picture: one temperature for each picture.
    The differences to the paper, and why, stand in `docs/method.md`.

    Args:
        config: see `ISogCLRConfig`.
        ranks, directions: see `MovingAverageLoss`.
    """

    name = "isogclr"
    config_class = ISogCLRConfig
    config: ISogCLRConfig

    def __init__(
        self,
        config: ISogCLRConfig | None = None,
        ranks: Ranks | None = None,
        directions: tuple[str, ...] = ContrastiveLoss.directions,
    ) -> None:
        config = ISogCLRConfig() if config is None else config
        check_kind(config, ISogCLRConfig)
        super().__init__(config, ranks, directions)
        self._rate_at = config.temperature_rate_at()
        self._rho_checked_for: int | None = None
        learned = ["temperature", "momentum"]
        if config.temperature_optimizer == "adam":
            learned.append("second_moment")
        if config.temperature_scope == "global":
            self.state_columns = tuple(f"{direction}_log_mean" for direction in directions)
            self.shared_columns = tuple(learned)
        else:
            learned.insert(1, "log_mean")
            self.state_columns = tuple(f"{direction}_{name}" for direction in directions for name in learned)
            if config.temperature_start == "typical":
                self.shared_columns = tuple(f"{direction}_temperature" for direction in directions)

    @property
    def temperature_bounds(self) -> tuple[float, float]:
        """See `ContrastiveLoss.temperature_bounds`."""
        return self.config.temperature_min, self.config.temperature_max

    def _check_global_batch(self, anchors: int, views: int) -> None:
        if anchors == self._rho_checked_for:
            return
        self._rho_checked_for = anchors
        limit = math.log(anchors - views)
        if self.config.rho >= limit:
            warnings.warn(
                f"rho is {self.config.rho:g}, but in a batch of {anchors} the KL divergence can not exceed "
                f"log({anchors} - {views}) = {limit:.3f}: within a batch the constraint never binds, and "
                f"temperatures fall towards their lower bound. Choose rho below {limit:.3f}, or a larger batch",
                RhoWarning,
                stacklevel=5,
            )

    def _temperatures(self, state: SampleState, shared: SampleState | None) -> list[Tensor]:
        if self.config.temperature_scope == "global":
            assert shared is not None
            return [self._resolve(shared, "temperature", None).expand(len(state))] * len(self.directions)
        return [self._resolve(state, f"{direction}_temperature", shared) for direction in self.directions]

    def _resolve(self, state: SampleState, column: str, typical: SampleState | None) -> Tensor:
        """A row of zeros is a sample that was never visited: it starts at a typical or at the initial value."""
        start: Tensor | float = self.config.temperature_init
        if typical is not None:
            start = self._resolve(typical, column, None)
        return torch.where(state.visits > 0, state.columns[column], start)

    def _update(self, step: Step) -> LossOutput:
        gradients = {direction: self._gradient(anchors) for direction, anchors in step.anchors.items()}
        details = {f"{direction}_gradient": gradient for direction, gradient in gradients.items()}
        columns: dict[str, Tensor] = {}
        if self.config.temperature_scope == "global":
            shared: SampleState | None = self._shared_update(step, gradients)
            assert shared is not None
            one = shared.columns["temperature"].expand(len(step.state))
            temperatures = dict.fromkeys(self.directions, one)
        else:
            for direction, anchors in step.anchors.items():
                columns |= self._learned(
                    direction, anchors.temperature, gradients[direction], step.state, step.number
                )
            temperatures = {direction: columns[f"{direction}_temperature"] for direction in self.directions}
            shared = self._typical(step, temperatures)
        for direction, anchors in step.anchors.items():
            details[f"{direction}_temperature"] = temperatures[direction]
            columns[f"{direction}_log_mean"] = self._stored_mean(anchors, temperatures[direction])
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

    def _typical(self, step: Step, temperatures: dict[str, Tensor]) -> SampleState | None:
        """Where samples that come for the first time start in the next step; None if that is fixed."""
        if step.shared is None:
            return None
        usable = step.active
        for temperature in temperatures.values():
            usable = usable & torch.isfinite(temperature)
        found = objective.log_sum_of_temperatures(tuple(temperatures.values()), usable)
        *sums, count = step.ranks.sum(found)
        values = {
            name: torch.where(count > 0, (one / count).exp(), old)
            for one, (name, old) in zip(sums, step.shared.columns.items(), strict=True)
        }
        return SampleState(values, step.shared.visits + (count > 0))

    def _shared_update(self, step: Step, gradients: dict[str, Tensor]) -> SampleState:
        """RGCL-g: one temperature; its G is the mean over all samples of all ranks and all directions."""
        assert step.shared is not None
        own = torch.where(step.active, total(gradients.values()), 0.0).sum()
        totals = step.ranks.sum(torch.stack([own, float(len(gradients)) * step.active.sum()]))
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
        values = total(details[f"{direction}_objective"] for direction in self.directions)
        result["objective"] = mean_where(updated, values)
        for direction in self.directions:
            temperature, name = details[f"{direction}_temperature"], f"{direction}.temperature"
            result[f"{name}.mean"] = mean_where(updated, temperature)
            # One NaN more, so that a rank without pairs has something to take the quantiles of.
            known = pad(torch.where(updated, temperature, math.nan), (0, 1), value=math.nan)
            for quantile in QUANTILES:
                result[f"{name}.q{round(100 * quantile):02d}"] = torch.nanquantile(known, quantile)
            result[f"{name}.at_minimum"] = mean_where(updated, temperature <= config.temperature_min)
            result[f"{name}.at_maximum"] = mean_where(updated, temperature >= config.temperature_max)
            result[f"{name}.gradient"] = mean_where(updated, details[f"{direction}_gradient"].abs())
        return result
