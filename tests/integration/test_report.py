"""`isogclr report` on runs that were really trained, and on what is left of runs that went wrong."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tarfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from isogclr import demo_data
from isogclr.cli import main
from isogclr.report.canvas import Frame, draw
from isogclr.report.wording import share
from support.browser import emulate, open_page
from support.report_runs import make_run
from support.shard_writing import write_shard

SAMPLES = 240
HOSTILE = {
    "script": '<script>window.broken = 1</script><img src=x onerror="window.broken = 2">',
    "quotes": "\"><svg onload='window.broken = 3'> {{ 7 * 7 }} ${7 * 7} ]]> --> &lt; \\",
    "right-to-left": "שלום עולם \u202ereversed\u202c مرحبا",
    "emoji": "👩‍👩‍👧‍👦 🐝 é",
    "long": "word " * 2000,
    "control": "nul \x00 escape \x1b[31m bell \x07",
    "empty": "",
}


def emoji_shard(path: Path, pattern: str, number: int) -> Path:
    """The first emoji of the package, as a small shard of their own."""
    members = []
    with tarfile.open(pattern.replace("{000..007}", "000").replace("{000..001}", "000")) as archive:
        for member in archive.getmembers()[: 3 * number]:
            stream = archive.extractfile(member)
            assert stream is not None
            members.append((member.name, stream.read()))
    return write_shard(path, members)


def make_hostile(shard: Path) -> dict[str, str]:
    """Give the first samples captions and images that want to do harm; the keys stay. Returns key -> what."""
    members, changed = [], {}
    with tarfile.open(shard) as archive:
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            assert stream is not None
            members.append([member.name, stream.read()])
    for position, (what, text) in enumerate(HOSTILE.items()):
        members[3 * position + 1][1] = text.encode("utf-8")
        changed[members[3 * position][0].removesuffix(".webp")] = what
    members[3 * len(HOSTILE)][1] = b"no picture at all"
    members[3 * len(HOSTILE) + 3][1] = members[3 * len(HOSTILE) + 3][1][:80]
    shard.unlink()
    write_shard(shard, [(name, data) for name, data in members])
    return changed


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two runs on the same data, whose captions turned hostile after training, and their report."""
    folder = tmp_path_factory.mktemp("report")
    train = emoji_shard(folder / "data" / "train.tar", demo_data.TRAIN_DATA, SAMPLES)
    test = emoji_shard(folder / "data" / "test.tar", demo_data.TEST_DATA, 64)
    common = {"data": str(train), "test_data": str(test), "epochs": 3, "batch": 48}
    first = make_run(folder / "logs" / "isogclr", **common)
    second = make_run(folder / "logs" / "clip", loss="clip", **common)
    third = make_run(folder / "logs" / "other-tau", temperature_init=0.2, **common)
    changed = make_hostile(train)
    arguments = ["report", str(first), str(second), str(third), "--output", str(folder / "out"), "--row", "3"]
    assert main(arguments) == 0
    return {"folder": folder, "first": first, "changed": changed, "page": folder / "out" / "report.html"}


class Outline(HTMLParser):
    """Tags, addresses, inline handlers and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.identifiers: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.text += " "
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attributes:
            if name in ("src", "href", "action", "data", "xlink:href"):
                self.addresses.append(value or "")
            if name.startswith("on") or name == "style":
                self.handlers.append(name)
            if name == "id":
                self.identifiers.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_one_safe_file(world: dict[str, Any]) -> None:
    text = world["page"].read_text(encoding="utf-8")
    outline = Outline(text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; img-src data:; style-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    assert outline.tags["script"] == outline.tags["style"] == 1
    assert outline.handlers == []
    assert len(set(outline.identifiers)) == len(outline.identifiers)
    outside = [one for one in outline.addresses if not re.match(r"(data:image/|#|figures/|data/)", one)]
    assert outside == []
    assert len(text) < 3_000_000


def test_every_figure_has_its_files(world: dict[str, Any]) -> None:
    page = world["page"]
    files = [
        one for one in Outline(page.read_text(encoding="utf-8")).addresses if one.startswith(("figures", "data/"))
    ]
    names = {Path(one).stem for one in files if one.startswith("figures")}
    figures = {"loss", "recall", "final_temperatures", "temperature_curves", "epochs", "epochs_2", "health"}
    assert names == figures | {"semantics_neighbours", "semantics_words", "semantics_map"}
    for one in files:
        path = page.parent / one
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.width > 800
        else:
            with path.open(encoding="utf-8", newline="") as file:
                header, *lines = csv.reader(file)
            assert lines
            assert all(len(line) == len(header) for line in lines)


def test_hostile_captions_are_shown_as_text(world: dict[str, Any]) -> None:
    text = world["page"].read_text(encoding="utf-8")
    shown = Outline(text).text
    assert HOSTILE["script"] in shown
    assert HOSTILE["quotes"] in shown
    assert "nul \ufffd escape \ufffd[31m" in shown
    assert "9,600 more characters" in shown
    assert "empty caption" in shown
    assert "49" not in re.findall(r"onload='window.broken = 3'> (\d+)", shown)
    assert len(re.findall(r"no picture: the image can not be decoded", text)) >= 2
    with (world["page"].parent / "data" / "samples.csv").open(encoding="utf-8", newline="") as file:
        captions = {row["key"]: row["caption"] for row in csv.DictReader(file)}
    for key, what in world["changed"].items():
        assert captions[key] == HOSTILE[what]


def test_numbers_on_the_page_are_those_of_the_run(world: dict[str, Any]) -> None:
    lines = [json.loads(line) for line in (world["first"] / "metrics.jsonl").read_text().splitlines()]
    recall = [line for line in lines if line["kind"] == "val"][-1]["text_to_image_R@1"]
    with (world["page"].parent / "data" / "samples.csv").open(encoding="utf-8", newline="") as file:
        temperatures = [float(row["image_temperature"]) for row in csv.DictReader(file)]
    shown = " ".join(Outline(world["page"].read_text(encoding="utf-8")).text.split())
    assert f"R@1 text → image {share(recall)}" in shown
    assert f"image τ, mean ± sd {np.mean(temperatures):#.3g} ± {np.std(temperatures):#.2g}" in shown
    assert "All 240 visited samples were read." in shown
    assert "238 were embedded" in shown
    assert "isogclr (τ_init 0.05)" in shown
    assert "other-tau (τ_init 0.2)" in shown


def test_search_and_sorting_in_a_real_browser(world: dict[str, Any], tmp_path: Path) -> None:
    with open_page(world["page"], tmp_path) as browser:

        def rows() -> list[list[str]]:
            script = (
                "return Array.from(document.querySelectorAll('#sample-table tbody tr:not([hidden])'), "
                "row => Array.from(row.cells, cell => cell.innerText))"
            )
            found: list[list[str]] = browser.execute_script(script)
            return found

        assert len(rows()) == 50
        temperatures = [float(row[2]) for row in rows()]
        assert temperatures == sorted(temperatures, reverse=True)
        browser.find_element("css selector", "th[data-sort=text] button").click()
        assert [float(row[3]) for row in rows()] == sorted((float(row[3]) for row in rows()), reverse=True)
        browser.find_element("css selector", "th[data-sort=text] button").click()
        assert [float(row[3]) for row in rows()] == sorted(float(row[3]) for row in rows())
        assert browser.find_element("css selector", "th[aria-sort]").get_attribute("aria-sort") == "ascending"

        search = browser.find_element("id", "search")
        search.send_keys("ANIMAL")
        found = rows()
        assert 0 < len(found) < 50
        assert all("animal" in (row[1] + row[8]).lower() for row in found)
        assert browser.find_element("id", "found").text == f"{len(found)} of {total(browser)} samples"
        search.clear()
        search.send_keys("onerror")
        assert [row[1] for row in rows()] == [HOSTILE["script"]]
        search.clear()
        search.send_keys("nothing has these words")
        assert rows() == []

        browser.find_element("id", "more")
        search.clear()
        search.send_keys(" ")
        browser.find_element("id", "more").click()
        assert len(rows()) == 100


def total(browser: Any) -> int:
    return int(browser.execute_script("return document.querySelectorAll('#sample-table tbody tr').length"))


def test_the_map_shows_the_sample_under_the_pointer(world: dict[str, Any], tmp_path: Path) -> None:
    with open_page(world["page"], tmp_path) as browser:
        script = (
            "const dot = document.querySelector('.map circle');"
            "dot.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));"
            "return [dot.dataset.row, document.getElementById('map-sample').innerText]"
        )
        row, text = browser.execute_script(script)
        caption = browser.execute_script(f"return document.getElementById('s{row}').cells[1].textContent")
        assert "image τ" in text
        assert text.split("\n")[0].strip()[:20] == caption.strip()[:20]
        assert len(browser.find_elements("css selector", ".map circle.chosen")) == 2


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_no_errors_and_no_overflow(world: dict[str, Any], tmp_path: Path, width: int, dark: bool) -> None:
    with open_page(world["page"], tmp_path, width=width, dark=dark) as browser:
        assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []
        assert browser.execute_script("return window.broken") is None
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        broken = "return Array.from(document.images).filter(i => !i.complete || i.naturalWidth === 0).length"
        assert browser.execute_script(broken) == 0
        assert browser.execute_script("return document.images.length") >= 20
        outside = (
            "return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('data:'))"
        )
        assert browser.execute_script(outside) == []

        def shown(kind: str) -> int:
            script = f"return Array.from(document.querySelectorAll('.for-{kind}'), i => i.offsetWidth > 0)"
            return sum(browser.execute_script(script))

        assert (shown("light") > 0, shown("dark") > 0) == (not dark, dark)
        browser.find_element("id", "theme").click()
        assert (shown("light") > 0, shown("dark") > 0) == (dark, not dark)
        emulate(browser, dark=True, media="print")
        assert (shown("light") > 0, shown("dark") > 0) == (True, False)


def test_injected_code_is_stopped_by_the_policy(world: dict[str, Any], tmp_path: Path) -> None:
    """Even if escaping failed: neither inline scripts, handlers, styles nor remote pictures work."""
    text = world["page"].read_text(encoding="utf-8")
    attack = (
        "<script>window.broken = 4</script><img src=x onerror='window.broken = 5'>"
        "<p id=styled style='color: rgb(1, 2, 3)'>x</p>"
    )
    page = world["page"].with_name("attacked.html")
    page.write_text(text.replace("</main>", f"{attack}</main>"), encoding="utf-8")
    with open_page(page, tmp_path) as browser:
        assert browser.execute_script("return window.broken") is None
        colour = "return getComputedStyle(document.getElementById('styled')).color"
        assert browser.execute_script(colour) != "rgb(1, 2, 3)"
        refused = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
        assert len(refused) >= 3
        assert all("Content Security Policy" in message for message in refused)


def report(run: Path, *options: str) -> str:
    output = run.parent / f"{run.name}-report"
    assert main(["report", str(run), "--output", str(output), "--samples", "100", *options]) == 0
    return " ".join(Outline((output / "report.html").read_text(encoding="utf-8")).text.split())


@pytest.fixture
def copy(world: dict[str, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(world["first"], tmp_path / "copy"))


def test_sampling_is_stated(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(copy, "--no-embeddings")
    said = capsys.readouterr().err
    assert "reading samples of copy …" in said
    assert "embedding" not in said
    assert (
        "100 of 240 visited samples were drawn at random. The hottest and coldest are those of all samples." in text
    )
    assert "Embeddings were not asked for" in text
    assert "The hottest and the coldest samples" in text


def test_a_full_disk_is_one_line(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = copy.parent / "copy-report"
    report(copy, "--no-embeddings")
    for picture in (output / "figures").glob("*.png"):
        picture.unlink()
        picture.symlink_to("/dev/full")
    capsys.readouterr()
    assert main(["report", str(copy), "--output", str(output), "--no-embeddings"]) == 1
    error = capsys.readouterr().err
    assert f"isogclr: error: {output}: the disk is full, or a quota is used up: make room" in error
    assert "Traceback" not in error


def test_a_damaged_configuration_is_said_at_once(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the page, and to whoever waits for it."""
    (copy / "config.json").write_text('{"loss": ')
    report(copy, "--no-embeddings")
    assert "config.json" in capsys.readouterr().err


def test_a_name_in_another_script(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """The page has it; that the font of the figures lacks its letters is nobody's concern."""
    picture = draw(
        tmp_path,
        Frame("curves", "对比学习", "", ""),
        lambda panels, _: panels[0].set_title("对比学习"),
        {"run": ["=1"]},
    )
    assert picture.title == "对比学习"
    assert [str(one.message) for one in recwarn] == []
    assert (tmp_path / "data" / "curves.csv").read_text(encoding="utf-8") == "run\n'=1\n"


def test_a_run_that_was_killed(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "epochs": 9}))
    journal = copy / "metrics.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    newest = copy / "checkpoints" / "generations" / "generation-00000003"
    (newest / "manifest.json").write_bytes(b"{")
    text = report(copy, "--no-embeddings")
    assert "not complete: epoch 3.00 of 9, still training, or stopped" in text
    assert "metrics.jsonl: 1 line(s) can not be read" in text
    assert "step of the snapshot 10" in text  # of the generation before


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text("{}")
    text = report(tmp_path / "new")
    for note in ("No metrics.jsonl", "No committed store", "No model checkpoint", "nothing was logged yet"):
        assert note in text


def test_a_run_without_store(copy: Path) -> None:
    shutil.rmtree(copy / "checkpoints" / "generations")
    text = report(copy)
    assert "No committed store" in text
    assert "Retrieval on held-out data" in text
    assert "The hottest and the coldest samples" not in text


def test_a_damaged_store(copy: Path) -> None:
    for snapshot in (copy / "checkpoints" / "generations").glob("*/state.snapshot"):
        data = bytearray(snapshot.read_bytes())
        data[9000] ^= 1
        snapshot.write_bytes(data)
    text = report(copy)
    assert "Its store can not be read to the end" in text
    assert "Retrieval on held-out data" in text


def test_shards_that_moved(copy: Path, world: dict[str, Any], tmp_path: Path) -> None:
    data = shutil.copytree(world["folder"] / "data", tmp_path / "was" / "data")
    shutil.rmtree(copy / "index")
    assert main(["index", "build", str(copy / "index"), str(data / "train.tar"), "--quiet"]) == 0
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "index": str(copy / "index")}))
    moved = shutil.move(tmp_path / "was" / "data", tmp_path / "is")
    text = report(copy)
    assert "Shards that can not be read" in text
    assert "say where with --shards" in text
    assert "The hottest and the coldest samples" in text
    text = report(copy, "--shards", f"{moved}/train.tar")
    assert "Shards that can not be read" not in text
    assert "were embedded" in text


def test_an_index_of_other_data(copy: Path, world: dict[str, Any], tmp_path: Path) -> None:
    other = str(tmp_path / "other.index")
    assert main(["index", "build", other, str(world["folder"] / "data" / "test.tar"), "--quiet"]) == 0
    text = report(copy, "--index", other)
    assert "The index is not that of the store, so there are no pictures and captions" in text
    assert "The hottest and the coldest samples" in text


def test_a_checkpoint_that_does_not_load(copy: Path) -> None:
    (copy / "checkpoints" / "epoch_3.pt").write_bytes(b"no checkpoint")
    text = report(copy)
    assert "The model can not be loaded" in text
    assert "The hottest and the coldest samples" in text
    assert "Hard negatives What each sample" not in text


def test_packages_that_are_not_installed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isogclr.report.model_of_run.find_spec", lambda name: None if name == "sklearn" else name)
    text = report(copy)
    assert "Found no sklearn, so nothing on neighbours and hard negatives: `pip install isogclr[report]`." in text
    assert "The hottest and the coldest samples" in text


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert "expected a run" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nothing")]) == 1
    assert not list(tmp_path.iterdir())


def test_an_unknown_detail(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(copy), "--detail", "nobody"]) == 1
    assert "expected one of ['copy']" in capsys.readouterr().err


def test_thumbnails_beyond_the_room_are_left_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isogclr.report.page._ROOM_FOR_THUMBNAILS", 20_000)
    assert "were left out to keep the page small" in report(copy, "--no-embeddings")


def test_the_picture_in_a_shard_is_not_copied(world: dict[str, Any]) -> None:
    """Pictures are encoded anew, so that no byte that a decoder of a browser might stumble over gets in."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, format="WEBP", exif=b"Exif\0\0secret")
    assert b"secret" in buffer.getvalue()
    import base64  # noqa: PLC0415

    from isogclr.report.thumbnails import decode, thumbnail  # noqa: PLC0415

    address = thumbnail(decode(buffer.getvalue())).address
    assert b"secret" not in base64.b64decode(address.split(",")[1])
