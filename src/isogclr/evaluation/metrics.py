"""What clip_benchmark 1.6.2 can not do on current packages, or wastes: which problem, each function says."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isogclr.errors import EvaluationError, InputError

TILE = 1024  # texts whose scores are held at once


def retrieval_recall(
    image_features: Tensor, text_features: Tensor, image_of_text: Tensor, ks: Sequence[int], tile: int = TILE
) -> dict[str, float]:
    """Share of texts that find their image, and of images that find one of their texts, among the best k.

    Image features [N, D] and text features [M, D] have unit length; image_of_text [M] counts from 0.

    Upstream: clip_benchmark holds all scores and compares them with the truth as dense one-hot [texts, k, images],
    a minute or more and gigabytes at 5,000 x 25,000. Here scores exist in tiles, both directions share one matrix
    product, and positions are compared. A score that ties with others is ordered by `torch.topk`, as upstream:
    never by the truth. Recall at k >= candidates is 1, where upstream's topk fails.
    """
    _check_retrieval(image_features, text_features, image_of_text)
    images, texts = len(image_features), len(text_features)
    image_k, text_k = min(max(ks), images), min(max(ks), texts)
    found_image = torch.zeros(texts, max(ks), dtype=torch.bool)  # [M, k]: is the image at this place the right one?
    best = image_features.new_full((images, text_k), -torch.inf)  # [N, k] best scores so far, and whose they are
    best_text = torch.full((images, text_k), -1, device=best.device)
    for start in range(0, texts, tile):
        scores = text_features[start : start + tile] @ image_features.T  # [tile, N]
        owners = image_of_text[start : start + tile].to(scores.device)
        places = torch.topk(scores, image_k, dim=1).indices
        found_image[start : start + tile, :image_k] = (places == owners[:, None]).cpu()
        top = torch.topk(scores.T, min(text_k, len(scores)), dim=1)
        candidates, names = torch.cat((best, top.values), 1), torch.cat((best_text, top.indices + start), 1)
        best, order = torch.topk(candidates, text_k, dim=1)
        best_text = names.gather(1, order)
    owners = image_of_text.to(best_text.device)[best_text]  # [N, k]
    found_text = (owners == torch.arange(images, device=owners.device)[:, None]).cpu()
    recall = {f"image_retrieval_recall@{k}": _share(found_image[:, :k]) for k in ks}
    return recall | {f"text_retrieval_recall@{k}": _share(found_text[:, :k]) for k in ks}


def _check_retrieval(image_features: Tensor, text_features: Tensor, image_of_text: Tensor) -> None:
    if len(image_of_text) != len(text_features) or not len(image_features):
        raise InputError(
            f"{len(image_features)} images, {len(text_features)} texts, {len(image_of_text)} owners of texts: "
            "expected some images, and one owner for each text"
        )
    captions = torch.bincount(image_of_text.cpu(), minlength=len(image_features))
    if len(captions) != len(image_features) or not bool(captions.all()):
        raise InputError("every image needs a caption, and every caption an image")
    require_finite("image features", image_features)
    require_finite("text features", text_features)


def _share(hits: Tensor) -> float:
    return float(hits.any(dim=1).double().mean())


def top_k_accuracy(logits: Tensor, labels: Tensor, ks: Sequence[int]) -> dict[str, float]:
    """Share of rows [N, C] whose label is among the best k; a k beyond the number of classes is left out.

    Upstream: `accuracy` turns an array of one element into a float, a TypeError since numpy 2.4; no top-3; acc5
    is NaN, which is no JSON, with fewer than five classes.
    """
    _check_classification(logits, labels)
    ks = [k for k in ks if k <= logits.shape[1]]
    hits = torch.topk(logits, max(ks), dim=1).indices == labels[:, None]
    return {f"acc{k}": _share(hits[:, :k]) for k in ks}


def mean_per_class_recall(logits: Tensor, labels: Tensor) -> float:
    """Top-1 accuracy of each class that has samples, averaged over these classes.

    Upstream: computed inside `evaluate` only, and by scikit-learn, which warns of classes without samples.
    """
    _check_classification(logits, labels)
    right = (logits.argmax(dim=1) == labels).double()
    samples = torch.bincount(labels, minlength=logits.shape[1])
    hits = torch.bincount(labels, weights=right, minlength=logits.shape[1])
    return float((hits[samples > 0] / samples[samples > 0]).mean())


def _check_classification(logits: Tensor, labels: Tensor) -> None:
    if len(logits) != len(labels) or not len(labels):
        raise InputError(f"{len(logits)} rows of logits and {len(labels)} labels: expected as many, and some")
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise InputError(
            f"labels reach from {int(labels.min())} to {int(labels.max())}, but there are {logits.shape[1]} classes"
        )
    require_finite("logits", logits)


def require_finite(name: str, values: Tensor) -> None:
    """NaN compares false with everything: without this check it would rank as if nothing were better."""
    rows = torch.isfinite(values).all(dim=-1)
    if not bool(rows.all()):
        bad = (~rows).sum().item()
        raise EvaluationError(
            f"{bad:,} of {len(rows):,} {name} are not finite: the model has diverged, or overflows in this "
            "precision; no score is given (try --precision fp32)"
        )
