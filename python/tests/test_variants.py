"""Networks made for private inference: two of their forms, privately and against the specification."""

from __future__ import annotations

from pathlib import Path

import pytest

from covey import models
from covey.model import load
from covey.parties import Parties
from variants import compiled, measured

SPECS = [
    models.ImageSpec("mobilenetv3-large", "imagenet", operator="x", size=32, classes=14),
    models.ImageSpec("shufflenetv2", "imagenet", operator="shuffle", size=32, classes=14),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_forms_come_to_the_specification_and_moves_send_nothing(
    spec: models.ImageSpec, parties: Parties, tmp_path: Path
) -> None:
    row = measured(spec, load(compiled(spec, tmp_path)), parties, "trio")
    assert (row["differing"], row["sending"], row["unplanned"]) == (0, [], 0)
    assert row["moves"] >= 16  # the shuffles of blocks, and of ShuffleNet's units
    assert 0 < row["multiplications"] < row["bytes"]
