"""A second network beside that of the test, with a wire between the two that can be cut; Linux, root.

What runs in the other network reaches this one by `here`, and is reached by `there`. A second wire,
that is never cut, is the test's own: by `control` it still sees what goes on over there.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_CHUNK = 1 << 16


class OtherNetwork:
    """A context manager; the network and its wires are gone when it is left."""

    def __init__(self) -> None:
        self.name = f"rj{secrets.token_hex(3)}"
        low, high = secrets.randbelow(200) + 20, 4 * secrets.randbelow(60)
        self.here, self.there = (f"10.231.{low}.{high + end}" for end in (1, 2))
        self._control_here, self.control = (f"10.232.{low}.{high + end}" for end in (1, 2))
        self._left = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._left.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.close()

    def command(self, *words: str) -> list[str]:
        """A command line that runs another one over there; the process is that one itself."""
        return ["ip", "netns", "exec", self.name, *words]

    def program(self, program: Path, directory: Path) -> Path:
        """A program that is the same one, run over there."""
        script = directory / f"{program.name}-{self.name}"
        words = " ".join(self.command(str(program)))
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o700)
        return script

    def cut(self) -> None:
        """Let nothing through any more, in either direction; connections are not told."""
        _ip("route", "add", "blackhole", self.there)
        _ip("-n", self.name, "route", "add", "blackhole", self.here)

    def mend(self) -> None:
        """Let everything through again."""
        _ip("-n", self.name, "route", "del", "blackhole", self.here)
        _ip("route", "del", "blackhole", self.there)

    def forward(self, port: int) -> None:
        """Lead a port of this machine's loopback to the same one over there, by the test's own wire."""
        listener = socket.create_server(("127.0.0.1", port))
        self._left.callback(listener.close)
        threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    def _make(self) -> None:
        _ip("netns", "add", self.name)
        self._left.callback(_ip, "netns", "del", self.name)
        self._left.callback(self._clear)
        _ip("-n", self.name, "link", "set", "lo", "up")
        for letter, here, there in (
            ("a", self.here, self.there),
            ("c", self._control_here, self.control),
        ):
            near, far = f"{self.name}{letter}0", f"{self.name}{letter}1"
            _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
            # by hand: connections without an answer keep the network, and so its wires, for minutes
            self._left.callback(_ip, "link", "del", near)
            _ip("addr", "add", f"{here}/30", "dev", near)
            _ip("link", "set", near, "up")
            _ip("-n", self.name, "addr", "add", f"{there}/30", "dev", far)
            _ip("-n", self.name, "link", "set", far, "up")

    def _clear(self) -> None:
        """A blackhole belongs to no wire: it would outlive them."""
        with suppress(subprocess.CalledProcessError):
            _ip("route", "del", "blackhole", self.there)

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection((self.control, port))
            except OSError:
                near.close()
                continue
            threading.Thread(target=_join, args=(near, far), daemon=True).start()


def need_networks() -> None:
    """Skip a test where no network can be made."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root may make networks, with the program ip")
    name = f"rj{secrets.token_hex(3)}"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"no network can be made here: {refused.stderr.decode().strip()}")
    finally:
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", name)


def _join(near: socket.socket, far: socket.socket) -> None:
    """Lead both directions until one side ends."""
    with near, far:
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
