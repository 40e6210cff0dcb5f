"""Optimizer, gradient scaler and learning rate: from gradients to a step that was taken, or not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, AdamW, Optimizer

from training.open_clip_bridge import Cooldown, Schedule, learning_rate
from training.settings import OptimizerSettings

# A scaler halves its scale with every step that it leaves out, and begins at 2^16: if this many steps in a row do
# not help, no scale does.
_SCALER_PATIENCE_STEPS = 64


class Optimization:
    """Everything that turns gradients into a step.

    Args:
        model: whose parameters are trained, with DDP around it if there is one.
        settings: of the optimizer.
        precision: `amp` scales gradients.
        device: of the parameters.
    """

    def __init__(self, model: nn.Module, settings: OptimizerSettings, precision: str, device: torch.device) -> None:
        self._model = model
        self._settings = settings
        self.optimizer = create_optimizer(model, settings)
        self.scaler = GradScaler(device=device.type) if precision == "amp" else None
        self._schedule: Schedule | None = None
        self._taken = False
        self._left_out_in_a_row = 0
        # Of the last step, on the device, for who wants to know whether it was finite; None where the scaler looks.
        self.gradient_norm: Tensor | None = None
        # timm's Lookahead wraps an optimizer without being one to torch: its hooks never run, the inner one's do.
        hooked = getattr(self.optimizer, "_base_optimizer", self.optimizer)
        hooked.register_step_post_hook(self._remember)

    def plan(self, steps_per_epoch: int, epochs: int, lr_factor: float = 1.0) -> None:
        """The learning rate over the run, once its length is known.

        Args:
            lr_factor: what rollbacks have left of it.
        """
        settings = self._settings
        base = lr_factor * (settings.lr if settings.lr is not None else self.optimizer.defaults["lr"])
        if settings.skip_scheduler:
            if lr_factor != 1.0:  # the optimizer of a checkpoint brings the one before
                self._schedule = learning_rate("const", self.optimizer, base, 0, 0, None)
            return
        cooldown = None
        if settings.scheduler == "const-cooldown":
            assert settings.epochs_cooldown is not None
            steps = steps_per_epoch * settings.epochs_cooldown
            cooldown = Cooldown(steps, settings.cooldown_power, lr_factor * settings.cooldown_end)
        warmup = settings.warmup_steps + round(settings.warmup_epochs * steps_per_epoch)
        self._schedule = learning_rate(
            settings.scheduler, self.optimizer, base, warmup, steps_per_epoch * epochs, cooldown
        )

    def begin(self, schedule_step: float) -> None:
        """Set the learning rate and forget the old gradients."""
        if self._schedule is not None:
            self._schedule(schedule_step)
        self.optimizer.zero_grad()

    def backward(self, loss: Tensor) -> None:
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def step(self) -> bool:
        """Clip, step. False if the scaler found gradients that are not finite and left the step out.

        The optimizer itself says whether it was called, so that nobody has to ask the device.
        """
        self._taken = False
        norm = self._settings.grad_clip_norm
        if self.scaler is not None and norm is not None:
            self.scaler.unscale_(self.optimizer)
        if norm is not None:
            self.gradient_norm = nn.utils.clip_grad_norm_(self._model.parameters(), norm, norm_type=2.0)
        if self.scaler is not None:
            self.gradient_norm = None
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            if norm is None:
                self.gradient_norm = _norm_of_gradients(self._model)
            self.optimizer.step()
            self._taken = True  # nothing leaves a step out but a scaler
        self._left_out_in_a_row = 0 if self._taken else self._left_out_in_a_row + 1
        return self._taken

    @property
    def is_scaler_lost(self) -> bool:
        """Whether the scaler leaves out every step, whatever its scale."""
        return self._left_out_in_a_row > _SCALER_PATIENCE_STEPS

    def content(self) -> dict[str, Any]:
        """What a commit keeps of it, under open_clip's names."""
        found: dict[str, Any] = {"optimizer": self.optimizer.state_dict()}
        if self.scaler is not None:
            found["scaler"] = self.scaler.state_dict()
        return found

    def load(self, checkpoint: Mapping[str, Any]) -> None:
        """Go on from the content of a checkpoint."""
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        if self.scaler is not None and "scaler" in checkpoint:
            self.scaler.load_state_dict(checkpoint["scaler"])

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def _remember(self, *_: Any) -> None:
        self._taken = True


def create_optimizer(model: nn.Module, settings: OptimizerSettings) -> Optimizer:
    """AdamW without decay of gains and biases, grouped as open_clip groups them; LARS or SGD; a timm optimizer."""
    if settings.name.startswith("timm/"):
        optimizer = _timm_optimizer(model, settings)
    else:
        optimizer = (_adamw if settings.name == "adamw" else _with_momentum)(model, settings)
    defaults = {**optimizer.defaults, "weight_decay": settings.weight_decay}
    shown = ", ".join(f"{name}: {value}" for name, value in defaults.items())
    logging.info(f"Created {type(optimizer).__name__} ({settings.name}) optimizer: {shown}")
    return optimizer


@torch.no_grad()
def _norm_of_gradients(model: nn.Module) -> Tensor | None:
    """The 2-norm of all gradients, on the device. In fp32: a norm in fp16 is infinite beyond 65,504.

    A finite gradient whose squares are not is as bad: AdamW keeps its squares.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    if not gradients:
        return None
    norms = torch.stack(torch._foreach_norm(gradients, 2.0, dtype=torch.float32))
    return norms.square().sum().sqrt()


def _adamw(model: nn.Module, settings: OptimizerSettings) -> Optimizer:
    trained = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    without_decay = [value for name, value in trained if _is_gain_or_bias(name, value)]
    with_decay = [value for name, value in trained if not _is_gain_or_bias(name, value)]
    assert settings.lr is not None
    assert settings.beta1 is not None
    assert settings.beta2 is not None
    assert settings.eps is not None
    return AdamW(
        [
            {"params": without_decay, "weight_decay": 0.0},
            {"params": with_decay, "weight_decay": settings.weight_decay},
        ],
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
    )


def _with_momentum(model: nn.Module, settings: OptimizerSettings) -> Optimizer:
    """LARS or SGD. Gains and biases have no decay; LARS does not adapt their rate either, since it adapts only
    where there is decay (`always_adapt` is off)."""
    from timm.optim import Lars  # noqa: PLC0415 (slow to import)

    trained = [value for value in model.parameters() if value.requires_grad]
    groups = [
        {"params": [value for value in trained if value.ndim < 2], "weight_decay": 0.0},
        {"params": [value for value in trained if value.ndim >= 2], "weight_decay": settings.weight_decay},
    ]
    options: dict[str, Any] = {"lr": settings.lr, "momentum": settings.momentum, "nesterov": settings.nesterov}
    kind: Callable[..., Optimizer] = Lars if settings.name == "lars" else SGD
    return kind(groups, **options)


def _is_gain_or_bias(name: str, value: Tensor) -> bool:
    """By open_clip's rule, so that its checkpoints have the same groups."""
    return value.ndim < 2 or any(part in name for part in ("bn", "ln", "bias", "logit_scale"))


def _timm_optimizer(model: nn.Module, settings: OptimizerSettings) -> Optimizer:
    from timm.optim import create_optimizer_v2  # noqa: PLC0415 (slow to import, seldom used)

    options: dict[str, Any] = {}
    if settings.beta1 is not None:
        options["betas"] = (settings.beta1, settings.beta2)
    if settings.eps is not None:
        options["eps"] = settings.eps
    if settings.momentum is not None:
        options["momentum"] = settings.momentum
    return create_optimizer_v2(
        model,
        settings.name.removeprefix("timm/"),
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        **options,
    )
