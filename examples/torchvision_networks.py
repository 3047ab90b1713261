"""Compile torchvision's networks from PyTorch and from ONNX, compare the programs and verify each privately.

    python examples/torchvision_networks.py [NAME ...] [--folder FOLDER] [--protocol trio]

Images are 64 × 64 and smooth, weights those of seed 0, BatchNorm statistics those of one batch of 64 images. Each
program is verified twice: in the clear on the images it was measured on, where the error must be the one in its report,
and privately on others. Needs `pip install torch torchvision onnxscript`. Prints two lines for each network and
ends with exit code 1 if any fails. A network that `compile` refuses is named with the reason and counts as passed.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision

import covey
from covey.models import pseudo_images

NAMES = (
    *("resnet18", "squeezenet1_1", "mobilenet_v2", "densenet121", "googlenet", "mobilenet_v3_large"),
    *("shufflenet_v2_x1_0", "regnet_y_400mf", "efficientnet_b0", "mnasnet1_0", "resnext50_32x4d"),
)
SIZE = 64
BATCH = 64
CALIBRATION = 8
SAMPLES = 4
SAME = 0.1
"""How far the error that `compile` reports may be from that which `verify` finds, as a part of it."""


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The network ready for inference, and the batch that its statistics come from."""
    torch.manual_seed(0)
    options = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
    module = getattr(torchvision.models, name)(weights=None, **options)
    images = torch.from_numpy(pseudo_images(BATCH, (3, SIZE, SIZE), 0))
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = None  # the plain mean over batches, of which there is one
    with torch.no_grad():
        module.train()(images)
    return module.eval(), images


def write(name: str, folder: Path) -> torch.Tensor:
    """The exported module, the ONNX model, and images to verify with, as files; the images to calibrate with."""
    module, images = network(name)
    torch.export.save(torch.export.export(module, (images[:2].clone(),)), folder / f"{name}.pt2")
    names = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(module, (images[:2],), folder / f"{name}.onnx", dynamo=False, **names)
    np.save(folder / f"{name}-measured.npy", images[:CALIBRATION].numpy())
    np.save(folder / f"{name}.npy", images[CALIBRATION : CALIBRATION + SAMPLES].numpy())
    return images[:CALIBRATION]


def compile_both(name: str, folder: Path, calibration: torch.Tensor) -> dict[str, Any]:
    """Both programs as files; the report of the first. Raises `InaccurateError` for one that is refused."""
    reports = []
    for suffix in ("pt2", "onnx"):
        source = folder / f"{name}.{suffix}"
        compiled = covey.compile(source, calibration=calibration, input_range=(0, 1))
        compiled.save(folder / f"{name}-{suffix}.covey")
        reports.append(compiled.report)
    return reports[0]


def run(*arguments: object) -> tuple[int, str]:
    """The covey command."""
    done = subprocess.run([sys.executable, "-m", "covey", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout


def verified(name: str, folder: Path, data: str, protocol: str) -> tuple[bool, dict[str, str]]:
    """Whether the program passes on a file of images, and what each check found."""
    program, model = folder / f"{name}-pt2.covey", folder / f"{name}.pt2"
    options = ["--data", folder / data, "--protocol", protocol, "--timeout", 60, "--json"]
    wrong, verdict = run("verify", program, "--model", model, *options)
    checks = json.loads(verdict)["checks"] if verdict else []
    return not wrong, {check["check"]: check["found"] for check in checks}


def ending(found: dict[str, str], end: str) -> str:
    """What the check whose name ends so found."""
    return next((text for check, text in found.items() if check.endswith(end)), "unknown")


def passes(name: str, folder: Path, protocol: str) -> bool:
    """Compile, compare and verify one network."""
    calibration = write(name, folder)
    start = time.perf_counter()
    try:
        report = compile_both(name, folder, calibration)
    except covey.InaccurateError as error:
        print(f"{name}: refused: {error}", flush=True)
        return True
    seconds = time.perf_counter() - start
    print(f"{name}: {report['why']}; {len(report['tables'])} tables; both compiled in {seconds:.0f} s")
    different, said = run("diff", folder / f"{name}-pt2.covey", folder / f"{name}-onnx.covey")
    fine, clear = verified(name, folder, f"{name}-measured.npy", "clear")
    exact, private = verified(name, folder, f"{name}.npy", protocol)
    error = ending(clear, "relative L2 error")
    (own,) = (entry["relative_error"] for entry in report["measured"]["outputs"])
    close = abs(own / (float(error.split("%")[0]) / 100) - 1) <= SAME if fine else False
    print(
        f"  {said.splitlines()[0] if said else 'diff failed'}; compile measured {own:.4%}, verify {error}; other "
        f"images: {ending(private, f'{protocol} against clear')}, error {ending(private, 'relative L2 error')}, "
        f"between samples {ending(private, 'variation between samples')}",
        flush=True,
    )
    return not different and fine and exact and close


def main() -> int:
    """All networks named."""
    parser = argparse.ArgumentParser(description="torchvision's networks through both importers.")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--folder", type=Path, help="keep the files here")
    parser.add_argument("--protocol", default="trio", help="that of the private run; clear for none")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.names:
            failed += not passes(name, folder, arguments.protocol)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
