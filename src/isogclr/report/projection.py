"""t-SNE in two dimensions for the few points that a figure can show, by scikit-learn.

It starts from the two main directions of the data and runs on one thread, since the sums of several depend on how
many there are: the same embeddings give the same picture.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float32]
_ITERATIONS = 500  # as good as scikit-learn's 1000 for so few points, in half the time
_FEWEST = 5  # points that have a neighbourhood to speak of
_START_DEVIATION = 1e-4  # scikit-learn's own, of the points that it starts from


def project(features: Points, perplexity: float = 30.0) -> Points:
    """[N, D] → [N, 2]; neighbours stay neighbours, distances far apart mean little."""
    start = _main_directions(features)
    deviation = float(start.std(axis=0).max()) if len(start) else 0.0
    if len(features) < _FEWEST or deviation == 0:
        return start
    from sklearn.manifold import TSNE  # noqa: PLC0415 (slow to import; a report without a model does without)
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    tsne = TSNE(
        perplexity=min(perplexity, (len(features) - 1) / 3),
        init=start * np.float32(_START_DEVIATION / deviation),
        max_iter=_ITERATIONS,
        random_state=0,
    )
    with threadpool_limits(1):
        points = tsne.fit_transform(features.astype(np.float32))
    centred: Points = points - points.mean(axis=0)
    return centred


def _main_directions(features: Points) -> Points:
    if not len(features):
        return np.zeros((0, 2), np.float32)
    centred = features - features.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    found = centred @ directions[:2].T
    return np.pad(found, ((0, 0), (0, 2 - found.shape[1]))).astype(np.float32)
