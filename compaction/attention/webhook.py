"""One POST of JSON to an address of the settings: a time limit, no redirect, no private address.

The name is resolved once and the connection goes to the address that was checked, so that a name
server that answers differently the second time leads nowhere else.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

PORTS = {"http": 80, "https": 443}


class WebhookError(Exception):
    """The other side was not told; the text is a sentence, without the address's secrets."""


def problem_with(url: str) -> str:
    """Return why an address can be no webhook; nothing where it can be one."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    return "" if known else "It must be an address that begins with https:// or http://."


def post_json(url: str, body: Mapping[str, Any], *, seconds: int, allow_private: bool) -> None:
    """Send the body; raise WebhookError unless the other side answers with 2xx.

    A redirect is an answer like any other: it is not followed. `seconds` limits each wait.
    """
    if problem := problem_with(url):
        raise WebhookError(problem)
    parts = urlsplit(url)
    port = parts.port or PORTS[parts.scheme]
    try:
        with closing(_connection(parts, port, seconds=seconds, allow_private=allow_private)) as to:
            path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
            to.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            status = to.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise WebhookError(f"The webhook could not be told: {type(error).__name__}.") from error
    if not 200 <= status < 300:
        raise WebhookError(f"The webhook answered with HTTP status {status}.")


def _connection(
    parts: SplitResult, port: int, *, seconds: int, allow_private: bool
) -> http.client.HTTPConnection:
    """Return a connection to the first address of the name that may be gone to."""
    host = str(parts.hostname)
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    allowed = [each for each in found if allow_private or is_public(each)]
    if not allowed:
        raise WebhookError(
            "The webhook is on a private address: COMPACTION_ALERT_WEBHOOK_PRIVATE allows that."
        )
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    plain = socket.create_connection((allowed[0], port), timeout=seconds)
    if parts.scheme == "http":
        connection.sock = plain
        return connection
    try:
        connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
    return connection


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet: none of this machine or its network."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped.is_global
    return found.is_global and not found.is_multicast
