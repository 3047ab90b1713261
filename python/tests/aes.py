"""AES-128 from its definition (FIPS 197), many blocks at once: what kernels that draw words are compared with."""

from __future__ import annotations

import numpy as np

ROUNDS = 10


def times(a: int, b: int) -> int:
    """The product in GF(2^8), modulo x^8 + x^4 + x^3 + x + 1."""
    product = 0
    for bit in range(8):
        product ^= (b >> bit & 1) * (a << bit)
    for bit in range(14, 7, -1):
        product ^= (product >> bit & 1) * (0x11B << (bit - 8))
    return product


def _substituted(byte: int) -> int:
    inverse = next((other for other in range(256) if times(byte, other) == 1), 0)
    rotations = [inverse << by | inverse >> (8 - by) for by in range(5)]
    return (rotations[0] ^ rotations[1] ^ rotations[2] ^ rotations[3] ^ rotations[4]) & 0xFF ^ 0x63


SUBSTITUTED = np.array([_substituted(byte) for byte in range(256)], np.uint8)
DOUBLED = np.array([times(2, byte) for byte in range(256)], np.uint8)


def round_keys(key: bytes) -> np.ndarray:
    """[round, column, row]."""
    words = [np.frombuffer(key[4 * i : 4 * i + 4], np.uint8) for i in range(4)]
    constant = 1
    for index in range(4, 4 * (ROUNDS + 1)):
        word = words[-1]
        if index % 4 == 0:
            word = SUBSTITUTED[np.roll(word, -1)] ^ np.array([constant, 0, 0, 0], np.uint8)
            constant = times(2, constant)
        words.append(words[-4] ^ word)
    return np.array(words).reshape(ROUNDS + 1, 4, 4)


def encrypted(key: bytes, blocks: np.ndarray) -> np.ndarray:
    """Blocks of 16 bytes, each encrypted."""
    keys = round_keys(key)
    state = blocks.reshape(-1, 4, 4) ^ keys[0]
    for number in range(1, ROUNDS + 1):
        state = SUBSTITUTED[state]
        state = np.stack([np.roll(state[:, :, row], -row, axis=1) for row in range(4)], axis=2)
        if number < ROUNDS:
            after = [np.roll(state, -by, axis=2) for by in range(4)]
            state = DOUBLED[state] ^ DOUBLED[after[1]] ^ after[1] ^ after[2] ^ after[3]
        state = state ^ keys[number]
    return state.reshape(-1, 16)


def stream(key: bytes, nonce: int, start: int, count: int, bits: int) -> np.ndarray:
    """`count` words of stream `nonce` from word `start` on, as prg/mod.rs defines them."""
    per_block = 128 // bits
    first, last = start // per_block, (start + count - 1) // per_block
    counters = b"".join((nonce << 64 | block % 2**64).to_bytes(16, "little") for block in range(first, last + 1))
    words = encrypted(key, np.frombuffer(counters, np.uint8)).reshape(-1).view(f"<u{bits // 8}")
    return words[start % per_block :][:count]
