"""Trainings in memory: what a batch is, what is learned, what is measured; the same with every loss."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.data_scripts import script

grid, plan = (script(name, "study") for name in ("grid", "plan"))
feature_set, features, icons = (
    script(name, "study") for name in ("feature_set", "feature_training", "icon_training")
)
age, better, memory, retrieval = (
    script(name, "study") for name in ("age_of_s", "estimates_of_s", "memory_training", "retrieval")
)
LOSSES = ("clip", "siglip", "cyclip", "sogclr", "isogclr")


@pytest.fixture(scope="module")
def flickr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 pictures with three captions each, of the same 4 numbers behind two random maps."""
    generator = np.random.default_rng(0)
    hidden = generator.normal(size=(60, 4))
    own = np.repeat(np.arange(60), 3)
    images = hidden @ generator.normal(size=(4, 12))
    texts = hidden[own] @ generator.normal(size=(4, 8)) + 0.01 * generator.normal(size=(180, 8))
    places = np.arange(180)
    pairs = {
        name: feature_set.Pairs(own[part], places[part])
        for name, part in (("train", slice(0, 120)), ("validation", slice(120, 150)), ("test", slice(150, 180)))
    }
    folder = tmp_path_factory.mktemp("study") / "features"
    feature_set.FeatureSet(images, texts, pairs, tuple(f"caption {place}" for place in places)).save(folder)
    return folder


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many squares and fewer stripes, by three authors."""
    folder = tmp_path_factory.mktemp("icons")
    generator = np.random.default_rng(1)
    is_stripe = np.arange(96) % 3 == 0
    names = ["blue stripe" if one else "red square" for one in is_stripe]
    pictures = generator.integers(200, 256, (96, 32, 32), dtype=np.uint8)
    pictures[~is_stripe, 8:24, 8:24] = 0
    pictures[is_stripe, :, ::4] = 0
    np.save(folder / "pictures.npy", pictures)
    np.save(folder / "split.npy", np.repeat([0, 1, 2], [64, 16, 16]).astype(np.int8))
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return folder


def a_run(task: str, loss: str, **setting: Any) -> Any:
    flags = {"batch_size": 16, "epochs": 4, "warmup": 2, "lr": 5e-3, **setting}
    return grid.Run("x", grid.DataSet("x", "x", task, flags), loss, loss, {}, 0, "test")


@pytest.mark.parametrize("loss", LOSSES)
def test_heads_learn_with_every_loss(flickr: Path, loss: str) -> None:
    option = {"sogclr_temperature": 0.1} if loss == "sogclr" else {"isogclr_preset": "recommended"}
    found = {
        name: value for _, name, value in features.train_and_measure(a_run("features", loss, **option), flickr)
    }
    assert found["mean_recall"] > 60  # at random 44, of ten pictures
    assert ("image_temperature_q50" in found) == (loss == "isogclr")


def test_a_photo_is_in_as_many_pairs_as_it_has_captions(flickr: Path) -> None:
    pairs = features.FeaturePairs(flickr)
    images, _ = pairs.batch(torch.tensor([0, 1, 2, 3]))
    assert pairs.samples == 120
    assert torch.equal(images[0], images[2])
    assert not torch.equal(images[2], images[3])


def test_a_name_finds_any_of_its_icons(flickr: Path) -> None:
    """Three pictures of each name: the other way round than photos with captions."""
    training = features.open_training(a_run("features", "clip"), flickr)
    found = training.material.pairs["test"]
    pictures = torch.from_numpy(found.image)
    training.material.images = training.material.images[pictures].repeat_interleave(2, dim=0)
    training.material.pairs = {"test": feature_set.Pairs(np.arange(60), np.repeat(found.text[::3], 6))}
    recall = features.retrieval(training, "test")
    images, texts = training.towers.encoded(training.material.images, training.material.texts[found.text[::3]])
    best = (texts @ images.T).argmax(dim=1)
    assert recall["text_to_image_R@1"] == pytest.approx(
        100 * (best // 6 == torch.arange(10)).double().mean().item()
    )
    assert recall["image_to_text_R@10"] == 100


def test_features_are_standardised_over_the_training_part(flickr: Path) -> None:
    pairs = features.FeaturePairs(flickr)
    used = pairs.images[np.unique(pairs.pairs["train"].image)]
    torch.testing.assert_close(used.mean(dim=0), torch.zeros(12), atol=1e-3, rtol=0)
    torch.testing.assert_close(used.std(dim=0, correction=0), torch.ones(12), atol=2e-3, rtol=0)


def test_icons_of_unseen_authors(drawings: Path) -> None:
    rows = icons.train_and_measure(a_run("icons", "isogclr", isogclr_preset="recommended"), drawings)
    found = {name: value for _, name, value in rows}
    assert found["image_to_text_R@1"] > 90  # two names
    assert found["text_to_image_R@10"] == 100
    assert found["image_to_text_R@10_frequent"] == 100
    assert -1 <= found["text_temperature_against_caption_words"] <= 1


def test_words_that_stand_once_are_unknown(drawings: Path, tmp_path: Path) -> None:
    for file in drawings.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    text = (tmp_path / "names.txt").read_text(encoding="utf-8")
    (tmp_path / "names.txt").write_text("green " + text, encoding="utf-8")
    found = icons.Icons(tmp_path)
    (bag,) = found.bags(["green red nothing"]).tolist()
    assert bag[0] == bag[2] == 1
    assert bag[1] > 1
    assert bag[3:] == [0] * 5


def test_recall_with_several_captions_and_several_pictures() -> None:
    images = torch.eye(3)
    texts = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.0, 0.4]])
    found = retrieval.recalls(images, texts, torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]))
    assert found["image_to_text_R@1"] == pytest.approx(100)  # the third picture finds the third caption
    assert found["text_to_image_R@1"] == pytest.approx(200 / 3)  # the third caption finds the first picture first
    assert found["text_to_image_R@5"] == pytest.approx(100)


class TestAgeOfS:
    def test_exact_means_are_those_of_loops(self, flickr: Path) -> None:
        training = features.open_training(a_run("features", "sogclr"), flickr)
        rows = torch.tensor([5, 77])
        found = age.exact_log_means(training, rows, temperature=0.2)
        pairs = training.material.pairs["train"]
        images, texts = training.towers.encoded(training.material.images, training.material.texts)
        for place, row in enumerate(rows.tolist()):
            image, text = images[pairs.image[row]], texts[pairs.text[row]]
            own = float(image @ text)
            values = [
                math.exp((float(image @ texts[pairs.text[other]]) - own) / 0.2)
                for other in range(120)
                if other != row
            ]
            assert float(found["image"][place]) == pytest.approx(math.log(np.mean(values)), abs=1e-4)

    def test_memory_is_equation_12(self) -> None:
        one = age.Memory("x", age.constant(0.8), False, torch.zeros(3))
        rows, first = torch.tensor([2, 0]), torch.tensor([True, True])
        assert one.visit(rows, torch.tensor([1.0, 2.0]), first).tolist() == [1.0, 2.0]
        used = one.visit(rows, torch.tensor([3.0, 2.0]), ~first)
        assert float(used[0]) == pytest.approx(math.log(0.2 * math.e + 0.8 * math.e**3))
        assert float(used[1]) == pytest.approx(2.0)

    def test_a_common_drift_is_followed(self) -> None:
        """All samples move together: what was remembered moves with them."""
        one = age.Memory("x", age.constant(0.5), True, torch.zeros(2))
        rows, own = torch.tensor([0, 1]), torch.tensor([-1.0, 1.0])
        one.visit(rows, own, torch.tensor([True, True]))
        one.recent = 5.0  # as if all batches in between had been higher
        used = one.visit(rows, own + 5.0, torch.tensor([False, False]))
        torch.testing.assert_close(used, own + 5.0)


class TestEstimatesOfS:
    def test_an_s_from_the_batch_or_from_memory_is_that_of_sogclr(self, flickr: Path) -> None:
        """The dense loss and the library's, over two epochs: the same steps."""
        for gamma, name in ((1.0, "batch"), (0.8, "gamma 0.8")):
            run = a_run("features", "sogclr", sogclr_temperature=0.1, sogclr_gamma=gamma)
            expected, found = (features.open_training(run, flickr) for _ in range(2))
            found.loss = better.EstimatedLoss(0.1, better.estimates(name, found, 0.1, refresh=1))
            for training in (expected, found):
                torch.manual_seed(3)
                for _ in range(2):
                    list(training.steps())
            for one, other in zip(expected.towers.parameters(), found.towers.parameters(), strict=True):
                torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)

    def test_the_exact_one_knows_all_pairs(self, flickr: Path) -> None:
        """Without dropout it is what `age_of_s.py` compares with, for both sides."""
        training = features.open_training(a_run("features", "sogclr"), flickr)
        training.towers.eval()
        rows = torch.tensor([5, 77, 3])
        first, second = training.towers(*training.material.batch(rows))
        of_side = better.estimates("exact", training, 0.2, refresh=1)
        positive, exact = (first * second).sum(dim=1).detach(), age.exact_log_means(training, rows, 0.2)
        training.towers.eval()
        for side, anchors in (("image", first), ("text", second)):
            found = of_side[side](rows, torch.zeros(3), anchors.detach(), positive)
            torch.testing.assert_close(found, exact[side], atol=1e-4, rtol=1e-4)
            mixed = better.estimates("exact, gamma 0.8", training, 0.2, refresh=1)[side]
            found = mixed(rows, torch.zeros(3), anchors.detach(), positive)
            torch.testing.assert_close(found.exp(), 0.2 * exact[side].exp() + 0.8, atol=1e-4, rtol=1e-4)

    def test_a_sample_with_a_large_s_takes_more_of_a_visit(self, flickr: Path) -> None:
        training = features.open_training(a_run("features", "sogclr"), flickr)
        estimate = better.estimates("sigmoid 0", training, 0.1, refresh=1)["image"]
        rows = torch.tensor([0, 1])
        estimate(rows, torch.tensor([3.0, -3.0]), rows, rows)
        used = estimate(rows, torch.tensor([0.0, -6.0]), rows, rows)
        gamma = torch.sigmoid(torch.tensor([3.0, -3.0]))
        expected = (1 - gamma) * torch.tensor([3.0, -3.0]).exp() + gamma * torch.tensor([0.0, -6.0]).exp()
        torch.testing.assert_close(used.exp(), expected)

    def test_the_exact_one_is_as_old_as_it_may_be(self, flickr: Path) -> None:
        training = features.open_training(a_run("features", "sogclr"), flickr)
        training.towers.eval()
        everything = better.Everything(training, refresh=2)
        before = everything.features("image")
        training.step = 1
        assert everything.features("image") is before
        training.step = 2
        assert everything.features("image") is not before
