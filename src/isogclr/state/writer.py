"""The thread that applies updates to the live file, away from the training step."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from isogclr.state.pending import Update


class WriterThread:
    """Applies updates in the order in which they were submitted, until one fails.

    After a failure nothing more is applied: the updates stay in the overlay of their store, which raises `error` at
    its next call.

    Args:
        apply: writes one update; numpy gives the interpreter free meanwhile, so a page fault in it stops no step.
    """

    def __init__(self, apply: Callable[[Update], None]) -> None:
        self._apply = apply
        self._queue: queue.SimpleQueue[Update | None] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="isogclr-store-writer", daemon=True)
        self._thread.start()

    def submit(self, update: Update) -> None:
        self._queue.put(update)

    def close(self) -> None:
        """Apply what was submitted, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (update := self._queue.get()) is not None:
            if self.error is None:
                try:
                    self._apply(update)
                except BaseException as error:
                    self.error = error
