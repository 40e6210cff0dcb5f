"""Configurations of the losses: frozen, validated once, every problem reported together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

from isogclr.errors import ConfigError
from isogclr.schedules import Constant, CosineDecay, Schedule

# Step of τ when none is given. One Adam step is about η whatever G is, so it needs a value small against τ itself.
# In log τ, 1 is a Newton step and 0.2 averages over some visits. 0.03 is the recipe of the authors' code.
DEFAULT_TEMPERATURE_RATES = {"momentum": 0.03, "adam": 0.001, "log": 0.2}

GAMMA = "weight of the batch estimate in the moving average s (the paper's β_0); 1 keeps no memory"
VALIDATE = "check the values of the features in every call. It synchronises with the device"
TILE_ROWS = "anchors that the kernel holds at a time; None chooses from the batch"


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Problems(list[str]):
    """Collects what is wrong with a configuration."""

    def require(self, condition: bool, name: str, value: object, expected: str) -> None:
        if not condition:
            self.append(f"{name} is {value!r}, but must be {expected}")

    def positive(self, name: str, value: object) -> None:
        self.require(_is_number(value) and 0 < value < math.inf, name, value, "a finite number above 0")

    def not_negative(self, name: str, value: object) -> None:
        self.require(_is_number(value) and 0 <= value < math.inf, name, value, "a finite number, at least 0")

    def unit_interval(self, name: str, value: object) -> None:
        self.require(_is_number(value) and 0 < value <= 1, name, value, "a number in (0, 1]")

    def positive_count(self, name: str, value: object, expected: str) -> None:
        self.require(type(value) is int and value > 0, name, value, expected)

    def one_of(self, name: str, value: object, choices: tuple[str, ...]) -> None:
        self.require(value in choices, name, value, f"one of {choices}")

    def finish(self) -> None:
        if self:
            raise ConfigError(self)


@dataclass(frozen=True)
class LossConfig:
    """Base of the configurations: every field says in its metadata what it means, for readers and for the flags."""

    def __post_init__(self) -> None:
        problems = _Problems()
        self._check(problems)
        problems.finish()

    def _check(self, problems: _Problems) -> None:
        """Add what is wrong."""


def _option(default: Any, meaning: str) -> Any:
    """A field, its default and what it means. Of a default of None the meaning says what it does: "…; None …"."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class MovingAverageConfig(LossConfig):
    """What SogCLR and iSogCLR share."""

    gamma: float = _option(0.8, GAMMA)
    gamma_schedule: Literal["constant", "cosine"] = _option(
        "constant", "constant, or cosine: from 1 to gamma over gamma_decay_steps"
    )
    gamma_decay_steps: int | None = _option(
        None, "length of the cosine; usually half of the run; None for a constant γ"
    )
    tile_rows: int | None = _option(None, TILE_ROWS)
    validate: bool = _option(
        False, "check the values of features and rows in every call. It synchronises with the device"
    )

    def _check(self, problems: _Problems) -> None:
        problems.unit_interval("gamma", self.gamma)
        problems.one_of("gamma_schedule", self.gamma_schedule, ("constant", "cosine"))
        if self.gamma_schedule == "cosine" or self.gamma_decay_steps is not None:
            problems.positive_count(
                "gamma_decay_steps",
                self.gamma_decay_steps,
                "a whole number of steps with a cosine schedule, above 0",
            )
        _check_tile_rows(problems, self.tile_rows)

    def gamma_at(self) -> Schedule:
        """γ as a function of the step."""
        if self.gamma_schedule == "constant":
            return Constant(self.gamma)
        assert self.gamma_decay_steps is not None
        return CosineDecay(start=1.0, end=self.gamma, decay_steps=self.gamma_decay_steps)


@dataclass(frozen=True)
class SogCLRConfig(MovingAverageConfig):
    """SogCLR: the moving average, with one fixed temperature."""

    temperature: float = _option(0.01, "τ of every anchor")

    def _check(self, problems: _Problems) -> None:
        super()._check(problems)
        problems.positive("temperature", self.temperature)


@dataclass(frozen=True)
class ISogCLRConfig(MovingAverageConfig):
    """iSogCLR: the moving average, and a temperature that is learned.

    The defaults are what docs/study.md points to; `preset("paper")` is the recipe of the authors' code.
    """

    gamma: float = _option(1.0, GAMMA)
    rho: float = _option(
        2.0,
        "radius of the KL ball around uniform weights; from log(batch − 1) on it never binds within a batch",
    )
    temperature_init: float = _option(0.05, "τ of a sample that was never visited")
    temperature_start: Literal["fixed", "typical"] = _option(
        "fixed",
        "fixed: every sample starts at temperature_init; typical: those of the first step do, and later ones at "
        "the geometric mean of the temperatures of the last step",
    )
    temperature_min: float = _option(0.005, "lower bound τ_0, also the weight of the KL term in the primal problem")
    temperature_max: float = _option(1.0, "upper bound")
    temperature_rate: float | None = _option(
        None, "step size η; None takes 0.2 with log, 0.03 with momentum, 0.001 with adam"
    )
    temperature_optimizer: Literal["momentum", "adam", "log"] = _option(
        "log",
        "log: steps of log τ, whose size does not depend on the scale of τ; momentum (the paper); adam with bias "
        "correction by a sample's visits",
    )
    momentum_weight: float = _option(0.9, "weight β_1 of the new gradient in the momentum")
    second_moment_weight: float = _option(0.001, "weight β_2 of the new squared gradient (adam only)")
    gradient_limit: float = _option(5.0, "bound of |G(τ)|")
    normalized_weights: bool = _option(True, "weights in G(τ) that sum to 1, whatever the age of s")
    carry_mean: bool = _option(True, "change s with τ, so that it belongs to the new temperature")
    temperature_scope: Literal["individual", "global"] = _option(
        "individual", "individual, or global: one τ for all samples and both directions (RGCL-g)"
    )

    def _check(self, problems: _Problems) -> None:
        super()._check(problems)
        bounds = ("temperature_min", "temperature_init", "temperature_max")
        for name in ("rho", "gradient_limit", *bounds):
            problems.positive(name, getattr(self, name))
        for name in ("momentum_weight", "second_moment_weight"):
            problems.unit_interval(name, getattr(self, name))
        if self.temperature_rate is not None:
            problems.not_negative("temperature_rate", self.temperature_rate)
        values = tuple(getattr(self, name) for name in bounds)
        if all(_is_number(value) for value in values):
            ascending = values[0] <= values[1] <= values[2]
            problems.require(ascending, f"({', '.join(bounds)})", values, "in ascending order")
        problems.one_of("temperature_optimizer", self.temperature_optimizer, tuple(DEFAULT_TEMPERATURE_RATES))
        problems.one_of("temperature_scope", self.temperature_scope, ("individual", "global"))
        problems.one_of("temperature_start", self.temperature_start, ("fixed", "typical"))
        if self.temperature_scope == "global":
            problems.require(
                self.temperature_start == "fixed",
                "temperature_start",
                self.temperature_start,
                "fixed with a global temperature, which no sample has to start",
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> ISogCLRConfig:
        """The configuration of a name in `PRESETS`, with changes."""
        if name not in PRESETS:
            raise ConfigError([f"preset is {name!r}, but must be one of {tuple(PRESETS)}"])
        return cls(**{**PRESETS[name], **changes})

    def temperature_rate_at(self) -> Schedule:
        """η as a function of the step."""
        if self.temperature_rate is None:
            return Constant(DEFAULT_TEMPERATURE_RATES[self.temperature_optimizer])
        return Constant(self.temperature_rate)


# The first is what a configuration has without a preset; `paper` is the recipe of the authors' code.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "recommended": {},
    "paper": {
        "gamma": 0.8,
        "rho": 6.0,
        "temperature_init": 0.01,
        "temperature_optimizer": "momentum",
        "normalized_weights": False,
        "carry_mean": False,
    },
}
DEFAULT_PRESET = next(iter(PRESETS))


@dataclass(frozen=True)
class CyCLIPConfig(LossConfig):
    """CyCLIP (Goel et al. 2022): CLIP and two consistency terms."""

    in_modal_weight: float = _option(0.25, "weight of Σ (⟨I_j, I_k⟩ − ⟨T_j, T_k⟩)² / B")
    cross_modal_weight: float = _option(0.25, "weight of Σ (⟨I_j, T_k⟩ − ⟨I_k, T_j⟩)² / B")
    tile_rows: int | None = _option(None, TILE_ROWS)
    validate: bool = _option(False, VALIDATE)

    def _check(self, problems: _Problems) -> None:
        for name in ("in_modal_weight", "cross_modal_weight"):
            problems.not_negative(name, getattr(self, name))
        _check_tile_rows(problems, self.tile_rows)


@dataclass(frozen=True)
class SimCLRConfig(LossConfig):
    """SimCLR: NT-Xent over all views of a batch."""

    temperature: float = _option(0.1, "τ of every anchor; the paper tries 0.1, 0.3, 0.5, 0.7")
    tile_rows: int | None = _option(None, TILE_ROWS)
    validate: bool = _option(False, VALIDATE)

    def _check(self, problems: _Problems) -> None:
        problems.positive("temperature", self.temperature)
        _check_tile_rows(problems, self.tile_rows)


@dataclass(frozen=True)
class FlatCLRConfig(SimCLRConfig):
    """FlatCLR: SimCLR with the same weight for every anchor."""


@dataclass(frozen=True)
class SimCoConfig(LossConfig):
    """SimCo: two temperatures, without a queue."""

    temperature: float = _option(0.1, "τ_α, at which the negatives of an anchor are weighed against each other")
    anchor_temperature: float = _option(1.0, "τ_β, at which the anchors are weighed against each other")
    tile_rows: int | None = _option(None, TILE_ROWS)
    validate: bool = _option(False, VALIDATE)

    def _check(self, problems: _Problems) -> None:
        problems.positive("temperature", self.temperature)
        problems.positive("anchor_temperature", self.anchor_temperature)
        _check_tile_rows(problems, self.tile_rows)


@dataclass(frozen=True)
class TauSimCLRConfig(LossConfig):
    """TaU + SimCLR: the model puts out the temperature of each view."""

    temperature: float = _option(0.1, "t: the temperature of a view is t / sigmoid(e), e what the model puts out")
    tile_rows: int | None = _option(None, TILE_ROWS)
    validate: bool = _option(False, VALIDATE)

    def _check(self, problems: _Problems) -> None:
        problems.positive("temperature", self.temperature)
        _check_tile_rows(problems, self.tile_rows)


@dataclass(frozen=True)
class SpectralConfig(LossConfig):
    """Spectral contrastive loss."""

    squared_norm: float = _option(1.0, "μ: features are cut to the length √μ; its authors take 1 on CIFAR")
    validate: bool = _option(False, VALIDATE)

    def _check(self, problems: _Problems) -> None:
        problems.positive("squared_norm", self.squared_norm)


@dataclass(frozen=True)
class BarlowTwinsConfig(LossConfig):
    """Barlow Twins."""

    redundancy_weight: float = _option(0.0051, "weight λ of the squared correlations of different features")
    validate: bool = _option(False, VALIDATE)

    def _check(self, problems: _Problems) -> None:
        problems.not_negative("redundancy_weight", self.redundancy_weight)


@dataclass(frozen=True)
class VICRegConfig(LossConfig):
    """VICReg: invariance, variance, covariance."""

    invariance_weight: float = _option(25.0, "weight of the mean squared distance of the two sides")
    variance_weight: float = _option(25.0, "weight of how far deviations are below 1, mean over both sides")
    covariance_weight: float = _option(1.0, "weight of the squared covariances of different features, both sides")
    validate: bool = _option(False, VALIDATE)

    def _check(self, problems: _Problems) -> None:
        for name in ("invariance_weight", "variance_weight", "covariance_weight"):
            problems.not_negative(name, getattr(self, name))


# Of losses whose defaults belong to pairs of image and text: those for two views of a picture. iSogCLR's are the
# recipe of the authors' README; SogCLR's τ is the one of the paper's grid that SimCLR and FlatCLR start from too.
UNIMODAL_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "sogclr": {"temperature": 0.1},
    "isogclr": {
        "gamma": 0.8,
        "rho": 0.4,
        "temperature_init": 0.1,
        "temperature_min": 0.05,
        "temperature_max": 1.0,
        "temperature_optimizer": "momentum",
        "temperature_rate": 0.03,
        "momentum_weight": 0.5,
        "normalized_weights": False,
        "carry_mean": False,
    },
}


def unimodal_defaults(name: str) -> Mapping[str, Any]:
    """Options of a loss of two views that differ from the defaults of its configuration."""
    return UNIMODAL_PRESETS.get(name, {})


def _check_tile_rows(problems: _Problems, tile_rows: object) -> None:
    if tile_rows is not None:
        problems.positive_count("tile_rows", tile_rows, "a whole number above 0, or None")


def check_kind(config: object, expected: type) -> None:
    """A loss takes its own configuration."""
    if not isinstance(config, expected):
        raise ConfigError([f"config is a {type(config).__name__}, but must be a {expected.__name__}"])
