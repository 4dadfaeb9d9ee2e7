"""Importers and exporters of conversations, one module a format.

`parse` reads a file of any format; `all_exports` names the forms that conversations are written in.
"""

from chatapp.formats.reading import Document
from chatapp.formats.records import (
    Conversation,
    FileLimits,
    ImportedMessage,
    ParsedFile,
    Problem,
    ProblemList,
    TooMuchInFileError,
    UnknownFormatError,
    visible_line,
)
from chatapp.formats.registry import Export, Format, all_exports, all_formats, file_endings, parse

__all__ = [
    "Conversation",
    "Document",
    "Export",
    "FileLimits",
    "Format",
    "ImportedMessage",
    "ParsedFile",
    "Problem",
    "ProblemList",
    "TooMuchInFileError",
    "UnknownFormatError",
    "all_exports",
    "all_formats",
    "file_endings",
    "parse",
    "visible_line",
]
