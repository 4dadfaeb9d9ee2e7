"""A client of the product's API that knows nothing of Django."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from typing import Any


class Client:
    """A client of the product's API: JSON in, JSON or a stream's events out."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        status, text = self._ask(path, body)
        return status, json.loads(text)

    def stream(self, path: str, body: Any) -> list[tuple[str, Any]]:
        status, text = self._ask(path, body)
        assert status == 200, text
        events = re.findall(r"^event: (\w+)\ndata: (.*)$", text, re.MULTILINE)
        return [(name, json.loads(data)) for name, data in events]

    def _ask(self, path: str, body: Any) -> tuple[int, str]:
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        with contextlib.closing(line):
            data = None if body is None else json.dumps(body)
            line.request("POST" if data else "GET", f"/api/v1/{path}", data, self._headers)
            response = line.getresponse()
            return response.status, response.read().decode()
