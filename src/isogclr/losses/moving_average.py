"""The common course of SogCLR and iSogCLR: gather, statistics, moving average, gather, gradients, new state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import pad

from isogclr import objective
from isogclr.config import MovingAverageConfig
from isogclr.distributed import Ranks
from isogclr.errors import InputError
from isogclr.losses import kernel
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState, keep_in_graph
from isogclr.losses.inputs import check_features, check_rows, check_state
from isogclr.losses.kernel import Exponent, Kept, Pairs
from isogclr.losses.pairs import gather_pairs, gather_views, number_of_negatives, pair_share


@dataclass(frozen=True)
class Anchors:
    """The own samples as anchors of one direction, after the first pass. Shapes: [b].

    Two views of a picture are two anchors with one temperature and one s: its values are the means of theirs.
    """

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
        directions: two, or one for two views of the same pictures (algorithm 1 of the paper).
    """

    config: MovingAverageConfig

    def __init__(self, config: MovingAverageConfig, ranks: Ranks | None, directions: tuple[str, ...]) -> None:
        super().__init__()
        if len(directions) not in (1, 2):
            raise InputError(f"directions are {directions}, but must be one name or two")
        self.config = config
        self.ranks = ranks
        self.directions = directions
        self._gamma_at = config.gamma_at()

    @abstractmethod
    def _temperatures(self, state: SampleState, shared: SampleState | None) -> list[Tensor]:
        """τ of the local samples, [b] for each direction."""

    @abstractmethod
    def _update(self, step: Step) -> LossOutput:
        """New state from a step; `loss` of the output is the step's value without gradients."""

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
        """See `ContrastiveLoss.forward`."""
        validate = self.config.validate
        check_features(first, second, self.directions, values=validate)
        batch = first.shape[0]
        rows = check_rows(rows, batch, values=validate)
        state = check_state("state", state, self.state_columns, batch, values=validate)
        if self.shared_columns:
            shared = check_state("shared", shared, self.shared_columns, 1, values=validate)
        else:
            shared = None
        if self.ranks is None:
            self.ranks = Ranks()
        differentiable = torch.is_grad_enabled() and (first.requires_grad or second.requires_grad)
        with torch.no_grad(), kernel.exact_products(first.device.type):
            pairs = self._gather(self.ranks, first, second, rows)
            self._check_global_batch(pairs.all_rows.shape[0], pairs.views)
            current, kept = self._first_pass(pairs, state, shared, batch, step)
            gradients = self._second_pass(current, kept) if differentiable else None
            output = self._update(current)
        loss = output.loss
        if gradients is not None:
            loss = kernel.attach_gradients(loss, [first, second], [gradient[:batch] for gradient in gradients])
        return replace(output, loss=keep_in_graph(loss, logit_scale, logit_bias))

    def _gather(self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor) -> Pairs:
        if len(self.directions) == 1:
            return gather_views(ranks, first, second, rows)
        return gather_pairs(ranks, first, second, rows, mask_positives=True)

    def _check_global_batch(self, anchors: int, views: int) -> None:
        """A place for warnings that need the size of the global batch."""

    def _first_pass(
        self, pairs: Pairs, state: SampleState, shared: SampleState | None, batch: int, step: float
    ) -> tuple[Step, Kept]:
        assert self.ranks is not None
        like = pairs.own_features[0]
        state = _prepared(state, pairs.own_rows.shape[0] // pairs.views, like)
        shared = _prepared(shared, 1, like) if shared is not None else None
        temperatures = self._temperatures(state, shared)
        inverse = [_of_anchors(temperature.reciprocal(), pairs) for temperature in temperatures]
        found, kept = kernel.statistics(pairs, inverse, self.config.tile_rows)
        all_positive, all_negatives = pairs.positives(), number_of_negatives(pairs)
        positive, negatives = all_positive[pairs.own], all_negatives[pairs.own]
        log_count = _log_count(negatives, like.dtype)
        gamma, first_visit = self._gamma_at(step), state.visits == 0
        anchors, weight_sums = {}, []
        for direction, one, temperature in zip(self.directions, found, temperatures, strict=True):
            tau = _of_anchors(temperature, pairs)
            log_batch = (one.maximum - positive) / tau + one.log_sum - log_count
            log_estimate, mean_hardness = _of_samples(log_batch, one.mean - positive, pairs)
            previous = state.columns[f"{direction}_log_mean"]
            log_mean = objective.moving_average(previous, log_estimate, gamma, first_visit)
            weight_sum = torch.exp(log_estimate - log_mean)
            anchors[direction] = Anchors(temperature, log_mean, mean_hardness, weight_sum)
            weight_sums.append(
                weight_sum if pairs.views == 1 else torch.exp(log_batch - _of_anchors(log_mean, pairs))
            )
        current = Step(
            number=step,
            batch=batch,
            ranks=self.ranks,
            pairs=pairs,
            state=state,
            shared=shared,
            all_positive=all_positive,
            all_negatives=all_negatives,
            share=pair_share(pairs, self.ranks),
            anchors=anchors,
            weight_sums=weight_sums,
        )
        return current, kept

    def _second_pass(self, step: Step, kept: Kept) -> list[Tensor]:
        """∂(W · loss)/∂features of the two inputs: W times, because DDP averages over the ranks."""
        own = torch.stack(
            [
                _of_anchors(values, step.pairs)
                for anchors in step.anchors.values()
                for values in (anchors.temperature, anchors.log_mean)
            ]
        )  # [4, b], or [2, b] with one direction
        everyone = step.ranks.gather(own.t()).t() if step.ranks.size > 1 else own  # [4, B]
        log_count = _log_count(step.all_negatives, own.dtype)
        active = step.all_negatives > 0

        def exponent(tau: Tensor, log_mean: Tensor) -> Exponent:
            """Level c_i with w_ij = exp((S_ij − c_i)/τ_i); out of reach, so that w = 0, without negatives."""
            level = step.all_positive + tau * (log_mean + log_count)
            return Exponent(tau.reciprocal(), torch.where(active, level, -kernel.EXCLUDED))

        own_active = active[step.pairs.own]
        found = kernel.gradients(
            step.pairs,
            everyone=[exponent(*everyone[2 * number : 2 * number + 2]) for number in range(len(step.anchors))],
            positive_weight=[torch.where(own_active, weight_sum, 0.0) for weight_sum in step.weight_sums],
            kept=kept,
            tile_rows=self.config.tile_rows,
        )
        for gradient in found:
            gradient.mul_(step.share)
        return found if step.pairs.views == 1 else [*found[0].chunk(2)]

    def statistics(self, output: LossOutput) -> dict[str, Tensor]:
        """See `ContrastiveLoss.statistics`."""
        details, result = output.details, {}
        updated = details["updated"]
        for direction in self.directions:
            for quantity in ("log_mean", "weight_sum"):
                result[f"{direction}.{quantity}.mean"] = mean_where(updated, details[f"{direction}_{quantity}"])
        result["first_visits"] = mean_where(updated, details["first_visit"])
        result["kept_rows"] = details["not_finite"].sum()
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
    all_positive: Tensor  # similarity of all anchors with their partners, [B]
    all_negatives: Tensor  # |N_j| of all anchors, [B]
    share: Tensor | float  # W / B
    anchors: dict[str, Anchors]  # by direction
    weight_sums: list[Tensor]  # Σ_j w_ij of each own anchor, for each direction

    @property
    def active(self) -> Tensor:
        """[b]: samples that have negatives. The others contribute nothing and are not updated."""
        return self.all_negatives[self.pairs.own][: len(self.state)] > 0

    def value(self) -> Tensor:
        """mean_i Σ_j w_ij h_ij, summed over the directions, over the own anchors."""
        hardness = total(anchors.weighted_hardness for anchors in self.anchors.values())
        return torch.where(self.active, hardness, 0.0).sum() * (self.share * self.pairs.views)

    def output(
        self, columns: dict[str, Tensor], shared: SampleState | None, details: dict[str, Tensor]
    ) -> LossOutput:
        """New columns where they are finite and the sample has negatives, the old ones elsewhere."""
        new = torch.stack([*columns.values()])  # [C, b]
        old = torch.stack([self.state.columns[name] for name in columns])
        finite, active = torch.isfinite(new).all(dim=0), self.active
        updated = active & finite
        chosen = torch.where(updated, new, old)[:, : self.batch]
        details = {
            **details,
            "first_visit": self.state.visits == 0,
            "updated": updated,
            "not_finite": active & ~finite,
        }
        for direction, anchors in self.anchors.items():
            details[f"{direction}_log_mean"] = anchors.log_mean
            details[f"{direction}_weight_sum"] = anchors.weight_sum
        return LossOutput(
            loss=self.value(),
            state=SampleState(dict(zip(columns, chosen, strict=True)), (self.state.visits + updated)[: self.batch]),
            shared=shared,
            details={name: value[: self.batch] for name, value in details.items()},
        )


def _of_anchors(values: Tensor, pairs: Pairs) -> Tensor:
    """What belongs to the own samples, for each of their anchors in a direction."""
    return values if pairs.views == 1 else torch.cat([values, values])


def _of_samples(log_batch: Tensor, mean_hardness: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """log g and the mean hardness under it of the own samples, from those of their anchors in a direction."""
    if pairs.views == 1:
        return log_batch, mean_hardness
    return objective.mean_of_views(log_batch.view(2, -1), mean_hardness.view(2, -1))


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


def total(values: Iterable[Tensor]) -> Tensor:
    """Their sum, in their order."""
    return reduce(torch.add, values)
