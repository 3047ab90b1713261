"""What the operator of a party sees in its log, and a client whose session waits for a place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from command import Command
from covey.client import Client
from covey.parties import write_configuration
from served import environment, place, samples


def test_a_session_waits_for_its_place_and_each_run_is_a_line(tmp_path: Path) -> None:
    x = tmp_path / "x.npy"
    np.save(x, samples(1, count=3))
    with place("trio", tmp_path) as served:
        for role, party in enumerate(served.served.parties):
            text = party.config.read_text()
            assert "[party]\n" in text
            party.config.write_text(text.replace("[party]\n", '[party]\nsessions = 1\nlog = "json"\n', 1))
            served.restart(role)
        call = [sys.executable, "-m", "covey", *map(str, served.call(x=x)), "--json"]
        pipe = subprocess.PIPE
        with Client(served.served.client_config).session(served.program):
            running = subprocess.Popen(call, stdout=pipe, stderr=pipe, text=True, env=environment())
            assert running.stderr is not None
            # The certificates of local parties expire soon, which is said first.
            told = next((line for line in running.stderr if line.startswith("waiting: ")), "")
        out, err = running.communicate(timeout=60)
        assert re.fullmatch(r"waiting: place 1 of 1 at party (alpha|beta|gamma)\n", told), told + err
        assert running.returncode == 0, err
        assert "y" in json.loads(out)["outputs"]
        for party in served.served.parties:
            # What a party wrote before its restart is text.
            lines = [line for line in party.log.read_text().splitlines() if line.startswith("{")]
            runs = [record for record in map(json.loads, lines) if record["message"] == "run"]
            assert [(run["client"], run["kind"], run["samples"]) for run in runs] == [("data-owner", "joint", 3)]


def test_unknown_log_formats_are_refused(command: Command, tmp_path: Path) -> None:
    config = write_configuration(tmp_path, ["alpha"], 3.0)[0].config
    command.refuses("party", "--config", config, "--log", "xml", saying="log format 'xml' is unknown: use text or json")
