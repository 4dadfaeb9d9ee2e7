"""What parts cost that hold no text: files, recordings, films and images.

No part costs the words of its base64. The rule, in this order:

* An image costs IMAGE_TOKENS.
* A PDF costs PAGE_TOKENS a page, if its bytes say how many it has (MOST_PAGES at most).
* A text file (`text/…`, JSON, CSV, XML) costs a token for each BYTES_PER_TOKEN of its bytes.
* Any other file costs a page for each BYTES_PER_PAGE begun.
* What is measured by its bytes costs at most MOST_TOKENS_BY_BYTES.
* A recording costs AUDIO_TOKENS_PER_SECOND, a film VIDEO_TOKENS_PER_SECOND: seconds as the part
  tells them, as the header of a WAV file says, else by the usual bytes a second of its kind.
* What the part only names (an address, an id) costs the flat figure of its kind.
* A part of an unknown kind costs UNKNOWN_TOKENS and its texts; data in it counts as a file.

Servers charge 250 to 3,000 tokens for a page, 10 to 32 for a second of sound, 70 to 300 for one of
film. These figures are in the upper half, and a server's own reports correct them by and by
(learned limits).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from chatapp.messages.parts import AUDIO, FILE, IMAGE, VIDEO, Attachment, data_size

IMAGE_TOKENS = 1200
"""What an image costs: as much as 4,800 characters, in the middle of what servers charge."""

PAGE_TOKENS = 1_500
MOST_PAGES = 1_000
BYTES_PER_PAGE = 50_000
BYTES_PER_TOKEN = 4
MOST_TOKENS_BY_BYTES = 30_000
AUDIO_TOKENS_PER_SECOND = 25
VIDEO_TOKENS_PER_SECOND = 260
MOST_SECONDS = 4 * 60 * 60
UNKNOWN_TOKENS = 100

FLAT_TOKENS: Mapping[str, int] = {
    IMAGE: IMAGE_TOKENS,
    FILE: 2 * PAGE_TOKENS,
    AUDIO: 30 * AUDIO_TOKENS_PER_SECOND,
    VIDEO: 20 * VIDEO_TOKENS_PER_SECOND,
}
"""What is of unknown size: two pages, half a minute of sound, twenty seconds of film."""

_TEXT_FORMS = ("json", "csv", "xml", "yaml", "javascript", "x-python", "x-sh", "sql", "x-ndjson")


def attachment_tokens(found: Attachment) -> int:
    """Return what a file, an image, a recording or a film costs, without the words it holds."""
    if found.kind == IMAGE:
        return IMAGE_TOKENS
    if found.text:
        return 0
    if found.kind == FILE:
        return _file_tokens(found)
    if found.seconds is None:
        return FLAT_TOKENS[found.kind]
    rate = AUDIO_TOKENS_PER_SECOND if found.kind == AUDIO else VIDEO_TOKENS_PER_SECOND
    return math.ceil(min(found.seconds, MOST_SECONDS) * rate)


def _file_tokens(found: Attachment) -> int:
    if found.pages:
        return min(found.pages, MOST_PAGES) * PAGE_TOKENS
    if found.size is None:
        return FLAT_TOKENS[FILE]
    if _is_text(found.media_type, found.name):
        return min(math.ceil(found.size / BYTES_PER_TOKEN), MOST_TOKENS_BY_BYTES)
    return tokens_by_size(found.size)


def tokens_by_size(size: int) -> int:
    """Return what so many bytes of a file cost, of which nothing else is known."""
    return min(math.ceil(size / BYTES_PER_PAGE) * PAGE_TOKENS, MOST_TOKENS_BY_BYTES)


def unknown_tokens(part: Mapping[str, object]) -> int:
    """Return what a part of an unknown kind costs besides the texts in it."""
    return UNKNOWN_TOKENS + tokens_by_size(data_size(part))


def _is_text(media_type: str, name: str) -> bool:
    family, _, form = media_type.partition("/")
    ending = name.rpartition(".")[2].lower()
    return family == "text" or form in _TEXT_FORMS or ending in ("txt", "md", "csv", "json", "log")
