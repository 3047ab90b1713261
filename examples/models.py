"""Write a standard network with seeded, untrained weights as ONNX, for verifying and timing Covey.

    python examples/models.py resnet18-cifar resnet18.onnx
    python examples/models.py lenet5 lenet5.onnx --samples 4 --data lenet5.npy
    python examples/models.py lenet5 --samples 1 --data mine.npy --seed 1  # other images, no model
    python examples/models.py resnet50-imagenet x.onnx --operator x --size 320 --classes 14

A model's name is that of the architecture and the shape of its images, with `-avgpool` for AveragePool instead of
MaxPool; `covey.models` has the table, and which models have other operators, sizes, widths and classes. Sample images
are smooth, differ from one another and lie in [0, 1].
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from covey import CoveyError, models

NAMES = {
    "lenet5" if shape == "mnist" else f"{model}-{shape}": (model, shape)
    for model, known in models.MODELS.items()
    for shape in known.shapes
}
SPECS = {
    name + suffix: models.ImageSpec(model, shape, pool)
    for name, (model, shape) in NAMES.items()
    for suffix, pool in (("", "max"), ("-avgpool", "avg"))
}


def main() -> None:
    """Write a model, and sample images if asked."""
    parser = argparse.ArgumentParser(description="Write a standard network with seeded weights as ONNX.")
    parser.add_argument("model", choices=SPECS, metavar="MODEL", help=", ".join(SPECS))
    parser.add_argument("out", type=Path, nargs="?", help="the ONNX file to write; without it, only sample images")
    parser.add_argument("--operator", help=f"in place of dense convolutions: {', '.join(models.OPERATORS)}")
    parser.add_argument("--size", type=int, help="the side of images")
    parser.add_argument("--classes", type=int, help="how many logits")
    parser.add_argument("--width", type=float, help="channels, as a part of those published")
    parser.add_argument("--data", type=Path, help="also write sample images, float32 .npy")
    parser.add_argument("--samples", type=int, default=4, help="how many sample images (default 4)")
    parser.add_argument("--seed", type=int, default=models.SAMPLE_SEED, help="other images for every number")
    arguments = parser.parse_args()
    if arguments.out is None and arguments.data is None:
        parser.error("name a file to write: OUT for the model, --data for sample images")
    if arguments.samples < 1:
        parser.error("--samples must be at least 1")
    chosen = {name: getattr(arguments, name) for name in ("operator", "size", "classes", "width")}
    try:
        spec = replace(SPECS[arguments.model], **chosen)
    except CoveyError as error:
        sys.exit(f"error: {error}")
    if arguments.out is not None:
        model, net = spec.network()
        onnx.save(model, arguments.out)
        print(f"wrote {arguments.out}, {arguments.out.stat().st_size:,} bytes")
        above = f"at least {net.least_alive:.0%} of values above 0 after every ReLU"
        print(f"largest |activation| {net.largest:.2f}; {above}")
    if arguments.data is not None:
        np.save(arguments.data, spec.samples(arguments.samples, arguments.seed)["image"])
        print(f"wrote {arguments.data}, {arguments.samples} images")


if __name__ == "__main__":
    main()
