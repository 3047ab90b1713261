"""Constant seeds and keys outside tests are found where they are planted, and nowhere else."""

from pathlib import Path

import pytest

from constant_seeds import places

ROOT = Path(__file__).parents[2]

PLANTED = {
    "an array": "fn f() -> Prg { Prg::new(&[7; 16]) }",
    "zeros by way of a variable": "fn f() -> Prg { let key = [0u8; 16]; Prg::new(&key) }",
    "a constant": "const KEY: [u8; 32] = [1; 32];\nfn f() -> Seed { Seed::new(&KEY) }",
    "a number": "fn f() -> Prg { let seed = 12345u128; Prg::new(&seed.to_le_bytes()) }",
    "session keys": "fn f() -> SessionKeys { SessionKeys::new(vec![None, Some([9; 32])]) }",
    "a string": 'fn f() -> [u8; 32] { blake3::derive_key("context", b"covey") }',
    "on lines of its own": "fn f() -> SessionKeys {\n    SessionKeys::new(vec![\n        Some([9; 32])\n    ])\n}",
    "seeded test data": "fn f() -> StdRng { StdRng::seed_from_u64(now()) }",
    "a thread's generator": "fn f() -> u64 { rand::random() }",
    "a dealer in place of OT": "use covey_ot::ideal::Dealer;",
    "after test code": "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n\nfn g() -> Prg { Prg::new(&[7; 16]) }",
}

LET_THROUGH = {
    "what is drawn": "fn f() -> Prg { let mut key = [0; 16]; getrandom::fill(&mut key); Prg::new(&key) }",
    "a parameter": "fn f(key: &[u8; 16]) -> Prg { Prg::new(key) }",
    "what is derived": 'fn f(seed: &[u8]) -> Prg { let key = blake3::derive_key("c", seed); Prg::new(&key[..16]) }',
    "an element that is written": "fn f(x: u8) -> Prg { let mut key = [0; 16]; key[3] = x; Prg::new(&key) }",
    "a copy": "fn f(x: &[u8]) -> Prg { let mut key = [0; 16]; key[..8].copy_from_slice(x); Prg::new(&key) }",
    "a definition": "impl Prg { pub fn new(key: &[u8; 16]) -> Self { Prg(*key) } }\npub struct HashKey(pub u128);",
    "a comment": "// Prg::new(&[7; 16])\nfn f() {}",
    "a test": "#[cfg(test)]\nmod tests {\n    fn f() -> Prg { Prg::new(&[7; 16]) }\n}",
    "a test's file": "#[cfg(test)]\nmod planted;",
    "a reason": "fn f() -> Prg { Prg::new(&[7; 16]) } // public constant: what is measured is no secret",
}


def found(root: Path, source: str, file: str = "lib.rs") -> int:
    folder = root / "crates" / "protocols" / "src"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(source)
    return len(list(places(root)))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_constant_is_found(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, PLANTED[name]) == 1


@pytest.mark.parametrize("name", LET_THROUGH)
def test_what_is_drawn_or_tested_is_let_through(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, LET_THROUGH[name]) == 0


def test_files_of_test_modules_are_let_through(tmp_path: Path) -> None:
    planted = PLANTED["an array"]
    assert found(tmp_path, planted, "planted.rs") == 1
    assert found(tmp_path, LET_THROUGH["a test's file"]) == 0


def test_the_sources_have_none() -> None:
    assert list(places(ROOT)) == []
