"""Compile CUDA sources by NVRTC of the package nvidia-cuda-nvrtc, in a process of its own; no GPU is needed.

    python python/tests/nvrtc.py [OPTION]... < source

Prints the compiler's log; exit code 1 if it refuses the source. Without options prints the architectures it knows.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

MISSING = "NVRTC is not installed: pip install nvidia-cuda-nvrtc"


def library() -> Path | None:
    """The newest that packages brought."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    found = [path for folder in folders or [] for path in Path(folder).glob("*/lib/libnvrtc.so.*")]
    return max(found, key=lambda path: int(path.suffix[1:]), default=None)


def main() -> int:
    path = library()
    if path is None:
        print(MISSING)
        return 2
    # It looks for these where the system finds libraries.
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(path))
    if len(sys.argv) == 1:
        count = ctypes.c_int()
        assert nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
        known = (ctypes.c_int * count.value)()
        assert nvrtc.nvrtcGetSupportedArchs(known) == 0
        print(*known)
        return 0
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = sys.stdin.buffer.read()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"covey.cu", 0, None, None) == 0
    options = [option.encode() for option in sys.argv[1:]]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    assert nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetProgramLog(program, log) == 0
    print(log.value.decode())
    if status == 0:
        assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0 and size.value > 0
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
