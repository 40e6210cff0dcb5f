"""The hardest negatives of chosen samples, with the weights that the robust objective gives them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.float32]


@dataclass(frozen=True)
class HardNegatives:
    """Of one anchor in one direction: positions among the embedded samples, hardest first, with h and p*."""

    positions: npt.NDArray[np.int64]
    hardness: npt.NDArray[np.float64]  # h_ij = s_ij − s_ii
    weights: npt.NDArray[np.float64]  # p*_ij, of all negatives together 1
    effective: float  # exp of the entropy of p*: among how many negatives the weight is shared
    own_class: float = float("nan")  # part of the weight that is on samples of the anchor's class


def hard_negatives(
    anchors: npt.NDArray[np.int64],
    anchor_features: Features,
    other_features: Features,
    temperatures: npt.NDArray[np.float32],
    count: int,
    classes: npt.NDArray[np.int32] | None = None,
) -> list[HardNegatives]:
    """For each anchor, p*_ij ∝ exp(h_ij / τ_i) over all other samples (eq. 4 of the paper at its optimum).

    Args:
        anchors: positions of the anchors.
        anchor_features: of all samples, on the anchor's side, [N, D].
        other_features: of all samples, on the side that it is compared with, [N, D].
        temperatures: on the anchor's side, [N].
        count: how many negatives to return.
        classes: of all samples, if known, −1 where not. [N]
    """
    found = []
    for anchor in anchors.tolist():
        similarity = (other_features @ anchor_features[anchor]).astype(np.float64)
        hardness = similarity - similarity[anchor]
        exponent = hardness / float(temperatures[anchor])
        exponent[anchor] = -np.inf
        weights = np.exp(exponent - exponent.max())
        weights /= weights.sum()
        order = np.argsort(-exponent, kind="stable")[: min(count, len(weights) - 1)]
        positive = weights[weights > 0]
        effective = float(np.exp(-(positive * np.log(positive)).sum()))
        own = float("nan")
        if classes is not None and classes[anchor] >= 0:
            own = float(weights[classes == classes[anchor]].sum())
        found.append(HardNegatives(order, hardness[order], weights[order], effective, own))
    return found
