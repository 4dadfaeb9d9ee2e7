"""What happened to people who run chat servers: each case by its id, through the whole product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compaction.support import NEVER
from tests.factories import profile
from tests.field.field_server import FieldServer
from tests.field.player import Checks, Play, expanded

pytestmark = pytest.mark.django_db(transaction=True)

CASES = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "cases" / "field"
# Named here, so that one that is missing from the folder is seen to be missing.
KNOWN = (
    "F01", "F02", "F03", "F04", "F05", "F06", "F07", "F09", "F11", "F11b", "F12", "F13", "F14",
    "F15", "F16", "F17", "F18", "F26", "F26c", "F36", "F37", "F45",
)  # fmt: skip
IDS = sorted({*KNOWN, *(path.stem for path in CASES.glob("F*.json"))})


@pytest.fixture(autouse=True)
def _quick(monkeypatch, queued):
    monkeypatch.setattr("chatapp.llm.openai_client.FIRST_WAIT_SECONDS", 0.01)


def case_of(name: str) -> dict[str, Any]:
    """Return a case; skip the test where there are no cases at all."""
    if not CASES.is_dir():
        pytest.skip("The folder shared/cases/field is not beside the checkout.")
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", IDS)
def test_what_is_right_comes_of_it(name, api, owner, use_models):
    case = case_of(name)
    answers = expanded(case.get("answers", []))
    script = (case.get("refusals", ()), answers, case.get("summary"), case.get("only_wire", ""))
    with FieldServer(*script) as server:
        entry = {
            "BACKEND": "chatapp.llm.openai_client.OpenAIModel",
            "NAME": "scripted",
            "CONTEXT_WINDOW": 128_000,
            "MAX_OUTPUT": 8192,
            "ENCODING": "",
            "API_KEY": "test",
            "BASE_URL": server.url,
        }
        use_models({"default": entry | case.get("model", {})})
        # The gate of the measure is on, as it is for whoever installs this.
        profile(**(NEVER | {"keep_last_n": 2, "quality_gate": True} | case.get("profile", {})))
        play = Play(case, server, api, owner)
        for step in case["steps"]:
            play.step(step)
        checks = Checks(play)
        faults = [fault for rule in case["right_checks"] if (fault := checks.fault(rule))]
    assert not faults, "\n".join(faults)
