"""The operators, one file each: shape rule, float reference, interval rule, quantised form, and their ONNX names.

Importing this package imports every module in it, which fills `covey.importers.onnx_node.IMPORTERS`.
"""

import pkgutil
from importlib import import_module

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
