"""The common course of SogCLR and iSogCLR: gather, statistics, moving average, gather, gradients, new state."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from isogclr import objective
from isogclr.config import MovingAverageConfig
from isogclr.distributed import Ranks
from isogclr.losses import kernel
from isogclr.losses.base import ContrastiveLoss, Inputs, LossOutput, SampleState, keep_in_graph
from isogclr.losses.inputs import check_features, check_rows, check_state
from isogclr.losses.kernel import Directions, Exponent, Exponents, Kept, Pairs, Statistics
from isogclr.losses.pairs import gather_pairs, pair_share

DIRECTIONS = ("image", "text")


@dataclass(frozen=True)
class Anchors:
    """The own anchors of one direction after the first pass. Shapes: [b]."""

    temperature: Tensor  # as used in this step
    log_mean: Tensor  # log s after its update
    mean_hardness: Tensor  # Σ_j softmax_j(h_ij/τ_i) h_ij
    weight_sum: Tensor  # Σ_j w_ij = g_i / s_i

    @property
    def weighted_hardness(self) -> Tensor:
        """Σ_j w_ij h_ij"""
        return self.weight_sum * self.mean_hardness


class MovingAverageLoss(ContrastiveLoss):
    """Base of the losses that keep log s for each sample and direction.

    Args:
        config: its fields are documented in its class.
        ranks: the processes that share a batch; None takes those of the default group at the first call.
    """

    def __init__(self, config: MovingAverageConfig, ranks: Ranks | None = None) -> None:
        super().__init__()
        self.config = config
        self.ranks = ranks
        self._gamma_at = config.gamma_at()

    @abstractmethod
    def _temperatures(self, state: SampleState, shared: SampleState | None) -> Directions:
        """τ of the local samples, both directions, [b] each."""

    @abstractmethod
    def _update(self, step: Step) -> LossOutput:
        """New state from a step; `loss` of the output is the step's value without gradients."""

    def _evaluate(self, inputs: Inputs) -> LossOutput:
        features = [inputs.image_features, inputs.text_features]
        inputs = self._checked(inputs)
        if self.ranks is None:
            self.ranks = Ranks()
        differentiable = torch.is_grad_enabled() and any(feature.requires_grad for feature in features)
        with torch.no_grad(), kernel.exact_products(features[0].device.type):
            assert inputs.rows is not None
            pairs = gather_pairs(self.ranks, features[0], features[1], inputs.rows, mask_positives=True)
            self._check_global_batch(pairs.all_rows.shape[0])
            current, kept = self._first_pass(pairs, inputs)
            gradients = self._second_pass(current, kept) if differentiable else None
            output = self._update(current)
        loss = output.loss
        if gradients is not None:
            loss = kernel.attach_gradients(loss, features, [gradient[: current.batch] for gradient in gradients])
        return replace(output, loss=keep_in_graph(loss, inputs.logit_scale, inputs.logit_bias))

    def _checked(self, inputs: Inputs) -> Inputs:
        validate = self.config.validate
        check_features(inputs.image_features, inputs.text_features, values=validate)
        batch = inputs.image_features.shape[0]
        rows = check_rows(inputs.rows, batch, values=validate)
        state = check_state("state", inputs.state, self.state_columns, batch, values=validate)
        shared = None
        if self.shared_columns:
            shared = check_state("shared", inputs.shared, self.shared_columns, 1, values=validate)
        return inputs._replace(rows=rows, state=state, shared=shared)

    def _check_global_batch(self, batch: int) -> None:
        """A place for warnings that need the size of the global batch."""

    def _first_pass(self, pairs: Pairs, inputs: Inputs) -> tuple[Step, Kept]:
        assert self.ranks is not None
        assert inputs.state is not None
        dtype, capacity = pairs.own_image.dtype, pairs.own_image.shape[0]
        state = _prepared(inputs.state, capacity, pairs.own_image)
        shared = _prepared(inputs.shared, 1, pairs.own_image) if inputs.shared is not None else None
        temperature = self._temperatures(state, shared)
        inverse = Directions(temperature.image.reciprocal(), temperature.text.reciprocal())
        image, text, kept = kernel.statistics(pairs, inverse, self.config.tile_rows)
        all_positive = (pairs.all_image * pairs.all_text).sum(dim=1)  # S_jj [B], from the gathered features
        all_negatives = _number_of_negatives(pairs)
        positive, negatives = all_positive[pairs.own], all_negatives[pairs.own]
        log_count = _log_count(negatives, dtype)
        gamma, first = self._gamma_at(inputs.step), state.visits == 0

        def anchors(direction: str, found: Statistics, tau: Tensor) -> Anchors:
            log_batch = (found.maximum - positive) / tau + found.log_sum - log_count
            previous = state.columns[f"{direction}_log_mean"]
            log_mean = objective.moving_average(previous, log_batch, gamma, first)
            weight_sum = torch.exp(log_batch - log_mean)
            return Anchors(tau, log_mean, found.mean - positive, weight_sum)

        current = Step(
            number=inputs.step,
            batch=inputs.image_features.shape[0],
            ranks=self.ranks,
            pairs=pairs,
            state=state,
            shared=shared,
            all_positive=all_positive,
            all_negatives=all_negatives,
            share=pair_share(pairs, self.ranks),
            image=anchors("image", image, temperature.image),
            text=anchors("text", text, temperature.text),
        )
        return current, kept

    def _second_pass(self, step: Step, kept: Kept) -> Directions:
        """∂(W · loss)/∂features of the own pairs: W times, because DDP averages over the ranks."""
        own = torch.stack(
            [step.image.temperature, step.image.log_mean, step.text.temperature, step.text.log_mean]
        )  # [4, b]
        everyone = step.ranks.gather(own.t()).t() if step.ranks.size > 1 else own  # [4, B]
        log_count = _log_count(step.all_negatives, own.dtype)
        active = step.all_negatives > 0

        def exponent(tau: Tensor, log_mean: Tensor) -> Exponent:
            """Level c_i with w_ij = exp((S_ij − c_i)/τ_i); out of reach, so that w = 0, without negatives."""
            level = step.all_positive + tau * (log_mean + log_count)
            return Exponent(tau.reciprocal(), torch.where(active, level, -kernel.EXCLUDED))

        weight = torch.where(step.active, step.image.weight_sum + step.text.weight_sum, 0.0)
        found = kernel.gradients(
            step.pairs,
            everyone=Exponents(exponent(everyone[0], everyone[1]), exponent(everyone[2], everyone[3])),
            positive_weight=weight,
            kept=kept,
            tile_rows=self.config.tile_rows,
        )
        for gradient in found:
            gradient.mul_(step.share)
        return found

    def statistics(self, output: LossOutput) -> dict[str, Tensor]:
        """See `ContrastiveLoss.statistics`."""
        details, result = output.details, {}
        updated = details["updated"]
        for direction in DIRECTIONS:
            result[f"{direction}_log_mean"] = mean_where(updated, details[f"{direction}_log_mean"])
            result[f"{direction}_weight_sum"] = mean_where(updated, details[f"{direction}_weight_sum"])
        result["first_visits"] = mean_where(updated, details["first_visit"])
        result["rows_kept_not_finite"] = details["not_finite"].sum()
        return result


@dataclass(frozen=True)
class Step:
    """One evaluation, after its first pass. Tensors [b], padding included; `batch` of them are real."""

    number: float
    batch: int
    ranks: Ranks
    pairs: Pairs
    state: SampleState
    shared: SampleState | None
    all_positive: Tensor  # S_jj of all pairs, [B]
    all_negatives: Tensor  # |N_j| of all pairs, [B]
    share: Tensor | float  # W / B
    image: Anchors
    text: Anchors

    @property
    def active(self) -> Tensor:
        """[b]: anchors that have negatives. The others contribute nothing and are not updated."""
        return self.all_negatives[self.pairs.own] > 0

    def value(self) -> Tensor:
        """mean_i Σ_j w_ij h_ij, both directions summed, over the own anchors."""
        both = self.image.weighted_hardness + self.text.weighted_hardness
        return torch.where(self.active, both, 0.0).sum() * self.share

    def output(
        self, columns: dict[str, Tensor], shared: SampleState | None, details: dict[str, Tensor]
    ) -> LossOutput:
        """New columns where they are finite and the anchor has negatives, the old ones elsewhere."""
        new = torch.stack([*columns.values()])  # [C, b]
        old = torch.stack([self.state.columns[name] for name in columns])
        finite, active = torch.isfinite(new).all(dim=0), self.active
        updated = active & finite
        chosen = torch.where(updated, new, old)[:, : self.batch]
        first = self._first_occurrence()
        details = {
            **details,
            "first_visit": self.state.visits == 0,
            "updated": updated,
            "not_finite": active & ~finite,
        }
        for direction, anchors in zip(DIRECTIONS, (self.image, self.text), strict=True):
            details[f"{direction}_log_mean"] = anchors.log_mean
            details[f"{direction}_weight_sum"] = anchors.weight_sum
        return LossOutput(
            loss=self.value(),
            state=SampleState(dict(zip(columns, chosen, strict=True)), (self.state.visits + updated)[: self.batch]),
            write=updated[: self.batch] if first is None else first & updated[: self.batch],
            shared=shared,
            details={name: value[: self.batch] for name, value in details.items()},
        )

    def _first_occurrence(self) -> Tensor | None:
        """[batch]: which of the own pairs are the first of their sample; None if all are."""
        if self.pairs.positives_only:
            return None
        return objective.first_occurrence(self.pairs.all_rows)[self.pairs.own][: self.batch]


def _number_of_negatives(pairs: Pairs) -> Tensor:
    """|N_j| of all pairs, [B]."""
    if pairs.positives_only:
        return torch.full_like(pairs.all_rows, pairs.all_rows.shape[0] - 1)
    return objective.number_of_negatives(pairs.all_rows, pairs.all_rows)


def _log_count(negatives: Tensor, dtype: torch.dtype) -> Tensor:
    return negatives.clamp(min=1).to(dtype).log()


def _prepared(state: SampleState, samples: int, like: Tensor) -> SampleState:
    """The state on the device and in the dtype of the computation, filled up with samples never visited."""
    missing = samples - len(state)

    def prepare(value: Tensor, dtype: torch.dtype) -> Tensor:
        value = value.to(like.device, dtype, non_blocking=True)
        return pad(value, (0, missing)) if missing else value

    columns = {name: prepare(value, like.dtype) for name, value in state.columns.items()}
    return SampleState(columns, prepare(state.visits, torch.int64))


def mean_where(condition: Tensor, values: Tensor) -> Tensor:
    """Mean of the values where the condition holds; 0 if it holds nowhere."""
    return torch.where(condition, values, 0).sum() / condition.sum().clamp(min=1)
