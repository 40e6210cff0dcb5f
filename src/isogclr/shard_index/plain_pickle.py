"""Lists, dictionaries, text, numbers and arrays of bytes out of a pickle, without running it.

A pickle is a program, and loading one that a stranger has written runs whatever he wished. The archives of CIFAR
are pickles. So nothing is loaded here: `pickletools` cuts the file into its instructions, and those few are
followed that the official files consist of. Any other instruction, and any name beyond numpy's three for an array,
is refused. An array is not copied either: what is returned is its place in the file, which can be mapped.
"""

from __future__ import annotations

import math
import mmap
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

_SMALL = 1 << 12  # longer bytes are the payload of an array: their place is kept, not they
_RECONSTRUCT, _NDARRAY, _DTYPE = "_reconstruct", "ndarray", "dtype"
_KNOWN_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _DTYPE,
}
_HEADS = {"BINSTRING": 5, "BINBYTES": 5, "SHORT_BINBYTES": 2, "SHORT_BINSTRING": 2, "BINBYTES8": 9}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "INT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = {"PROTO", "FRAME", "STOP"}


class PlainPickleError(ValueError):
    """A file that is cut short, or that holds more than plain data."""


@dataclass(frozen=True)
class ArrayPlace:
    """An array of bytes (uint8) that lies in the file as it is."""

    shape: tuple[int, ...]
    start: int
    is_fortran: bool


class _Global(NamedTuple):
    name: str


class _Blob(NamedTuple):
    start: int
    size: int


class _Mark:
    pass


class _Dtype(NamedTuple):
    name: str


@dataclass
class _Array:
    """An array between its `_reconstruct` and the state that says what is in it."""

    place: ArrayPlace | None = None


def read_plain(path: Path) -> Any:
    """What the file holds: `dict`, `list`, `tuple`, `str`, `int`, `bool`, None and `ArrayPlace`."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise PlainPickleError("it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            reader = _Reader()
            try:
                for instruction, argument, position in pickletools.genops(
                    cast("Any", mapped)
                ):  # reads as a file does
                    reader.follow(instruction.name, argument, position or 0)
            except PlainPickleError:
                raise
            except ValueError as error:  # what `genops` says of a file that ends too early
                raise PlainPickleError(f"it is cut short or damaged ({error})") from None
            except (IndexError, KeyError, TypeError, AttributeError) as error:
                raise PlainPickleError(f"its instructions make no sense ({error!r})") from None
    return reader.result()


class _Reader:
    """A stack, a memory, and the instructions that are followed."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}
        self._actions: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self._stack.append(_Mark()),
            "EMPTY_DICT": lambda _: self._stack.append({}),
            "EMPTY_LIST": lambda _: self._stack.append([]),
            "APPEND": lambda _: self._below(1).append(self._stack.pop()),
            "APPENDS": lambda _: self._append(self._since_mark()),
            "SETITEM": lambda _: self._set_items(self._take(2)),
            "SETITEMS": lambda _: self._set_items(self._since_mark()),
            "TUPLE": lambda _: self._stack.append(tuple(self._since_mark())),
            "BINPUT": self._remember,
            "LONG_BINPUT": self._remember,
            "MEMOIZE": lambda _: self._remember(len(self._memory)),
            "BINGET": lambda number: self._stack.append(self._memory[number]),
            "LONG_BINGET": lambda number: self._stack.append(self._memory[number]),
            "GLOBAL": lambda name: self._name(*name.split(" ", 1)),
            "STACK_GLOBAL": lambda _: self._name(*self._take(2)),
            "REDUCE": lambda _: self._reduce(*self._take(2)),
            "BUILD": lambda _: self._build(self._stack.pop()),
        }

    def follow(self, name: str, argument: Any, position: int) -> None:
        if name in _VALUES:
            self._stack.append(argument)
        elif name in _HEADS:
            self._push_bytes(argument, position + _HEADS[name])
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self._stack.append(tuple(self._take(_TUPLES[name])))
        elif name in self._actions:
            self._actions[name](argument)
        elif name not in _IGNORED:
            raise PlainPickleError(
                f"it holds the instruction {name} at byte {position:,}, which plain data has not"
            )

    def result(self) -> Any:
        if len(self._stack) != 1 or isinstance(self._stack[0], _Global | _Dtype | _Blob | _Mark):
            raise PlainPickleError(f"it leaves {len(self._stack)} values, expected one, of plain data")
        return _plain(self._stack[0])

    def _push_bytes(self, content: str | bytes, start: int) -> None:
        """Python 2 wrote text as bytes, and the payload of arrays too."""
        if len(content) > _SMALL:
            self._stack.append(_Blob(start, len(content)))
        else:
            self._stack.append(content if isinstance(content, str) else content.decode("latin-1"))

    def _take(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise IndexError("too few values")
        first = len(self._stack) - count
        taken = self._stack[first:]
        del self._stack[first:]
        return taken

    def _below(self, depth: int) -> list[Any]:
        found = self._stack[-1 - depth]
        if not isinstance(found, list):
            raise TypeError(f"expected a list, found {type(found).__name__}")
        return found

    def _since_mark(self) -> list[Any]:
        above = (place for place, value in enumerate(reversed(self._stack)) if isinstance(value, _Mark))
        count = next(above, len(self._stack) + 1)  # one more than there are: an error
        taken = self._take(count)
        self._stack.pop()
        return taken

    def _append(self, values: list[Any]) -> None:
        self._below(0).extend(values)

    def _set_items(self, pairs: list[Any]) -> None:
        found = self._stack[-1]
        if not isinstance(found, dict):
            raise TypeError(f"expected a dictionary, found {type(found).__name__}")
        found.update(zip(pairs[::2], pairs[1::2], strict=True))

    def _remember(self, number: int) -> None:
        self._memory[number] = self._stack[-1]

    def _name(self, module: str, name: str) -> None:
        if (module, name) not in _KNOWN_NAMES:
            raise PlainPickleError(
                f"it asks for {module}.{name}, which CIFAR's own files do not: another program has written it, or "
                "it is meant to run code; get the file from its official place"
            )
        self._stack.append(_Global(_KNOWN_NAMES[module, name]))

    def _reduce(self, function: Any, arguments: Any) -> None:
        if function == _Global(_RECONSTRUCT) and arguments[0] == _Global(_NDARRAY):
            self._stack.append(_Array())
        elif function == _Global(_DTYPE):
            self._stack.append(_Dtype(str(arguments[0])))
        else:
            raise PlainPickleError("it calls something that is neither an array nor the type of one")

    def _build(self, state: Any) -> None:
        target = self._stack[-1]
        if isinstance(target, _Dtype):
            return  # byte order and the like, which single bytes have not
        if not isinstance(target, _Array):
            raise PlainPickleError("it sets the state of something that is no array")
        _, shape, dtype, is_fortran, payload = state
        if dtype != _Dtype("u1") or not isinstance(payload, _Blob) or math.prod(shape) != payload.size:
            raise PlainPickleError(
                f"it holds an array of {dtype} and shape {shape}, expected bytes (uint8) that fill it"
            )
        target.place = ArrayPlace(tuple(shape), payload.start, bool(is_fortran))


def _plain(value: Any) -> Any:
    """Without what was only needed on the way; two levels are enough for the files that are read."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value.place if isinstance(value, _Array) else value
