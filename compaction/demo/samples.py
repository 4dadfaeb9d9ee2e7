"""The sample conversations that come along, and a question about one of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps

from chatapp.models import Session
from chatapp.transfer import import_file

# The model without a server: the demo needs no key and calls nobody, whatever OPENAI_* says.
MODEL = "embedded"
# The conversation that the demo asks about; the answer stands in the part that is summarised.
ASKED_FILE = "coding_agent"
QUESTION = "At what time does the 01:15 Lisbon job run on 30 March?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One stored sample conversation; `file` is its name, `added` what this import stored."""

    session: Session
    file: str
    added: int


def store_samples(owner: Any) -> list[Sample]:
    """Store the sample conversations and return them; a second time adds nothing."""
    return [
        Sample(session=item.session, file=path.stem, added=item.messages_added)
        for path in _files()
        for item in import_file(
            owner=owner, content=path.read_bytes(), name=path.name, model=MODEL
        ).imported
    ]


def _files() -> list[Path]:
    return sorted(Path(apps.get_app_config("chatapp").path, "samples").glob("*.json"))
