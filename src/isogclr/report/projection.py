"""t-SNE in two dimensions, exact, for the few points that a figure can show (van der Maaten and Hinton, 2008).

Everything is dense, so a thousand points take seconds and a few megabytes. It starts from the two main directions
of the data and draws no random numbers: the same embeddings give the same picture.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float32]
_ITERATIONS = 300
_EXAGGERATED = 100  # iterations in which attraction is stronger, so that clusters form
_EXAGGERATION = 12.0
_TINY = 1e-12


def project(features: Points, perplexity: float = 30.0) -> Points:
    """[N, D] → [N, 2], centred; neighbours stay neighbours, distances far apart mean little."""
    if len(features) < 5:
        return _main_directions(features)
    affinity = _affinities(
        _squared_distances(features.astype(np.float32)), min(perplexity, (len(features) - 1) / 3)
    )
    affinity = (affinity + affinity.T) / np.float32(2 * len(features))
    start = _main_directions(features)
    start *= np.float32(1e-2 / max(float(start.std(axis=0).max()), _TINY))
    return _descend(np.maximum(affinity, np.float32(_TINY)), start)


def _main_directions(features: Points) -> Points:
    centred = features - features.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    found = centred @ directions[:2].T
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1]))).astype(np.float32)


def _squared_distances(points: Points) -> Points:
    squares = (points**2).sum(axis=1)
    distances: Points = squares[:, None] + squares[None, :] - 2 * points @ points.T
    np.maximum(distances, 0.0, out=distances)
    return distances


def _affinities(distances: Points, perplexity: float) -> Points:
    """Row-wise Gaussian weights whose entropy is log(perplexity); the widths by bisection, all rows at once."""
    count = len(distances)
    low, high = np.zeros(count, np.float32), np.full(count, np.inf, np.float32)
    precision = np.full(count, 1 / max(float(np.median(distances)), _TINY), np.float32)
    off_diagonal = ~np.eye(count, dtype=bool)
    weights = distances
    for _ in range(50):
        weights = np.exp(-distances * precision[:, None]) * off_diagonal
        total = weights.sum(axis=1) + _TINY
        entropy = np.log(total) + precision * (distances * weights).sum(axis=1) / total
        weights = weights / total[:, None]
        too_wide = entropy > np.log(perplexity)
        low, high = np.where(too_wide, precision, low), np.where(too_wide, high, precision)
        precision = np.where(np.isinf(high), precision * 2, (low + np.where(np.isinf(high), 0, high)) / 2)
    return weights.astype(np.float32)


def _descend(affinity: Points, points: Points) -> Points:
    """Gradient descent with momentum and a gain for each coordinate, as in the authors' implementation."""
    velocity, gains = np.zeros_like(points), np.ones_like(points)
    rate = max(len(points) / _EXAGGERATION / 4, 50.0)
    for iteration in range(_ITERATIONS):
        exaggeration = _EXAGGERATION if iteration < _EXAGGERATED else 1.0
        kernel = 1.0 / (1.0 + _squared_distances(points))
        np.fill_diagonal(kernel, 0.0)
        pull = (exaggeration * affinity - kernel / kernel.sum()) * kernel
        gradient = 4 * (pull.sum(axis=1)[:, None] * points - pull @ points)
        same = np.sign(gradient) == np.sign(velocity)
        gains = np.maximum(np.where(same, gains * 0.8, gains + 0.2), 0.01)
        velocity = (0.5 if iteration < _EXAGGERATED else 0.8) * velocity - rate * gains * gradient
        points = points + velocity
        points -= points.mean(axis=0)
    return points.astype(np.float32)
