"""Compile torchvision's networks from PyTorch and from ONNX, compare the programs and verify each privately.

    python examples/torchvision_networks.py [NAME ...] [--folder FOLDER]

Images are 64 × 64, weights those of seed 0, BatchNorm statistics those of one seeded batch of 64. Needs
`pip install torch torchvision onnxscript`. Prints a line for each network and ends with exit code 1 if any differs.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import torchvision

import covey

NAMES = ("resnet18", "squeezenet1_1", "mobilenet_v2", "densenet121", "googlenet")
SIZE = 64
BATCH = 64
CALIBRATION = 8
SAMPLES = 4


def network(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The network ready for inference, and the batch that its statistics come from."""
    torch.manual_seed(0)
    options = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
    module = getattr(torchvision.models, name)(weights=None, **options)
    images = torch.rand(BATCH, 3, SIZE, SIZE)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = None  # the plain mean over batches, of which there is one
    with torch.no_grad():
        module.train()(images)
    return module.eval(), images


def compile_both(name: str, folder: Path) -> list[str]:
    """Both programs, the exported module and verification images, as files; how they were compiled."""
    module, images = network(name)
    torch.export.save(torch.export.export(module, (images[:2].clone(),)), folder / f"{name}.pt2")
    names = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(module, (images[:2],), folder / f"{name}.onnx", dynamo=False, **names)
    np.save(folder / f"{name}.npy", images[CALIBRATION : CALIBRATION + SAMPLES].numpy())
    why = []
    for suffix in ("pt2", "onnx"):
        source = folder / f"{name}.{suffix}"
        compiled = covey.compile(source, calibration=images[:CALIBRATION], input_range=(0, 1))
        compiled.save(folder / f"{name}-{suffix}.covey")
        why.append(compiled.report["why"])
    return why


def run(*arguments: object) -> tuple[int, str]:
    """The covey command."""
    done = subprocess.run([sys.executable, "-m", "covey", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout


def main() -> int:
    """Compile, compare and verify."""
    parser = argparse.ArgumentParser(description="torchvision's networks through both importers.")
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--folder", type=Path, help="keep the files here")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.names:
            why = compile_both(name, folder)[0]
            program, model = folder / f"{name}-pt2.covey", folder / f"{name}.pt2"
            different, said = run("diff", program, folder / f"{name}-onnx.covey")
            wrong, verdict = run("verify", program, "--model", model, "--data", folder / f"{name}.npy", "--json")
            found = {entry["check"]: entry["found"] for entry in json.loads(verdict)["checks"]} if verdict else {}
            error = next((text for check, text in found.items() if check.endswith("relative L2 error")), "unknown")
            private = next((text for check, text in found.items() if check.endswith("trio against clear")), "unknown")
            print(
                f"{name}: {said.splitlines()[0] if said else 'diff failed'}; {why}; {private}; error {error}",
                flush=True,
            )
            failed += bool(different or wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
