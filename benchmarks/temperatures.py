"""Where τ goes with fixed features and the whole set as the batch: the recipe's step against steadier ones."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks import measure
from benchmarks.loss import features
from isogclr import ISogCLRConfig, ISogCLRLoss, objective

BATCH = 512
RHO = 0.8 * 6.2364  # 0.8 log(B − 1) = 4.99
STEPS, WINDOW = 2000, 200
VARIANTS: dict[str, dict] = {
    "recipe: γ 0.8, η 0.03": {},
    "γ 1, η 0.03": {"gamma": 1.0},
    "γ 1, η 1e-5": {"gamma": 1.0, "temperature_rate": 1e-5},
    "γ 0.8, η 1e-6": {"temperature_rate": 1e-6},
    "γ 0.8, η 0.03, normalised w": {"normalized_weights": True},
    "γ 0.8, η 1e-4, normalised w": {"normalized_weights": True, "temperature_rate": 1e-4},
    "γ 0.8, η 1e-5, normalised w": {"normalized_weights": True, "temperature_rate": 1e-5},
    "γ 0.8, Adam, η 1e-3": {"temperature_optimizer": "adam"},
    "γ 0.8, Adam, η 1e-4": {"temperature_optimizer": "adam", "temperature_rate": 1e-4},
}


def optima(image: Tensor, text: Tensor, lower: float, upper: float) -> Tensor:
    """Temperature at which G is 0 for each image anchor, by bisection: the objective is convex in τ. Shape [B]."""
    similarity = image.double() @ text.double().T
    h = objective.hardness(similarity, similarity.diagonal())
    negative = ~torch.eye(len(h), dtype=torch.bool)
    low, high = torch.full((2, len(h)), lower, dtype=torch.float64)
    high.fill_(upper)
    for _ in range(60):
        middle = (low * high).sqrt()
        log_g = objective.log_batch_mean(h, middle, negative)
        weighted = objective.surrogate(objective.weights(h, middle, log_g, negative), h)
        rising = objective.temperature_gradient(weighted, middle, log_g, RHO, float("inf")) > 0
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    return high


def run() -> dict:
    """Range of τ over the last steps, by variant; about two minutes on two cores."""
    image, text = features(BATCH)
    config = ISogCLRConfig.preset("paper", rho=RHO)
    best = optima(image, text, config.temperature_min, config.temperature_max)
    results: dict = {"batch": BATCH, "rho": RHO, "optimum": measure.spread(best.tolist()), "variants": {}}
    for name, options in VARIANTS.items():
        loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=RHO, **options))
        state, last = loss.initial_state(BATCH), []
        with torch.no_grad():
            for step in range(STEPS):
                state = loss(image, text, rows=torch.arange(BATCH), state=state, step=step).state
                if step >= STEPS - WINDOW:
                    last.append(state.columns["image_temperature"])
        history = torch.stack(last).double()  # [steps, B]
        results["variants"][name] = {
            "min": float(history.min()),
            "max": float(history.max()),
            "median_swing": float((history.amax(0) / history.amin(0)).median()),
            "median_of_mean_over_optimum": float((history.mean(0) / best).median()),
            "share_within_1_percent": float(((history / best - 1).abs().amax(0) < 0.01).double().mean()),
        }
    return results


def table(results: dict) -> str:
    """Markdown."""
    best = results["optimum"]
    lines = [
        f"Optimum of τ: median {best['median']:.4f}, {best['min']:.4f}–{best['max']:.4f}.",
        "",
        "| variant | τ over the last 200 of 2000 steps | swing | mean τ / optimum | within 1 % of the optimum |",
        "|---|---|---|---|---|",
    ]
    for name, found in results["variants"].items():
        lines.append(
            f"| {name} | {found['min']:.4f}–{found['max']:.4f} | {found['median_swing']:.2f} "
            f"| {found['median_of_mean_over_optimum']:.2f} | {100 * found['share_within_1_percent']:.0f} % |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    found = run()
    print(table(found))
    print(f"\nwritten to {measure.save('temperatures', found)}")
