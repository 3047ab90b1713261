"""The version of the Python package and of the compiler that stands in every program it writes."""

__version__ = "0.1.0"
