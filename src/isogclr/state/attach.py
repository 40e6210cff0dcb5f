"""How a rank joins the store that another process of its node has made."""

from __future__ import annotations

from pathlib import Path

from isogclr.errors import StoreAbandonedError, StoreError
from isogclr.state.live import LiveFile
from isogclr.state.lock import lock_holder, lock_path


def attach(path: Path, index_fingerprint: str, run: str | None) -> LiveFile:
    """Map the live file of a running writer, of this run and this index."""
    live = LiveFile.attach(path)
    try:
        require_writer(path)
        _check(live, index_fingerprint, run)
    except BaseException:
        live.close()
        raise
    return live


def require_writer(path: Path) -> None:
    """Refuse a live file whose writer process is gone: nobody knows what it contains."""
    if lock_holder(lock_path(path)) is None:
        raise StoreAbandonedError(
            f"{path}: found a live file whose writer process is gone, expected a running one: such a file is never "
            "trusted; restore the store from the latest generation"
        )


def _check(live: LiveFile, index_fingerprint: str, run: str | None) -> None:
    if run is not None and live.header.run != run:
        raise StoreAbandonedError(
            f"{live.path}: found the live file of run {live.header.run}, expected {run}: the ranks of this node do "
            "not share a state directory; give all of them the same one, and each run its own"
        )
    if live.header.index_fingerprint != index_fingerprint:
        raise StoreError(
            f"{live.path}: found a store of index {live.header.index_fingerprint}, expected {index_fingerprint}: "
            "the ranks of this node use different indexes; give all of them the same one"
        )
