"""Configurations of the losses: frozen, validated once, every problem reported together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from isogclr.errors import ConfigError
from isogclr.schedules import Constant, CosineDecay, Schedule

# Step of τ when none is given. 0.03 is the recipe of the authors' code. One Adam step is about η whatever G is,
# so it needs a value small against τ itself. In log τ, 1 is a Newton step and 0.2 averages over some visits.
DEFAULT_TEMPERATURE_RATES = {"momentum": 0.03, "adam": 0.001, "log": 0.2}


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
class MovingAverageConfig:
    """What SogCLR and iSogCLR share.

    Args:
        gamma: weight of the batch estimate in the moving average s (the paper's β_0); 1 keeps no memory.
        gamma_schedule: `constant`, or `cosine`: from 1 to `gamma` over `gamma_decay_steps`.
        gamma_decay_steps: length of the cosine; usually half of the run.
        tile_rows: anchors that the kernel holds at a time; None chooses from the batch.
        validate: check the values of features and rows in every call. It synchronises with the device.
    """

    gamma: float = 0.8
    gamma_schedule: Literal["constant", "cosine"] = "constant"
    gamma_decay_steps: int | None = None
    tile_rows: int | None = None
    validate: bool = False

    def __post_init__(self) -> None:
        problems = _Problems()
        self._check(problems)
        problems.finish()

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
    """SogCLR: the moving average, with one fixed temperature.

    Args:
        gamma, gamma_schedule, gamma_decay_steps, tile_rows, validate: see `MovingAverageConfig`.
        temperature: τ of every anchor.
    """

    temperature: float = 0.01

    def _check(self, problems: _Problems) -> None:
        super()._check(problems)
        problems.positive("temperature", self.temperature)


@dataclass(frozen=True)
class ISogCLRConfig(MovingAverageConfig):
    """iSogCLR: the moving average, and a temperature that is learned.

    Args:
        gamma, gamma_schedule, gamma_decay_steps, tile_rows, validate: see `MovingAverageConfig`.
        rho: radius of the KL ball around uniform weights; from log(batch − 1) on it never binds within a batch.
        temperature_init: τ of a sample that was never visited.
        temperature_start: `fixed`: every sample starts at `temperature_init`; `typical`: those of the first step
            do, and later ones at the geometric mean of the temperatures of the last step.
        temperature_min: lower bound τ_0, also the weight of the KL term in the primal problem.
        temperature_max: upper bound.
        temperature_rate: step size η; None takes 0.03 with `momentum`, 0.001 with `adam`, 0.2 with `log`.
        temperature_optimizer: `momentum` (the paper), `adam` with bias correction by a sample's visits, or `log`:
            steps of log τ, whose size does not depend on the scale of τ.
        momentum_weight: weight β_1 of the new gradient in the momentum.
        second_moment_weight: weight β_2 of the new squared gradient (`adam` only).
        gradient_limit: bound of |G(τ)|.
        normalized_weights: weights in G(τ) that sum to 1, whatever the age of s.
        carry_mean: change s with τ, so that it belongs to the new temperature.
        temperature_scope: `individual`, or `global`: one τ for all samples and both directions (RGCL-g).
    """

    rho: float = 6.0
    temperature_init: float = 0.01
    temperature_start: Literal["fixed", "typical"] = "fixed"
    temperature_min: float = 0.005
    temperature_max: float = 1.0
    temperature_rate: float | None = None
    temperature_optimizer: Literal["momentum", "adam", "log"] = "momentum"
    momentum_weight: float = 0.9
    second_moment_weight: float = 0.001
    gradient_limit: float = 5.0
    normalized_weights: bool = False
    carry_mean: bool = False
    temperature_scope: Literal["individual", "global"] = "individual"

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


# `paper` is the recipe of the authors' code; `recommended` is what the small runs of docs/study.md point to.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {},
    "recommended": {
        "gamma": 1.0,
        "rho": 2.0,
        "temperature_init": 0.05,
        "temperature_optimizer": "log",
        "normalized_weights": True,
        "carry_mean": True,
    },
}


@dataclass(frozen=True)
class CyCLIPConfig:
    """CyCLIP (Goel et al. 2022): CLIP and two consistency terms.

    Args:
        in_modal_weight: weight of Σ (⟨I_j, I_k⟩ − ⟨T_j, T_k⟩)² / B.
        cross_modal_weight: weight of Σ (⟨I_j, T_k⟩ − ⟨I_k, T_j⟩)² / B.
        tile_rows: anchors that the kernel holds at a time; None chooses from the batch.
        validate: check the values of the features in every call. It synchronises with the device.
    """

    in_modal_weight: float = 0.25
    cross_modal_weight: float = 0.25
    tile_rows: int | None = None
    validate: bool = False

    def __post_init__(self) -> None:
        problems = _Problems()
        for name in ("in_modal_weight", "cross_modal_weight"):
            problems.not_negative(name, getattr(self, name))
        _check_tile_rows(problems, self.tile_rows)
        problems.finish()


def _check_tile_rows(problems: _Problems, tile_rows: object) -> None:
    if tile_rows is not None:
        problems.positive_count("tile_rows", tile_rows, "a whole number above 0, or None")


def check_kind(config: object, expected: type) -> None:
    """A loss takes its own configuration."""
    if not isinstance(config, expected):
        raise ConfigError([f"config is a {type(config).__name__}, but must be a {expected.__name__}"])
