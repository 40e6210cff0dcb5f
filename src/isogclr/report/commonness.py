"""How common the semantics of a sample are: by neighbours in the learned embedding, and by words of the caption."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Features = npt.NDArray[np.float32]
NEIGHBOURS = 10
_TILE_ROWS = 512
_WORD = re.compile(r"[^\W_]+")


def neighbour_similarity(features: Features, neighbours: int = NEIGHBOURS) -> Floats:
    """Mean cosine similarity of each row to its nearest other rows: large where much is alike. [N, D] → [N]"""
    count = min(neighbours, len(features) - 1)
    if count < 1:
        return np.full(len(features), np.nan)
    found = np.empty(len(features))
    for start in range(0, len(features), _TILE_ROWS):
        similarity = features[start : start + _TILE_ROWS] @ features.T
        rows = np.arange(len(similarity))
        similarity[rows, start + rows] = -np.inf
        nearest = np.partition(similarity, -count, axis=1)[:, -count:]
        found[start : start + _TILE_ROWS] = nearest.mean(axis=1)
    return found


def word_frequency(captions: Sequence[str]) -> Floats:
    """Geometric mean, over a caption's words, of the share of captions with that word; NaN without a word. [N]"""
    words = [sorted(set(_WORD.findall(caption[:10_000].lower()))) for caption in captions]
    counts = Counter(word for caption in words for word in caption)
    shares = [
        np.mean([np.log(counts[word] / len(captions)) for word in caption]) if caption else np.nan
        for caption in words
    ]
    return np.exp(np.array(shares, np.float64))


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's ρ over the pairs that are both finite; NaN of fewer than three, and of constants."""
    good = np.isfinite(first) & np.isfinite(second)
    first, second = first[good], second[good]
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:  # of which scipy warns
        return float("nan")
    from scipy.stats import spearmanr  # noqa: PLC0415 (slow to import; a report without a model does without)

    return float(spearmanr(first, second).statistic)


def binned_quantiles(places: Floats, values: Floats, bins: int = 12) -> tuple[Floats, Floats]:
    """Bins with equally many points; their median place [K], and the quartiles of the values in them [K, 3]."""
    good = np.isfinite(places) & np.isfinite(values)
    places, values = places[good], values[good]
    parts = np.array_split(np.argsort(places, kind="stable"), max(1, min(bins, len(places) // 8)))
    parts = [part for part in parts if len(part)]
    centres = np.array([np.median(places[part]) for part in parts])
    quartiles = np.array([np.quantile(values[part], (0.25, 0.5, 0.75)) for part in parts]).reshape(-1, 3)
    return centres, quartiles
