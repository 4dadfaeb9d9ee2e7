"""Processes of a cluster, read from /proc: who belongs to whom, and who talks to a port."""

from __future__ import annotations

import contextlib
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the ids of all children and theirs."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def members(group: int) -> list[int]:
    """Return the ids of the processes of a group that are alive."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(folder.name))
    return found


def connected_to(pids: list[int], port: int) -> list[int]:
    """Return those that hold a TCP connection to a port on this machine."""
    sockets = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[2].rsplit(":", 1)[1], 16) == port and fields[3] == "01":
            sockets.add(f"socket:[{fields[9]}]")
    return [pid for pid in pids if sockets & _open_files(pid)]


def _open_files(pid: int) -> set[str]:
    links = set()
    with contextlib.suppress(OSError):
        for one in (Path("/proc") / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                links.add(str(one.readlink()))
    return links
