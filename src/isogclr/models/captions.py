"""Captions of any length and kind, in a time that does not depend on the length of their words.

open_clip's own tokenizer merges byte pairs in a time that is quadratic in the length of a word: one caption of
100,000 letters without a space holds up a data worker for minutes, to keep 75 tokens of it. So a caption is cut
between its cleaning and the byte pairs. Cleaning is linear, and may shrink a text without limit, as `&#0…065;`:
nothing could be cut before it.

What can not change, with `room` for context_length - 2 tokens of text:

* A caption that fits the context keeps its tokens. A word is at least one token, and no fewer than are needed to
  spell it with pieces of the vocabulary. So only words behind the first `room` words are left out, and a word is
  shortened only if more than `room` pieces are needed to spell it; both are captions that do not fit.
* A caption that does not fit keeps the tokens of all words up to the first that is shortened: tokens of a word
  depend on that word alone. A caption without a word that long keeps all its tokens.

What may change: the last tokens of a word that no context has room for. Merges near a cut can be others, and
nothing bounds how far that spreads; `SPARE_TOKENS` more than fit are left between the cut and what is kept.

For tokenizers of Hugging Face nothing is cut. They take linear time, and no cut would be safe: to WordPiece a word
of 101 letters or of a million is one unknown token, and T5's tokenizer makes one of any number of unknown letters.

Cleaning itself refuses captions that Python can not unescape: `&#0…065;` with more than 4,300 digits is a
ValueError, which would end the run. Such numbers are shortened, and only then.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from open_clip.tokenizer import HFTokenizer, SimpleTokenizer

HARMLESS_LETTERS = 256  # a text of this length is merged in milliseconds, whatever it is
SPARE_TOKENS = 16
_END_OF_WORD = "</w>"  # how the vocabulary marks a piece that ends a word
_REFERENCE = re.compile("&#0*([0-9]{1,7})[0-9]*")  # of a letter by its number; the largest has seven digits


def for_any_caption(tokenizer: Any) -> Any:
    """The same tokenizer, in bounded time. For calls that do not ask for another context length than its own."""
    if not isinstance(tokenizer, SimpleTokenizer | HFTokenizer):
        return tokenizer
    bounded = copy.copy(tokenizer)
    bounded.clean_fn = Clean(tokenizer.clean_fn)
    if isinstance(tokenizer, SimpleTokenizer):
        bounded.clean_fn = _cut_for(tokenizer, bounded.clean_fn)
    return bounded


def _cut_for(tokenizer: SimpleTokenizer, clean: Clean) -> CutCaption:
    return CutCaption(
        clean=clean,
        words=tokenizer.pat,
        vocabulary=tokenizer.encoder,
        symbols=tokenizer.byte_encoder,
        longest_piece=max(len(piece.removesuffix(_END_OF_WORD)) for piece in tokenizer.encoder),
        room=tokenizer.context_length - 2,  # beside the tokens of start and end
        only_first_words=tokenizer.reduction_fn is None,
    )


@dataclass(frozen=True)
class Clean:
    """A tokenizer's own cleaning, for captions that it refuses, too."""

    clean: Callable[[str], str]

    def __call__(self, text: str) -> str:
        try:
            return self.clean(text)
        except ValueError:  # of `html.unescape`, for a number of more digits than Python reads
            return self.clean(_REFERENCE.sub(r"&#\1", text))


@dataclass(frozen=True)
class CutCaption:
    """What takes the place of a tokenizer's cleaning: cleaning, then the cut.

    Args:
        clean: the tokenizer's own.
        words: its regular expression for words.
        vocabulary: its pieces; those that end a word are marked. All single bytes are among them.
        symbols: the letter that stands for a byte in the vocabulary.
        longest_piece: of the vocabulary, in bytes.
        room: how many tokens of text the context holds.
        only_first_words: whether the context holds the beginning of a caption. A tokenizer with a reduction mask
            draws from all of a caption: there, only words that are too long by themselves are shortened.
    """

    clean: Callable[[str], str]
    words: Any
    vocabulary: Mapping[str, int]
    symbols: Mapping[int, str]
    longest_piece: int
    room: int
    only_first_words: bool

    def __call__(self, text: str) -> str:
        cleaned = self.clean(text)
        return cleaned if len(cleaned) <= HARMLESS_LETTERS else self.cut(cleaned)

    def cut(self, text: str) -> str:
        kept, end, room = [], 0, self.room
        for match in self.words.finditer(text):
            if room <= 0:
                break
            word = match.group()
            length = self._enough(word, room + SPARE_TOKENS)
            kept.append(text[end : match.start() + length])
            end = match.end()
            if self.only_first_words:
                # At least so many tokens: letters are no more than bytes. What is cut fills the context.
                room -= -(-len(word) // self.longest_piece) if length == len(word) else room
        else:
            kept.append(text[end:])
        return "".join(kept)

    def _enough(self, word: str, tokens: int) -> int:
        """How many letters of a word are more than so many tokens, in the word and alone; all, if it has fewer."""
        if len(word) <= self.longest_piece:
            return len(word)
        encoded = word[: tokens * self.longest_piece + 1].encode("utf-8")
        spelled = self._spelled("".join(self.symbols[byte] for byte in encoded), tokens)
        if spelled >= len(encoded):
            return len(word)
        return len(encoded[: spelled + 1].decode("utf-8", errors="ignore")) + 1

    def _spelled(self, word: str, tokens: int) -> int:
        """The longest beginning of a word, in bytes, that can be spelled with so many pieces of the vocabulary."""
        fewest = [0]  # pieces, for the first 0, 1, 2, … bytes
        reached = 0
        for end in range(1, len(word) + 1):
            if end - reached > self.longest_piece:
                break
            starts = range(max(0, end - self.longest_piece), end)
            fewest.append(1 + min(fewest[start] for start in starts if self._is_piece(word[start:end])))
            if fewest[end] <= tokens:
                reached = end
        return reached

    def _is_piece(self, text: str) -> bool:
        return text in self.vocabulary or text + _END_OF_WORD in self.vocabulary
