"""Importers and exporters of conversations: pure Python, one module a format.

`parse` reads any of the formats; `export` writes OpenAI chat JSON and JSON lines.
"""

from chatapp.formats.detect import parse
from chatapp.formats.records import (
    Conversation,
    ImportedMessage,
    ParsedFile,
    Problem,
    UnknownFormatError,
)

__all__ = [
    "Conversation",
    "ImportedMessage",
    "ParsedFile",
    "Problem",
    "UnknownFormatError",
    "parse",
]
