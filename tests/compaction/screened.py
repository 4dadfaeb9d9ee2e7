"""A fixture for tests of the doctor: whatever is found in a session, the screening has named it."""

from __future__ import annotations

import pytest

from compaction.doctor import examine as examining
from compaction.doctor.screening import screen


@pytest.fixture(autouse=True)
def screened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a session has findings and a screening of it passes over any of them."""
    look = examining._look

    def looked(session_id):
        findings = list(look(session_id))
        # One that is looked for again is no fault of what is stored.
        if findings and findings[0].text != "Read too early.":
            codes = [one.code for one in findings]
            told = screen([session_id])
            assert session_id in told.suspected | told.at_work, codes
            if session_id in told.at_work:
                assert [one.code for one in examining._look_at_work(session_id)] == codes
        return iter(findings)

    monkeypatch.setattr(examining, "_look", looked)
