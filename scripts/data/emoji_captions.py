"""Captions for emoji: find out what a drawing shows, and say it in words.

The styles name their pictures differently ("honeybee", "sakebottleandcup", "flag-for-flag-china"). A drawing is
first matched with an entry of emojibase (by code points, then by any of the names an emoji has), which gives its
label, tags and group. What remains has only its own name: a Unicode name, or words that are told apart with the
vocabulary of all the others.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from emoji_packages import Drawing, fetch, read_json
from emoji_spelling import FXEMOJI

TAGS = 3  # words beside the name in a caption, at most
_SHORTCODES = ("cldr", "emojibase", "emojibase-legacy", "github", "iamcal", "joypixels")
_UNICODE_SYMBOLS = range(0x2000, 0x1FB00)
_GROUP_OF_CATEGORY = {
    "Activities": "activities",
    "Activity": "activities",
    "Nature": "animals-nature",
    "Animals": "animals-nature",
    "Food": "food-drink",
    "Flags": "flags",
    "Objects": "objects",
    "People": "people-body",
    "Smiley": "smileys-emotion",
    "Smileys": "smileys-emotion",
    "Places": "travel-places",
    "Travel": "travel-places",
    "Symbols": "symbols",
}


@dataclass(frozen=True)
class Meaning:
    """What a drawing shows."""

    label: str
    tags: tuple[str, ...]
    group: str


def squeeze(name: str) -> str:
    """Letters and digits only: the same for "sake-bottle-and-cup" and "Sake bottle & cup"."""
    plain = unicodedata.normalize("NFKD", name.replace("&", "and")).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]", "", plain.lower())


class Dictionary:
    """Names of emoji, and words that names are made of."""

    def __init__(self, folder: Path) -> None:
        package = fetch("emojibase", folder)
        groups = read_json(package, "meta/groups.json")["groups"]
        entries = read_json(package, "en/data.json")
        self._by_hexcode = {_plain(entry["hexcode"]): _meaning(entry, groups) for entry in entries}
        for entry in entries:
            for skin in entry.get("skins", ()):
                meaning = _meaning({**skin, "tags": entry.get("tags", ())}, groups)
                self._by_hexcode[_plain(skin["hexcode"])] = meaning
        self._by_name: dict[str, Meaning] = {}
        for meaning in self._by_hexcode.values():
            self._by_name.setdefault(squeeze(meaning.label), meaning)
        self._unicode_names: dict[str, str] = {}
        self._add_unicode_names()
        for source in _SHORTCODES:
            self._add_shortcodes(read_json(package, f"en/shortcodes/{source}.json"))
        self._words = self._vocabulary()

    def meaning(self, drawing: Drawing) -> Meaning:
        if drawing.hexcode is not None and _plain(drawing.hexcode) in self._by_hexcode:
            return self._by_hexcode[_plain(drawing.hexcode)]
        name = _readable(drawing)
        if squeeze(name) in self._by_name:
            return self._by_name[squeeze(name)]
        first = re.split(r"[^A-Za-z]", drawing.category)[0]
        group = _GROUP_OF_CATEGORY.get(first, "symbols")
        spelt = drawing.style == "fxemoji" and drawing.icon in FXEMOJI
        return Meaning(name if spelt else self._own_words(name), (), group)

    def _own_words(self, name: str) -> str:
        if squeeze(name) in self._unicode_names:
            return self._unicode_names[squeeze(name)]
        return " ".join(
            self._split(part) if part.isalnum() and len(part) > 3 else part
            for part in re.split(r"[- ]+", name)
            if part
        )

    def _add_unicode_names(self) -> None:
        for code in _UNICODE_SYMBOLS:
            name = unicodedata.name(chr(code), "").lower()
            if name and f"{code:x}" in self._by_hexcode:
                self._by_name.setdefault(squeeze(name), self._by_hexcode[f"{code:x}"])
            elif name and "ideograph" not in name:
                self._unicode_names.setdefault(squeeze(name), name)

    def _add_shortcodes(self, shortcodes: dict[str, Any]) -> None:
        for hexcode, names in shortcodes.items():
            if _plain(hexcode) in self._by_hexcode:
                for name in [names] if isinstance(names, str) else names:
                    self._by_name.setdefault(squeeze(name), self._by_hexcode[_plain(hexcode)])

    def _vocabulary(self) -> frozenset[str]:
        phrases = [meaning.label for meaning in self._by_hexcode.values()]
        phrases += [tag for meaning in self._by_hexcode.values() for tag in meaning.tags]
        phrases += self._unicode_names.values()
        words = {word for phrase in phrases for word in re.findall(r"[a-z]{3,}", phrase.lower())}
        return frozenset(words | {"a", "of", "in", "on", "up", "no", "and", "to"})

    def _split(self, text: str) -> str:
        """The fewest words that make up the text; what is no known word stays in one piece."""

        @cache
        def best(start: int) -> tuple[int, tuple[str, ...]]:
            if start == len(text):
                return 0, ()
            choices = []
            for end in range(start + 1, len(text) + 1):
                word = text[start:end]
                cost = 1 if word in self._words or word.isdigit() else 3 + 2 * len(word)
                rest, words = best(end)
                choices.append((cost + rest, (word, *words)))
            return min(choices, key=lambda choice: (choice[0], len(choice[1]), choice[1]))

        return " ".join(best(0)[1])


def caption(drawing: Drawing, meaning: Meaning) -> str:
    """The label and a few of the tags that add a word to it; which of them depends on the style.

    So one emoji has different captions in different styles, as one thing has in the captions of people.
    """
    known = set(re.findall(r"\w+", meaning.label.lower()))
    fresh = [tag for tag in meaning.tags if not set(re.findall(r"\w+", tag.lower())) <= known]

    def draw(tag: str) -> bytes:
        return hashlib.sha256(f"{drawing.style}/{drawing.icon}/{tag}".encode()).digest()

    chosen = set(sorted(fresh, key=draw)[:TAGS])
    return ", ".join([meaning.label, *(tag for tag in fresh if tag in chosen)])


def _readable(drawing: Drawing) -> str:
    """The package's name without what only this package writes."""
    if drawing.style == "fxemoji":
        return FXEMOJI.get(drawing.icon, drawing.icon)
    if drawing.style == "streamline-emojis":
        return re.sub(r"-\d$", "", drawing.icon)  # the second drawing of the same thing
    return re.sub(r"^flag-for-(flag-)?", "flag-", drawing.icon)


def _plain(hexcode: str) -> str:
    """Code points without the variation selector, which only some packages write."""
    return hexcode.lower().replace("-fe0f", "")


def _meaning(entry: dict[str, Any], groups: dict[str, str]) -> Meaning:
    group = groups.get(str(entry.get("group", "")), "symbols")
    return Meaning(entry["label"], tuple(entry.get("tags", ())), group)
