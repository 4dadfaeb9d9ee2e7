"""A secret key for machines that were given none: made once, kept in the data folder."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def local_secret_key(data_dir: Path) -> str:
    """Return the key in `data_dir`/secret_key, making the file (mode 600) where it is missing.

    Two processes that start at once agree on one key: a finished file is linked into place, which
    fails for the second one.
    """
    path = data_dir / "secret_key"
    if not path.exists():
        draft = data_dir / f"secret_key.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(50))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text().strip()
