"""W gloo ranks under DDP against one process with the same global batches: gradients, parameters and state."""

from __future__ import annotations

import time
import warnings

import pytest
import torch

from isogclr.distributed import Ranks
from isogclr.errors import InputError
from isogclr.losses import VIEW_DIRECTIONS, VIEW_LOSSES, ContrastiveLoss, loss_class, view_loss_class
from support.gloo import TIMEOUT_SECONDS, run_ranks
from support.two_towers import Case, Outcome, train

ISOGCLR_OPTIONS = {
    "paper": {},
    "tiles": {"tile_rows": 2},
    "cosine": {"gamma": 0.3, "gamma_schedule": "cosine", "gamma_decay_steps": 2},
    "adam": {"temperature_optimizer": "adam"},
    "normalized": {"normalized_weights": True},
    "log": {"temperature_optimizer": "log", "normalized_weights": True, "carry_mean": True},
    "typical": {"temperature_start": "typical", "temperature_optimizer": "log"},
    "global": {"temperature_scope": "global"},
    "global_adam": {"temperature_scope": "global", "temperature_optimizer": "adam"},
}
UNEVEN = {2: (5, 3), 4: (3, 1, 2, 2)}
ONE_EMPTY = {2: (8, 0), 4: (3, 3, 0, 2)}


# Of half-precision features the gradients are rounded too; a sum in another order may round to the next number.
TOLERANCES = {"fp32": 1e-5, "bf16": 8e-3, "fp16": 1e-3}


def create(case: Case) -> ContrastiveLoss:
    cls = (loss_class if len(case.directions) == 2 else view_loss_class)(case.loss)
    if cls.config_class is None:
        return cls(**case.options)
    loss_options = {} if len(case.directions) == 2 else {"directions": case.directions}
    return cls(cls.config_class(**case.options), **loss_options)


def run_cases(cases: dict[str, Case]) -> dict[str, Outcome]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: train(case, create(case)) for name, case in cases.items()}


def cases(size: int) -> dict[str, Case]:
    even = (8 // size,) * size
    common = {"rho": 1.0, "temperature_init": 0.05}
    found = {
        f"isogclr {name}{' duplicates' * duplicates}": Case("isogclr", common | options, even, duplicates)
        for name, options in ISOGCLR_OPTIONS.items()
        for duplicates in (False, True)
    }
    found |= {
        "isogclr fp32": Case("isogclr", common | {"temperature_min": 0.05}, even, dtype="float32"),
        "isogclr uneven": Case("isogclr", common, UNEVEN[size]),
        "isogclr uneven duplicates": Case("isogclr", common, UNEVEN[size], duplicates=True),
        "isogclr one rank empty": Case("isogclr", common, ONE_EMPTY[size]),
        "isogclr bf16": Case("isogclr", common, even, dtype="float32", features="bfloat16"),
        "isogclr fp16": Case("isogclr", common, even, dtype="float32", features="float16"),
        "sogclr": Case("sogclr", {"temperature": 0.05}, even),
        "sogclr cosine": Case("sogclr", ISOGCLR_OPTIONS["cosine"] | {"temperature": 0.05}, even),
        "sogclr duplicates": Case("sogclr", {"temperature": 0.05}, even, duplicates=True),
        "sogclr fp32": Case("sogclr", {"temperature": 0.07}, even, dtype="float32"),
        "cyclip": Case("cyclip", {}, even),
        "cyclip tiles": Case("cyclip", {"tile_rows": 1, "in_modal_weight": 0.1}, even),
        "cyclip fp32": Case("cyclip", {}, even, dtype="float32"),
        "cyclip uneven": Case("cyclip", {}, UNEVEN[size]),
        "clip": Case("clip", {"gather_with_grad": True}, even),
        "clip local_loss": Case("clip", {"gather_with_grad": True, "local_loss": True}, even),
        "siglip": Case("siglip", {}, even),
        "vicreg": Case("vicreg", {}, even),
        "vicreg uneven": Case("vicreg", {}, UNEVEN[size]),
        "isogclr views global": Case("isogclr", common | ISOGCLR_OPTIONS["global"], even, directions=("image",)),
    }
    return found | view_cases(size, common)


def view_cases(size: int, isogclr: dict[str, float]) -> dict[str, Case]:
    """Every loss of two views, with batches of all kinds."""
    even, options = (8 // size,) * size, {"isogclr": isogclr, "sogclr": {"temperature": 0.05}}
    found = {}
    for name in VIEW_LOSSES:
        for kind, batch, duplicates in (
            ("", even, False),
            (" duplicates", even, True),
            (" uneven", UNEVEN[size], False),
            (" uneven duplicates", UNEVEN[size], True),
            (" one rank empty", ONE_EMPTY[size], False),
        ):
            found[f"{name} views{kind}"] = Case(
                name, options.get(name, {}), batch, duplicates, directions=VIEW_DIRECTIONS
            )
    return found


@pytest.fixture(scope="module")
def one_process() -> dict[str, Outcome]:
    """The reference does not depend on how the batch is dealt out: one for all sizes, but for the uneven sums."""
    return run_cases(cases(2))


@pytest.fixture(scope="module", params=[2, 4])
def many(request: pytest.FixtureRequest) -> list[dict[str, Outcome]]:
    return run_ranks(request.param, run_cases, cases(request.param))


def assert_close(ours: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(float(value.abs().max()), 1e-3)
        assert float((ours[name] - value).abs().max()) <= tolerance * scale, name


@pytest.mark.parametrize("name", cases(2))
def test_gradients_and_state(name: str, many: list[dict[str, Outcome]], one_process: dict[str, Outcome]) -> None:
    expected = one_process[name]
    tolerance = TOLERANCES.get(name.split()[1] if " " in name else "", 1e-9)
    for rank, outcomes in enumerate(many):
        ours = outcomes[name]
        assert_close(ours.gradients, expected.gradients, tolerance)
        assert_close(ours.parameters, expected.parameters, tolerance)
        assert_close(ours.columns, expected.columns, tolerance)
        assert_close(ours.shared, expected.shared, tolerance)
        assert torch.equal(ours.visits, expected.visits), rank
    means = torch.tensor([outcomes[name].values for outcomes in many]).mean(dim=0)
    torch.testing.assert_close(means, torch.tensor(expected.values), rtol=10 * tolerance, atol=1e-6)


def test_the_comparison_is_not_empty(one_process: dict[str, Outcome]) -> None:
    for name, outcome in one_process.items():
        assert max(float(g.abs().max()) for g in outcome.gradients.values()) > 1e-3, name
        if name.startswith("isogclr"):
            assert int(outcome.visits.max()) > 1, name
    duplicated = one_process["isogclr paper duplicates"]
    assert int(duplicated.visits.sum()) < 3 * 8, "no row was drawn twice"


@pytest.mark.parametrize("size", [2, 4])
def test_open_clip_without_gather_with_grad_has_1_over_w_of_the_gradient(size: int) -> None:
    """Its behaviour, kept: only the own features carry gradient, and DDP averages instead of summing."""
    whole = first_gradients(Case("clip", {}, (4, 4), steps=1))
    for ours in run_ranks(size, first_gradients, Case("clip", {}, (8 // size,) * size, steps=1)):
        for name, expected in whole.items():
            if name == "logit_scale":  # reaches every rank's copy of the whole loss
                torch.testing.assert_close(ours[name], expected)
            else:
                torch.testing.assert_close(ours[name] * size, expected, rtol=1e-9, atol=1e-12)


def first_gradients(case: Case) -> dict[str, torch.Tensor]:
    return train(case, create(case)).gradients


def too_large_a_batch() -> str:
    loss = create(Case("sogclr", {}, ()))
    rank = Ranks().rank

    def evaluate(batch: int) -> None:
        features = torch.nn.functional.normalize(torch.randn(batch, 4), dim=1)
        loss(features, features, rows=torch.arange(batch), state=loss.initial_state(batch))

    evaluate(3 + rank)
    evaluate(2)
    try:
        evaluate(6)
    except InputError as error:
        return str(error)
    return "nothing was raised"


def test_a_batch_that_does_not_fit_is_refused() -> None:
    for rank, message in enumerate(run_ranks(2, too_large_a_batch)):
        assert message.startswith(
            f"rank {rank} has a batch of 6, but the largest of any rank in the first step was 4"
        )


def one_rank_has_too_large_a_batch() -> None:
    loss = create(Case("sogclr", {}, ()))
    for batch in (4, 6 if Ranks().rank == 0 else 4):
        features = torch.nn.functional.normalize(torch.randn(batch, 4), dim=1)
        loss(features, features, rows=torch.arange(batch), state=loss.initial_state(batch))


def test_a_refusal_on_one_rank_ends_the_others() -> None:
    """The others wait in a gather; when the process that refused ends, so do they, long before the timeout."""
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"rank 0 failed(?s:.*)has a batch of 6(?s:.*)rank 1 failed"):
        run_ranks(2, one_rank_has_too_large_a_batch)
    assert time.monotonic() - start < TIMEOUT_SECONDS / 2


def test_bytes_received(many: list[dict[str, Outcome]]) -> None:
    """Features once, a row and four scalars a pair: nothing else crosses between ranks (float64: 8 bytes each)."""
    size = len(many)
    own = 8 // size
    expected = (size - 1) * own * (2 * 8 * 8 + 8 + 4 * 8)
    for outcomes in many:
        assert outcomes["isogclr paper"].bytes_received[1:] == [expected] * 2
