"""covey init: keys and configuration files that daemons and clients read as they are, once fingerprints are pinned."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import tomlkit

import covey
from command import Command
from covey.clear import run_clear
from covey.config import protocol_for
from covey.model import load
from covey.parties import Party, free_addresses
from served import network, samples

PEERS = ("--peer", "beta=beta.example:7100", "--peer", "gamma=gamma.example:7100")


def read(path: Path) -> dict[str, object]:
    return tomlkit.parse(path.read_text("utf-8")).unwrap()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_party(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "alpha"
    made = command.succeeds("init", "party", "--name", "alpha", "--listen", "0.0.0.0:7200", *PEERS, "--out", folder)
    config, key = folder / "party.toml", folder / "alpha.pem"
    assert made.out.strip() == command.succeeds("keys", "show", key).out.split()[3]
    assert (mode(folder), mode(key), mode(config)) == (0o700, 0o600, 0o600)
    assert read(config) == {
        "party": {"name": "alpha", "listen": "0.0.0.0:7200", "key": "alpha.pem"},
        "peer": [
            {"name": "beta", "address": "beta.example:7100", "fingerprint": ""},
            {"name": "gamma", "address": "gamma.example:7100", "fingerprint": ""},
        ],
        "client": [
            {"name": "owner", "fingerprint": "", "may": ["share-weights"]},
            {"name": "data", "fingerprint": "", "may": ["infer"]},
        ],
    }
    pins = "beta covey:… gamma covey:… owner covey:… data covey:…"
    assert f"\n  covey keys pin {config} {pins}\n" in made.err
    assert f"\n  covey party --config {config}\n" in made.err


def test_a_party_with_limits_a_dealer_and_a_state(command: Command, tmp_path: Path) -> None:
    command.succeeds(
        *("init", "party", "--name", "alpha", "--peer", "beta=b:1", "--dealer", "carol=c:1", "--out", tmp_path),
        *("--client", "bank=share-weights,infer", "--client", "clinic", "--queries", 9, "--round-bits", 3),
        *("--state", tmp_path / "kept", "--protocol", "beaver"),
    )
    found = read(tmp_path / "party.toml")
    assert found["party"]["state"] == str(tmp_path / "kept")
    assert found["peer"][1] == {"name": "carol", "role": "dealer", "address": "c:1", "fingerprint": ""}
    limits = {"queries": 9, "round_bits": 3}
    assert found["client"] == [
        {"name": "bank", "fingerprint": "", "may": ["share-weights", "infer"], **limits},
        {"name": "clinic", "fingerprint": "", "may": ["infer"], **limits},
    ]


@pytest.mark.parametrize(("kind", "file"), [("owner", "owner.toml"), ("client", "client.toml")])
def test_clients_have_their_protocol_in_the_file(command: Command, tmp_path: Path, kind: str, file: str) -> None:
    made = command.succeeds("init", kind, "--name", "me", "--peer", "alpha=a:1", *PEERS, "--out", tmp_path)
    found = read(tmp_path / file)
    assert found["client"] == {"name": "me", "key": "me.pem", "protocol": "trio"}
    assert [entry["name"] for entry in found["party"]] == ["alpha", "beta", "gamma"]
    then = "covey share-weights model.covey" if kind == "owner" else "covey infer model.covey"
    assert f"\n  {then} --config {tmp_path / file}" in made.err


def test_nothing_is_overwritten(command: Command, tmp_path: Path) -> None:
    call = ("init", "client", "--peer", "server=s:1", "--out", tmp_path)
    fingerprint = command.succeeds(*call).out
    config, key = tmp_path / "client.toml", tmp_path / "data.pem"
    before, private = config.read_bytes(), key.read_bytes()
    command.refuses(*call[:-4], "--peer", "other=o:1", *call[-2:], saying="'" + str(config) + "' exists already")
    assert config.read_bytes() == before
    forced = command.succeeds(*call[:-4], "--peer", "other=o:1", *call[-2:], "--force")
    assert read(config)["party"][0]["name"] == "other"
    assert key.read_bytes() == private and forced.out == fingerprint and "kept the key" in forced.err
    os.chmod(key, 0o644)  # and a key that others can read is none to build on
    config.unlink()
    command.refuses(*call, saying="chmod 600")
    assert not config.exists()


@pytest.mark.parametrize(
    ("call", "saying"),
    [
        (("party", "--name", "alpha", "--peer", "beta"), "NAME=HOST:PORT"),
        (("party", "--name", "alpha", "--peer", "beta=b:port"), "'b:port' is no address"),
        (("party", "--name", "alpha", "--peer", "alpha=a:1"), "'alpha' is named twice"),
        (("party", "--name", "alpha", *PEERS, "--client", "beta"), "'beta' is named twice"),
        (("party", "--name", "alpha", *PEERS, "--client", "data=everything"), "'everything' is no right"),
        (("party", "--name", "alpha", *PEERS, "--listen", "7100"), "--listen: '7100' is no address"),
        (("party", "--name", "alpha", *PEERS, "--protocol", "quad"), "3 computing parties are not what quad takes"),
        (("party", "--name", "alpha", *PEERS, "--protocol", "clear"), "clear has no parties"),
        (("party", "--name", "../alpha", *PEERS), "'../alpha'"),
        (("party", "--name", "", *PEERS), "is no name"),
        (("party", "--name", "a" * 33, *PEERS), "1 to 32"),
        (("party", "--name", "alpha", *PEERS, "--days", "0"), "1 to 3650"),
        (("dealer", "--peer", "alpha=a:1"), "1 computing party and a dealer"),
        (("owner",), "0 computing parties are not what any protocol takes"),
        (("client", *PEERS, "--dealer", "d"), "--dealer 'd'"),
    ],
)
def test_wrong_calls_write_nothing(command: Command, tmp_path: Path, call: tuple[str, ...], saying: str) -> None:
    command.refuses("init", *call, "--out", tmp_path / "new", saying=saying)
    folder = tmp_path / "new"
    assert not folder.exists() or not list(folder.iterdir())


def test_names_are_quoted(command: Command, tmp_path: Path) -> None:
    made = command.succeeds("init", "client", "--name", 'my "key"', "--peer", "the server=s:1", "--out", tmp_path)
    assert read(tmp_path / "client.toml")["client"]["key"] == 'my "key".pem'
    (pin,) = re.findall(r"covey (keys pin .*) covey:…", made.err)
    assert shlex.split(pin)[-1] == "the server"


def test_a_missing_fingerprint_says_where_it_comes_from(command: Command, tmp_path: Path) -> None:
    command.succeeds("init", "party", "--name", "alpha", *PEERS, "--out", tmp_path)
    command.succeeds("init", "client", "--peer", "alpha=a:1", *PEERS, "--out", tmp_path)
    party, client = tmp_path / "party.toml", tmp_path / "client.toml"
    for config, name, call in (
        (party, "beta", ("party",)),
        (client, "alpha", ("doctor",)),
    ):
        line = command.refuses(*call, "--config", config, saying=f"the fingerprint of '{name}' is missing")
        assert "`covey keys show`" in line and f"`covey keys pin {config} {name} covey:…`" in line
    command.succeeds("keys", "pin", party, "beta", f"covey:{1:064x}", "gamma", f"covey:{2:064x}")
    command.refuses("party", "--config", party, saying="the fingerprint of 'owner' is missing")


def test_what_init_writes_serves_and_needs_no_protocol(command: Command, tmp_path: Path) -> None:
    """A server, a model owner and a data owner, from nothing to a result, by the commands that `init` prints."""
    (address,) = free_addresses(1)
    program = network(3).save(tmp_path / "model.covey")[0]
    calls = {
        "server": ("party", "--name", "server", "--listen", address),
        "owner": ("owner", "--peer", f"server={address}"),
        "data": ("client", "--peer", f"server={address}"),
    }
    configs = {"server": "party.toml", "owner": "owner.toml", "data": "client.toml"}
    made = {name: command.succeeds("init", *call, "--out", tmp_path / name) for name, call in calls.items()}
    for name, outcome in made.items():
        (pins,) = re.findall(r"covey (keys pin .*)", outcome.err)
        for other, theirs in made.items():
            pins = pins.replace(f" {other} covey:…", f" {other} {theirs.out.strip()}")
        command.succeeds(*shlex.split(pins))
        text = (tmp_path / name / configs[name]).read_text("utf-8")
        assert "# covey keys pin" in text and "# never leaves this machine" in text  # pinning keeps comments
    server = Party("server", tmp_path / "server" / "party.toml")
    server.spawn()
    try:
        server.wait_until_ready()
        owner, data = tmp_path / "owner" / "owner.toml", tmp_path / "data" / "client.toml"
        command.succeeds("doctor", "--config", data)
        command.succeeds("share-weights", program, "--config", owner)
        x = samples(4)
        np.save(tmp_path / "x.npy", x)
        command.succeeds("infer", program, "--config", data, "--input", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
        expected = next(iter(run_clear(load(program), x).outputs.values()))
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
        again = covey.Client(data).infer(load(program), x)
        np.testing.assert_array_equal(next(iter(again.outputs.values())), expected)
        command.refuses(
            *("infer", program, "--config", data, "--input", tmp_path / "x.npy", "--protocol", "trio"),
            saying="1 party where trio takes",
        )
    finally:
        server.stop()


def test_the_protocol_of_a_file(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "client.toml"
    entry = '[[party]]\nname = "{}"\naddress = "a:1"\nfingerprint = ""\n'
    three = "".join(entry.format(name) for name in ("a", "b", "c"))
    config.write_text(f"[client]\n{three}")
    assert protocol_for(config, None) == "trio"
    assert protocol_for(config, "quad") == "quad"
    config.write_text(f"[client]\n{three}{entry.format('d')}")
    assert protocol_for(config, None) == "quad"
    config.write_text(f'[client]\nprotocol = "two-party"\n{three}')
    assert protocol_for(config, None) == "two-party"
    assert protocol_for(config, "trio") == "trio"
    for wrong in ('"clear"', '"quintet"', "3", "[]"):
        config.write_text(f'[client]\nname = "me"\nkey = "me.pem"\nprotocol = {wrong}\n{three}')
        np.save(tmp_path / "x.npy", np.zeros((1, 3)))
        command.refuses(
            "infer", "--config", config, "--input", tmp_path / "x.npy", saying="use trio, quad, two-party or beaver"
        )
