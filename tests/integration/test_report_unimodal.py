"""`isogclr report` on runs of two views of pictures: classes, maps, hard negatives; for one run and for several."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from isogclr import demo_data
from isogclr.cli import main
from isogclr.models.embeddings import load_embedder
from support.browser import open_page
from support.picture_sets import write_folders, write_shards
from support.unimodal_runs import long_tailed, make_unimodal_run, warmer_heads, write_coloured

SIZES = long_tailed(classes=12, largest=60, imbalance=12)
HOSTILE = "<img src=x onerror=window.broken=1> $x^{$"


def report(output: Path, *arguments: str | Path) -> str:
    assert main(["report", *map(str, arguments), "--output", str(output)]) == 0
    return (output / "report.html").read_text(encoding="utf-8")


def words(page: str) -> str:
    """What a reader sees, with the descriptions of figures."""
    page = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*?(?:aria-label=\"([^\"]*)\"[^>]*)?>", r" \1 ", page).split())


def columns(path: Path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    return {name: [line[place] for line in lines] for place, name in enumerate(header)}


def figures(page: str) -> set[str]:
    return set(re.findall(r'href="figures/(\w+)\.png"', page))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of `long-tail` (iSogCLR), `other` (the same with the tail hot) and `simclr` (no temperatures)."""
    folder = tmp_path_factory.mktemp("unimodal")
    data = str(write_coloured(folder / "data", SIZES))
    make_unimodal_run(folder / "long-tail", data)
    make_unimodal_run(folder / "other", data, temperatures=lambda own: warmer_heads(own.max() - own), weights=1)
    make_unimodal_run(folder / "simclr", data, loss="simclr", temperatures=None, weights=2)
    return folder


@pytest.fixture(scope="module")
def alone(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("alone")
    report(output, runs / "long-tail")
    return output


@pytest.fixture(scope="module")
def beside(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("beside")
    report(output, runs / "long-tail", runs / "simclr", runs / "other")
    return output


def test_one_run_has_all_parts(alone: Path) -> None:
    page = (alone / "report.html").read_text(encoding="utf-8")
    overview = {"loss", "accuracy", "final_temperatures", "temperature_curves", "epochs", "health"}
    classes = {"classes", "class_extremes", "hot_and_cold"}
    assert figures(page) == overview | classes | {"semantics_neighbours", "semantics_map"}
    seen = words(page)
    assert "What could not be shown" not in seen
    assert "isogclr · tiny · complete: 2 epochs" in seen
    assert "nearest neighbours, top-1 50.0 %" in seen
    assert "Search classes and keys" in seen
    assert "Choose by class or key" in seen


def test_nothing_is_said_of_texts_and_captions(alone: Path, beside: Path) -> None:
    for folder in (alone, beside):
        seen = words((folder / "report.html").read_text(encoding="utf-8"))
        assert re.findall(r".{20}\b(?:texts?|captions?|both)\b.{20}", seen, flags=re.IGNORECASE) == []
        for path in (folder / "data").glob("*.csv"):
            assert not [name for name in columns(path) if re.search("text|caption|word", name)], path.name


def test_classes_in_figure_and_table_are_those_of_the_store(runs: Path, alone: Path) -> None:
    found = columns(alone / "data" / "classes.csv")
    assert dict(zip(found["class"], map(int, found["pictures"]), strict=True)) == SIZES
    samples = columns(alone / "data" / "samples.csv")  # all of them: there are few
    temperatures = np.array(samples["image_temperature"], float)
    for name, mean in zip(found["class"], found["mean"], strict=True):
        own = temperatures[np.array(samples["class"]) == name]
        assert float(mean) == pytest.approx(own.mean(), rel=1e-5)
    seen = words((alone / "report.html").read_text(encoding="utf-8"))
    assert "head the 4 largest" in seen
    assert "tail the 4 smallest" in seen
    assert re.search(r"class k00 60 0\.\d+ ± 0\.\d+", seen) is not None
    hottest, coldest = (np.array(found[name], float) for name in ("hottest", "coldest"))
    assert hottest[0] > 0.1 > hottest[-1]  # the largest class is the hottest here
    assert coldest[-1] > 0.1 > coldest[0]


def test_samples_and_negatives_have_classes(alone: Path) -> None:
    samples = columns(alone / "data" / "samples.csv")
    assert all(shard == own for shard, own in zip(samples["shard"], samples["class"], strict=True))
    negatives = columns(alone / "data" / "hard_negatives.csv")
    own = dict(zip(samples["row"], samples["class"], strict=True))
    assert [own[row] for row in negatives["anchor_row"]] == negatives["anchor_class"]
    assert [own[row] for row in negatives["negative_row"]] == negatives["negative_class"]
    assert all(0 <= float(weight) <= 1 for weight in negatives["weight_of_own_class"])
    seen = words((alone / "report.html").read_text(encoding="utf-8"))
    assert re.search(
        r"Its image against other images shared among [\d.]+; [\d.]+ % of the weight is on its own", seen
    )
    assert "behind the projector" in seen
    assert re.search(r"τ 0\.\d+ class k00 \d+\.png", seen) is not None  # a card: class and key, once


def test_negatives_are_those_of_the_projector(runs: Path, alone: Path) -> None:
    """And neighbours and maps those of the backbone: computed again from the checkpoint."""
    samples = columns(alone / "data" / "samples.csv")
    rows, taus = (np.array(samples[name], float) for name in ("row", "image_temperature"))
    pictures = [
        Image.open(runs / "data" / shard / key).convert("RGB")
        for shard, key in zip(samples["shard"], samples["key"], strict=True)
    ]
    embedder = load_embedder(runs / "long-tail" / "checkpoints" / "epoch_2.pt")
    learned, compared = embedder.images(pictures)
    saved = np.load(alone / "data" / "embeddings.npz")
    np.testing.assert_allclose(saved["image"][np.argsort(saved["row"])], learned, atol=1e-5)
    negatives = columns(alone / "data" / "hard_negatives.csv")
    for place in range(0, len(negatives["weight"]), 17):
        anchor = int(np.flatnonzero(rows == int(negatives["anchor_row"][place]))[0])
        exponent = (compared @ compared[anchor]).astype(np.float64) / taus[anchor]
        exponent[anchor] = -np.inf
        weights = np.exp(exponent - exponent.max())
        negative = rows == int(negatives["negative_row"][place])
        expected = float(weights[negative][0] / weights.sum())
        assert float(negatives["weight"][place]) == pytest.approx(expected, rel=1e-3)


def test_maps_by_class(alone: Path) -> None:
    page = (alone / "report.html").read_text(encoding="utf-8")
    assert page.count('<svg class="map"') == 2
    assert page.count('<ul class="legend">') == 1
    found = columns(alone / "data" / "hot_and_cold.csv")
    hot = [float(one) for one, group in zip(found["temperature"], found["group"], strict=True) if group == "hot"]
    cold = [float(one) for one, group in zip(found["temperature"], found["group"], strict=True) if group == "cold"]
    assert len(hot) == len(cold) == 24
    assert min(hot) > max(cold)


def test_a_run_without_temperatures_is_beside_those_with(beside: Path) -> None:
    page = (beside / "report.html").read_text(encoding="utf-8")
    seen = words(page)
    assert "What could not be shown" not in seen
    assert set(columns(beside / "data" / "classes.csv")["run"]) == {"long-tail", "other"}
    assert set(columns(beside / "data" / "accuracy.csv")["run"]) == {"long-tail", "other", "simclr"}
    with Image.open(beside / "figures" / "arrangement.png") as image:
        assert image.width == 3 * 920  # a panel per run
    found = columns(beside / "data" / "arrangement.csv")
    assert {"class", "x_1", "y_1", "x_2", "y_2", "x_3", "y_3"} == set(found)
    assert len(found["class"]) == sum(SIZES.values())
    measured = re.search(r"of their class: long-tail ([\d.]+) %, simclr ([\d.]+) %, other ([\d.]+) %", seen)
    assert measured is not None
    assert all(float(one) > 25 for one in measured.groups())  # colours tell classes apart, chance would be 17 %
    assert found["x_1"] != found["x_2"]


def test_a_loss_without_temperatures_alone(runs: Path, tmp_path: Path) -> None:
    page = report(tmp_path, runs / "simclr")
    assert figures(page) == {"loss", "accuracy", "health", "arrangement"}
    assert "How the run arranges pictures" in page
    assert "What could not be shown" not in page


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_in_a_real_browser(beside: Path, tmp_path: Path, width: int, dark: bool) -> None:
    with open_page(beside / "report.html", tmp_path, width=width, dark=dark) as browser:
        assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        heads = browser.execute_script(
            "return Array.from(document.querySelectorAll('#sample-table th'), head => head.innerText.trim())"
        )
        assert heads[1].startswith("Class")
        shown = (
            "return Array.from(document.querySelectorAll('#sample-table tbody tr:not([hidden])'), "
            "row => Array.from(row.cells, cell => cell.innerText))"
        )
        browser.find_element("id", "search").send_keys("CLASS K07")
        rows = browser.execute_script(shown)
        assert {row[1] for row in rows} == {"class k07"}
        assert len(rows) == SIZES["class k07"]
        browser.find_element("id", "search").clear()
        browser.find_element("css selector", "th[data-sort=label] button").click()
        point = (
            "const dot = document.querySelectorAll('.map')[1].querySelector('circle');"
            "dot.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));"
            "return [document.getElementById('s' + dot.dataset.row).cells[1].innerText, "
            "document.getElementById('map-sample').innerText, document.querySelectorAll('.map .chosen').length]"
        )
        own, text, chosen = browser.execute_script(point)
        assert text.startswith(f"{own} · ")
        assert "image τ" in text
        assert chosen == 2


def test_labels_of_shards(tmp_path: Path) -> None:
    """Without `.cls` of their own, a few samples have no class; numbers are names."""
    labels = [[7, 7, 7, 7, None, 30] * 8, [30, 7] * 8]
    run = make_unimodal_run(tmp_path / "run", write_shards(tmp_path / "data", labels), weights=None)
    seen = words(report(tmp_path / "out", run, "--no-embeddings"))
    assert "2 classes have visited pictures; 8 pictures have no class." in seen
    found = columns(tmp_path / "out" / "data" / "classes.csv")
    assert dict(zip(found["class"], found["pictures"], strict=True)) == {"7": "40", "30": "16"}
    samples = columns(tmp_path / "out" / "data" / "samples.csv")
    assert samples["class"].count("") == 8
    assert set(samples["problem"]) == {""}


def test_labels_of_the_emoji(tmp_path: Path) -> None:
    """Their category, from the field of the .json that the run was told; captions that are there are shown too."""
    run = make_unimodal_run(tmp_path / "run", str(demo_data.FOLDER / "test-000.tar"), label="group", weights=None)
    page = report(tmp_path / "out", run, "--no-embeddings")
    assert "animals-nature" in columns(tmp_path / "out" / "data" / "classes.csv")["class"]
    assert "Search classes and captions" in page
    with open_page(tmp_path / "out" / "report.html", tmp_path / "profile") as browser:
        browser.find_element("id", "search").send_keys("animals-nature")  # in no caption, and in no key
        shown = "return Array.from(document.querySelectorAll('tr:not([hidden]) > td.label'), td => td.innerText)"
        assert set(browser.execute_script(shown)) == {"animals-nature"}


def test_pictures_without_labels(tmp_path: Path) -> None:
    run = make_unimodal_run(tmp_path / "run", write_shards(tmp_path / "data", [[None] * 130]))
    page = report(tmp_path / "out", run)
    assert "Its pictures have no labels: nothing is said of classes." in page
    assert 'id="classes"' not in page
    assert "hot_and_cold" in figures(page)
    assert "Search keys" in page
    assert "own class" not in words(page)


def test_names_of_classes_that_want_to_do_harm(tmp_path: Path) -> None:
    data = write_folders(tmp_path / "data", {HOSTILE.replace("/", ""): 40, "_=1+1": 40})
    run = make_unimodal_run(tmp_path / "run", str(data))
    page = report(tmp_path / "out", run)
    assert "<img src=x" not in page
    assert HOSTILE in words(page).replace("&lt;", "<").replace("&gt;", ">")
    with open_page(tmp_path / "out" / "report.html", tmp_path / "profile") as browser:
        assert browser.execute_script("return window.broken") is None


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "long-tail", tmp_path / "copy"))


def change_config(run: Path, **changes: Any) -> None:
    config = {**json.loads((run / "config.json").read_text()), **changes}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")


def test_data_that_moved(runs: Path, copy: Path, tmp_path: Path) -> None:
    change_config(copy, data=str(tmp_path / "gone"))
    seen = words(report(tmp_path / "out", copy, "--no-embeddings"))
    assert "Its pictures can not be opened, so nothing is said of classes" in seen
    assert "say where with --shards" in seen
    assert "The hottest and the coldest samples" in seen
    moved = shutil.copytree(runs / "data", tmp_path / "moved")
    seen = words(report(tmp_path / "out", copy, "--no-embeddings", "--shards", str(moved)))
    assert "Temperatures by class" in seen
    assert "can not be opened" not in seen


def test_a_picture_that_is_damaged(runs: Path, copy: Path, tmp_path: Path) -> None:
    data = shutil.copytree(runs / "data", tmp_path / "data")
    (data / "class k00" / "003.png").write_bytes(b"no picture")
    change_config(copy, data=str(data))
    page = report(tmp_path / "out", copy)
    samples = columns(tmp_path / "out" / "data" / "samples.csv")
    assert sum("can not be decoded" in problem for problem in samples["problem"]) == 1
    assert f"{sum(SIZES.values()) - 1} were embedded" in page
    assert f"1 of {sum(SIZES.values())} images that were read can not be decoded." in page


def test_a_checkpoint_of_another_backbone(copy: Path, tmp_path: Path) -> None:
    (copy / "checkpoints" / "epoch_2.pt").write_bytes(b"no checkpoint")
    seen = words(report(tmp_path / "out", copy))
    assert "The model can not be loaded" in seen
    assert "Temperatures by class" in seen


def test_runs_on_other_pictures_are_not_in_one_map(runs: Path, tmp_path: Path) -> None:
    data = str(write_coloured(tmp_path / "data", {"one": 30, "two": 30}))
    other = make_unimodal_run(tmp_path / "elsewhere", data)
    seen = words(report(tmp_path / "out", runs / "simclr", other, runs / "other", "--detail", "other"))
    assert "Its pictures are not those of other, so its features are not shown beside." in seen
    assert "x_3" not in columns(tmp_path / "out" / "data" / "arrangement.csv")
    assert {"classes", "classes_2"} <= figures((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))


def test_a_text_is_no_picture(tmp_path: Path) -> None:
    """A tar with captions alone, under a run of pictures: each sample says what it lacks."""
    data = write_shards(tmp_path / "data", [[0, 1] * 20])
    run = make_unimodal_run(tmp_path / "run", data, weights=None)
    with tarfile.open(tmp_path / "data" / "000.tar", "w"):
        pass
    seen = words(report(tmp_path / "out", run, "--no-embeddings"))
    assert "nothing is said of classes" in seen
    assert set(columns(tmp_path / "out" / "data" / "samples.csv")["problem"]) == {
        "the shard no longer holds this key"
    }
