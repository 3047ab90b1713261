"""Configuration files: what is pinned in them, and whose they are."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from command import DIGITS, Command
from covey import config
from covey.errors import CoveyError

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


def test_a_key_is_pinned_for_one(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(f'[client]\nname = "me"\nkey = "me.pem"\n{PARTIES}')
    config.pin(path, {"beta": KEYS["beta"]})
    before = path.read_bytes()
    command.refuses("keys", "pin", path, "alpha", KEYS["beta"], saying="'alpha' would have the key of 'beta'")
    assert path.read_bytes() == before
    config.pin(path, {"alpha": KEYS["beta"], "beta": KEYS["alpha"]})
    assert pinned(path) == {"alpha": KEYS["beta"], "beta": KEYS["alpha"]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_a_file_stays_its_owners(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text(f'[client]\nname = "me"\nkey = "me.pem"\n{PARTIES}')
    path.chmod(0o640)
    os.chown(path, 4321, 8765)
    config.pin(path, {"alpha": KEYS["alpha"]})
    assert pinned(path) == {"alpha": KEYS["alpha"], "beta": ""}
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4321, 8765, 0o640)

    def refused(*_: object) -> None:
        raise PermissionError

    before = path.read_bytes()
    monkeypatch.setattr(os, "fchown", refused)  # as for a user who may write in the folder of another
    with pytest.raises(CoveyError, match=r"belongs to user 4321 and group 8765 .*: run this as that user or as root"):
        config.pin(path, KEYS)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_kind_of_file_is_named(command: Command, tmp_path: Path) -> None:
    calls = {
        "party": ("party", "--name", "alpha", "--peer", "beta=b:1", "--peer", "gamma=g:1"),
        "dealer": ("dealer", "--peer", "alpha=a:1", "--peer", "beta=b:1"),
        "owner": ("owner", "--peer", "alpha=a:1"),
    }
    for call in calls.values():
        command.succeeds("init", *call, "--out", tmp_path)
    party, dealer, owner = (tmp_path / f"{name}.toml" for name in calls)
    program, x = "model.covey", DIGITS / "test-images.npy"
    for call in (
        ("infer", program, "--input", x),
        ("infer", program, "--input", x, "--protocol", "trio"),
        ("share-weights", program),
        ("store", "show", program),
        ("store", "fill", program),
    ):
        line = command.refuses(*call, "--config", party, saying=f"'{party}' is a party's file")
        assert "`covey party` takes" in line and "give owner.toml or client.toml" in line
    command.refuses("infer", program, "--input", x, "--config", dealer, saying="a dealer's file, which `covey dealer`")
    for name in ("party", "dealer"):
        line = command.refuses(name, "--config", owner, saying=f"'{owner}' is a client's file")
        assert "`covey infer` take" in line and f"give {name}.toml" in line
