"""Similarities are fp32, whatever autocast, TF32 or the features' dtype would make of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from isogclr.config import CyCLIPConfig, ISogCLRConfig, SogCLRConfig
from isogclr.losses import ContrastiveLoss, CyCLIPLoss, ISogCLRLoss, SogCLRLoss, kernel
from support.unit_pairs import evaluate, unit_pairs, visited

LOSSES = [
    lambda: ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0, temperature_init=0.005)),
    lambda: SogCLRLoss(SogCLRConfig(temperature=0.005)),
    lambda: CyCLIPLoss(CyCLIPConfig()),
]


@pytest.fixture(params=LOSSES, ids=["isogclr", "sogclr", "cyclip"])
def loss(request: pytest.FixtureRequest) -> ContrastiveLoss:
    return request.param()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_does_not_reach_the_similarities(loss: ContrastiveLoss, dtype: torch.dtype) -> None:
    """Half-precision features under autocast equal fp32 features rounded the same way."""
    images, texts = (features.to(dtype) for features in unit_pairs(16, 32, dtype=torch.float32))
    rounded, *expected = evaluate(loss, images.float(), texts.float())
    with torch.autocast("cpu", dtype=dtype):
        output, *gradients = evaluate(loss, images, texts)
    assert torch.equal(output.loss, rounded.loss)
    for ours, exact in zip(gradients, expected, strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours, exact.to(dtype))
    if output.state is not None:
        for name, value in rounded.state.columns.items():
            assert output.state.columns[name].dtype == torch.float32
            assert torch.equal(output.state.columns[name], value)


def test_products_are_exact_where_they_are_made(loss: ContrastiveLoss, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every product, autocast is off and no backend may round; on any machine, whatever its kernels do."""
    seen, multiply = [], torch.mm

    def watched(*arguments: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        precisions = {torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision}
        seen.append((torch.is_autocast_enabled("cpu"), bool(precisions - {"ieee", "none"}), out.dtype))
        return multiply(*arguments, out=out)

    monkeypatch.setattr(torch, "mm", watched)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            evaluate(loss, *(features.bfloat16() for features in unit_pairs(8)))
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen
    assert set(seen) == {(False, False, torch.float32)}


def test_rounded_similarities_would_be_noticed() -> None:
    """The test above can fail: rounding similarities to bf16 changes the exponents at τ = 0.005.

    Rounded afterwards, because a bf16 product dies with SIGILL under oneDNN on some CPUs; there the test above
    would die with it if autocast reached our products.
    """
    images, texts = (features.bfloat16().float() for features in unit_pairs(16, 32, dtype=torch.float32))
    exact = images @ texts.T
    assert (exact.bfloat16().float() - exact).abs().mean() / 0.005 > 0.05


def test_small_gradients_survive_the_cast_to_fp16_under_a_loss_scale() -> None:
    """A large old s makes gradients of about 1e-8, below what fp16 holds; times 65536 they are fine."""
    loss = SogCLRLoss(SogCLRConfig(temperature=0.5, gamma=0.01))
    state = visited(loss, 16, torch.float32, log_mean=12.0)
    images, texts = (features.half().requires_grad_() for features in unit_pairs(16, 512, dtype=torch.float32))
    (loss(images, texts, rows=torch.arange(16), state=state).loss * 65536.0).backward()
    _, exact, _ = evaluate(loss, images.detach().float(), texts.detach().float(), state=state)
    assert exact.abs().max() < 1e-6
    torch.testing.assert_close(images.grad.float(), exact * 65536, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_matmul_precision_is_raised_and_put_back(loss: ContrastiveLoss, precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    images, texts = unit_pairs(64, 64, dtype=torch.float32)
    expected, *gradients = evaluate(loss, images, texts)
    try:
        torch.set_float32_matmul_precision(precision)
        output, *found = evaluate(loss, images, texts)
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(output.loss, expected.loss)
    assert torch.equal(found[0], gradients[0])


def test_matmul_precision_is_put_back_after_an_error() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with pytest.raises(ZeroDivisionError), kernel.exact_products("cpu"):
            _ = 1 / (torch.backends.cuda.matmul.fp32_precision != "ieee")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    "setting",
    [
        "torch.backends.cuda.matmul.allow_tf32 = True",  # what open_clip's trainer does
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.fp32_precision = 'tf32'",
    ],
)
def test_every_way_of_asking_for_tf32_is_overruled_and_put_back(setting: str) -> None:
    """In a process of its own: torch does not allow its older and newer settings to be mixed."""
    code = f"""
import torch
from isogclr.losses import kernel
{setting}
backends = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]
before = [backend.fp32_precision for backend in backends]
assert "tf32" in before
with kernel.exact_products("cpu"):
    assert not {{backend.fp32_precision for backend in backends}} - {{"ieee", "none"}}
assert [backend.fp32_precision for backend in backends] == before
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "create",
    [
        *LOSSES,
        lambda: ISogCLRLoss(
            ISogCLRConfig.preset("paper", rho=1.0, temperature_scope="global", temperature_optimizer="adam")
        ),
    ],
    ids=["isogclr", "sogclr", "cyclip", "isogclr_global_adam"],
)
def test_a_step_on_a_gpu_never_waits_for_the_device(create) -> None:
    """On fake CUDA tensors, which have no values, `.item()`, a branch on a value or `unique` would raise."""
    loss = create()
    with FakeTensorMode():
        images, texts = (torch.randn(32, 8, device="cuda", requires_grad=True) for _ in range(2))
        output = loss(
            images,
            texts,
            rows=torch.zeros(32, dtype=torch.int64, device="cuda"),
            state=loss.initial_state(32, device="cuda"),
            shared=loss.initial_shared(device="cuda"),
            logit_scale=torch.ones((), device="cuda", requires_grad=True),
        )
        assert output.loss.requires_grad
        assert output.loss.device.type == "cuda"
        assert all(value.device.type == "cuda" for value in loss.statistics(output).values())


def test_state_and_rows_may_be_on_the_cpu() -> None:
    """As they are when a table or a store in main memory gives them; features decide where it is computed."""
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0))
    with FakeTensorMode():
        table, rows = loss.initial_state(100), torch.zeros(32, dtype=torch.int64)
        images, texts = (torch.randn(32, 8, device="cuda", requires_grad=True) for _ in range(2))
        output = loss(images, texts, rows=rows, state=table.take(rows))
        assert output.state.visits.device.type == "cuda"


def test_a_setting_that_is_inherited_stays_inherited() -> None:
    """A call must not turn torch.backends.fp32_precision into a setting of the backend's own."""
    code = """
import torch
from isogclr.losses import kernel
torch.backends.fp32_precision = "tf32"
with kernel.exact_products("cpu"):
    pass
torch.backends.fp32_precision = "ieee"
assert torch.backends.cuda.matmul.fp32_precision == "ieee"
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_row_comparison_of_a_gpu_gives_what_the_cpu_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off the CPU all rows are compared, without looking for duplicates first; the result is the same."""
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0, tile_rows=5))
    images, texts = unit_pairs(12)
    state = visited(loss, 12, temperature=0.03, log_mean=-1.0, momentum=0.0)
    expected, *gradients = evaluate(loss, images, texts, state=state)
    monkeypatch.setattr("isogclr.losses.pairs._positives_only", lambda *_: False)
    output, *found = evaluate(loss, images, texts, state=state)
    assert torch.equal(output.loss, expected.loss)
    assert torch.equal(found[0], gradients[0])
    assert torch.equal(found[1], gradients[1])
