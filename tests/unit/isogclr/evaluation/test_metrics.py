"""Recall and accuracy against plain loops, against clip_benchmark's own functions, and on hostile input."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from isogclr.errors import EvaluationError, InputError
from isogclr.evaluation.metrics import mean_per_class_recall, retrieval_recall, top_k_accuracy

KS = (1, 5, 10)


def features(images: int, captions: list[int], seed: int, noise: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Texts near their image, so that recalls are neither 0 nor 1."""
    random = torch.Generator().manual_seed(seed)
    owners = torch.tensor([n for n in range(images) for _ in range(captions[n % len(captions)])])
    image = normalize(torch.randn(images, 8, generator=random), dim=1)
    text = normalize(image[owners] + noise * torch.randn(len(owners), 8, generator=random), dim=1)
    return image, text, owners


def brute_force_recall(image: Tensor, text: Tensor, owners: Tensor, k: int) -> tuple[float, float]:
    """Sort every row of plain Python numbers; texts to images, then images to texts."""
    images, texts = image.double().tolist(), text.double().tolist()

    def ranking(query: list[float], candidates: list[list[float]]) -> list[int]:
        scores = [math.fsum(a * b for a, b in zip(query, candidate, strict=True)) for candidate in candidates]
        return sorted(range(len(candidates)), key=lambda n: -scores[n])[:k]

    text_hits = [int(owners[n]) in ranking(query, images) for n, query in enumerate(texts)]
    image_hits = [any(int(owners[m]) == n for m in ranking(query, texts)) for n, query in enumerate(images)]
    return sum(text_hits) / len(text_hits), sum(image_hits) / len(image_hits)


@settings(max_examples=25, deadline=None)
@given(
    images=st.integers(1, 24),
    captions=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    tile=st.integers(1, 40),
    seed=st.integers(0, 999),
)
def test_recall_equals_brute_force(images: int, captions: list[int], tile: int, seed: int) -> None:
    image, text, owners = features(images, captions, seed)
    found = retrieval_recall(image, text, owners, KS, tile=tile)
    for k in KS:
        by_text, by_image = brute_force_recall(image, text, owners, k)
        assert found[f"image_retrieval_recall@{k}"] == pytest.approx(by_text, abs=1e-12)
        assert found[f"text_retrieval_recall@{k}"] == pytest.approx(by_image, abs=1e-12)


def test_recall_at_hand_made_places() -> None:
    """Image 0 is third for its text; both texts of image 1 are first and second for it."""
    image = torch.eye(3)
    text = torch.tensor([[0.1, 0.5, 0.6], [0.0, 1.0, 0.0], [0.3, 0.9, 0.1], [0.2, 0.1, 0.9]])
    owners = torch.tensor([0, 1, 1, 2])
    found = retrieval_recall(image, text, owners, (1, 2, 3))
    assert [found[f"image_retrieval_recall@{k}"] for k in (1, 2, 3)] == [0.75, 0.75, 1.0]
    # image 0 scores its texts 0.1, 0.0, 0.3, 0.2: its own is third; image 1 finds its own first, image 2 too
    assert [found[f"text_retrieval_recall@{k}"] for k in (1, 2, 3)] == [2 / 3, 2 / 3, 1.0]


@pytest.mark.parametrize("captions", [[5], [1], [5, 6, 1]])
def test_recall_equals_clip_benchmark(captions: list[int]) -> None:
    from clip_benchmark.metrics.zeroshot_retrieval import batchify, recall_at_k  # noqa: PLC0415

    image, text, owners = features(60, captions, seed=3)
    scores = text @ image.T
    truth = torch.zeros_like(scores, dtype=torch.bool)
    truth[torch.arange(len(text)), owners] = True
    found = retrieval_recall(image, text, owners, KS, tile=37)
    for k in KS:
        by_text = (batchify(recall_at_k, scores, truth, 16, "cpu", k=k) > 0).float().mean().item()
        by_image = (batchify(recall_at_k, scores.T, truth.T, 16, "cpu", k=k) > 0).float().mean().item()
        assert found[f"image_retrieval_recall@{k}"] == pytest.approx(by_text, abs=1e-7)
        assert found[f"text_retrieval_recall@{k}"] == pytest.approx(by_image, abs=1e-7)
        assert 0 < by_text < 1


def test_a_model_that_maps_everything_to_one_point_scores_by_chance() -> None:
    """Ties are not decided by the truth: counting better scores only would call this perfect."""
    image, text = torch.ones(50, 4) / 2, torch.ones(250, 4) / 2
    owners = torch.arange(50).repeat_interleave(5)
    found = retrieval_recall(image, text, owners, KS)
    assert found["image_retrieval_recall@1"] <= 0.05
    assert found["text_retrieval_recall@1"] <= 0.05


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", ["image", "text"])
def test_features_that_are_not_finite_have_no_score(which: str, value: float) -> None:
    image, text, owners = features(12, [2], seed=0)
    (image if which == "image" else text)[3, 2] = value
    with pytest.raises(EvaluationError, match=rf"1 of \d+ {which} features are not finite"):
        retrieval_recall(image, text, owners, KS)


@pytest.mark.parametrize("owners", [[0, 1, 1, 3], [0, 0, 1, 1], [0, 1, 2]])
def test_captions_without_images_and_images_without_captions(owners: list[int]) -> None:
    with pytest.raises(InputError, match=r"every image needs a caption|4 texts, 3 owners of texts"):
        retrieval_recall(torch.eye(3), torch.eye(3)[[0, 1, 1, 2]], torch.tensor(owners), (1,))


@pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")  # the upstream problem itself
def test_accuracy_equals_loops_and_clip_benchmark() -> None:
    from clip_benchmark.metrics.zeroshot_classification import accuracy  # noqa: PLC0415
    from sklearn.metrics import balanced_accuracy_score  # noqa: PLC0415 (what clip_benchmark uses)

    random = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 7, (300,), generator=random)
    labels[:100] = 2  # classes of very different size: the mean over classes is not the mean over samples
    logits = torch.randn(300, 7, generator=random)
    logits[torch.arange(300), labels] += 0.5 + (labels == 2).float()
    found = top_k_accuracy(logits, labels, (1, 3, 5))
    for k in (1, 3, 5):
        ordered = [sorted(range(7), key=lambda c: -row[c])[:k] for row in logits.tolist()]
        by_hand = sum(int(label) in best for label, best in zip(labels, ordered, strict=True)) / 300
        assert found[f"acc{k}"] == pytest.approx(by_hand, abs=1e-12)
    assert [found["acc1"], found["acc5"]] == pytest.approx(accuracy(logits, labels, (1, 5)), abs=1e-7)
    expected = balanced_accuracy_score(labels, logits.argmax(1))
    assert mean_per_class_recall(logits, labels) == pytest.approx(expected, abs=1e-12)
    assert abs(expected - found["acc1"]) > 0.01


def test_classes_without_samples_do_not_count() -> None:
    logits = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 2.0], [1.0, 0.0, 2.0]])
    labels = torch.tensor([0, 0, 2])
    assert mean_per_class_recall(logits, labels) == pytest.approx((0.5 + 1.0) / 2)
    assert set(top_k_accuracy(logits, labels, (1, 3, 5))) == {"acc1", "acc3"}


def test_bad_logits_and_labels() -> None:
    logits = torch.randn(4, 3)
    with pytest.raises(InputError, match="labels reach from 0 to 3, but there are 3 classes"):
        top_k_accuracy(logits, torch.tensor([0, 1, 2, 3]), (1,))
    with pytest.raises(InputError, match="0 rows of logits"):
        top_k_accuracy(logits[:0], torch.tensor([], dtype=torch.long), (1,))
    logits[2, 1] = math.nan
    with pytest.raises(EvaluationError, match="1 of 4 logits are not finite"):
        top_k_accuracy(logits, torch.tensor([0, 1, 2, 0]), (1,))
