"""Configuration files: what is pinned in them, and whose they are."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from covey import config

KEYS = {"alpha": f"covey:{1:064x}", "beta": f"covey:{2:064x}"}

PARTIES = "".join(f'[[party]]\nname = "{name}"\naddress = "{name}:1"\nfingerprint = ""\n' for name in KEYS)


def pinned(path: Path) -> dict[str, str]:
    return {entry["name"]: entry["fingerprint"] for entry in config.read(path).unwrap()["party"]}


def test_keys_pinned_at_once_are_all_pinned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(f'[client]\nname = "me"\nkey = "me.pem"\n{PARTIES}')
    both_have_read, read = threading.Barrier(2), config.read

    def reads_with_the_other(file: Path) -> Any:
        document = read(file)
        with suppress(threading.BrokenBarrierError):  # the other waits for the lock
            both_have_read.wait(timeout=0.3)
        return document

    with monkeypatch.context() as patched, ThreadPoolExecutor() as threads:
        patched.setattr(config, "read", reads_with_the_other)
        for pinning in [threads.submit(config.pin, path, {name: key}) for name, key in KEYS.items()]:
            pinning.result(timeout=10)
    assert pinned(path) == KEYS
    assert list(tmp_path.iterdir()) == [path]
