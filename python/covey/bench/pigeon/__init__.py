"""Measurements that PIGEON reports, made again here: Harth-Kitzerow and others, A High Throughput Framework for Private
Inference of Neural Networks using Secure Multiparty Computation."""

from covey.bench.cells import Preset
from covey.bench.pigeon import latency, layers, primitives, throughput

PRESETS: dict[str, Preset] = {
    **latency.PRESETS,
    **throughput.PRESETS,
    **layers.PRESETS,
    **primitives.PRESETS,
}
"""By name."""
