"""Write a standard network with seeded, untrained weights as ONNX, for verifying and timing Covey.

    python examples/models.py resnet18-cifar resnet18.onnx
    python examples/models.py lenet5 lenet5.onnx --samples 4 --data lenet5.npy

A model's name is that of the architecture and the shape of its images, with `-avgpool` for AveragePool instead of
MaxPool; `covey.models` has the table. Sample images are smooth, differ from one another and lie in [0, 1].
"""

import argparse
from pathlib import Path

import numpy as np
import onnx

from covey import models

NAMES = {
    "lenet5" if shape == "mnist" else f"{model}-{shape}": (model, shape)
    for model, (_, shapes) in models.MODELS.items()
    for shape in shapes
}
SPECS = {
    name + suffix: models.Spec(model, shape, pool)
    for name, (model, shape) in NAMES.items()
    for suffix, pool in (("", "max"), ("-avgpool", "avg"))
}


def main() -> None:
    """Write a model, and sample images if asked."""
    parser = argparse.ArgumentParser(description="Write a standard network with seeded weights as ONNX.")
    parser.add_argument("model", choices=SPECS, metavar="MODEL", help=", ".join(SPECS))
    parser.add_argument("out", type=Path, help="the ONNX file to write")
    parser.add_argument("--data", type=Path, help="also write sample images, float32 .npy")
    parser.add_argument("--samples", type=int, default=4, help="how many sample images (default 4)")
    arguments = parser.parse_args()
    if arguments.samples < 1:
        parser.error("--samples must be at least 1")
    spec = SPECS[arguments.model]
    model, net = spec.network()
    onnx.save(model, arguments.out)
    print(f"wrote {arguments.out}, {arguments.out.stat().st_size:,} bytes")
    print(f"largest |activation| {net.largest:.2f}; at least {net.least_alive:.0%} of values alive after every ReLU")
    if arguments.data:
        np.save(arguments.data, models.samples(spec.shape, arguments.samples))
        print(f"wrote {arguments.data}, {arguments.samples} images")


if __name__ == "__main__":
    main()
