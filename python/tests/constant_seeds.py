"""Find generators and keys that are made of constants in code that serves anyone.

    python python/tests/constant_seeds.py [FOLDER]

Every key and seed must come from the operating system or from a key agreement. In the crates' sources, test code apart,
this refuses: generators of test data (`rand`, `seed_from_u64`); what deals in place of a protocol (`covey_ot::ideal`);
and calls that take a key or a seed, where nothing but constants goes into it, also by way of the `let`, `const` and
`static` of the file. What other functions return is taken for no constant. A line that ends in
`// public constant: REASON` is let through. Prints a line for each place; exit code 1 if there is any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

NOT_SERVING = {"conformance", "fuzz"}
"""Crates that only test others."""

ALLOWED = re.compile(r"// public constant: \S")

FORBIDDEN = re.compile(r"\b(?:seed_from_u64|from_seed|StdRng|SmallRng|rand::|ideal::Dealer)")

KEYED = re.compile(
    r"\b(?:Prg::new|Seed::new|SessionKeys::new|SessionKeys::from_bytes|HashKey|masks_of|expand|keyed_hash|new_keyed"
    r"|Aes128(?:Enc)?::new|StaticSecret::from|Scalar::from_bytes_mod_order(?:_wide)?)\("
)
"""Functions whose first argument is a key or a seed."""

DERIVED = re.compile(r"\bderive_key\(")
"""A function whose second argument is."""

CONSTANT_WORDS = re.compile(
    r"as|u8|u16|u32|u64|u128|usize|i32|i64|true|false|mut|const|vec|Vec|Some|None|Box|Arc|Zeroizing|Block|Seed|W|ZERO|ONE"
    r"|Default|new|from|into|try_into|unwrap|expect|clone|to_vec|to_owned|as_ref|as_slice|first_chunk|concat|repeat"
    r"|default|to_le_bytes|to_be_bytes"
)
"""Words that bring nothing into an expression that is not in its literals."""


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2]
    found = list(places(root))
    for path, line, what in found:
        print(f"{path.relative_to(root)}:{line}: {what}")
    if found:
        print(f"{len(found)} constant seeds or keys: draw them with getrandom, or derive them from session keys")
    return 1 if found else 0


def places(root: Path) -> Iterator[tuple[Path, int, str]]:
    """Path, line and text of all such places."""
    for source in sorted((root / "crates").glob("*/src")):
        if source.parent.name in NOT_SERVING:
            continue
        files = {path: path.read_text() for path in sorted(source.rglob("*.rs"))}
        tests = {test for path, text in files.items() for test in test_files(path, text)}
        for path, text in files.items():
            if not any(path == test or test.with_suffix("") in path.parents for test in tests):
                yield from ((path, line, what) for line, what in in_file(text))


def in_file(text: str) -> Iterator[tuple[int, str]]:
    code = without_tests(bare(text))
    lines = text.splitlines()
    calls = [(match, 0) for match in KEYED.finditer(code)] + [(match, 1) for match in DERIVED.finditer(code)]
    starts = [match.start() for match in FORBIDDEN.finditer(code)]
    for match, position in calls:
        # A definition's argument is a parameter, and so is a pattern's.
        arguments = split(inside(code, match.end()))
        declares = re.search(r"\b(?:fn|struct)\s+$", code[: match.start()])
        if not declares and len(arguments) > position and is_constant(arguments[position], code, match.start()):
            starts.append(match.start())
    for line in sorted({code.count("\n", 0, start) for start in starts}):
        if not ALLOWED.search(lines[line]):
            yield line + 1, lines[line].strip()


def is_constant(expression: str, code: str, before: int, depth: int = 8) -> bool:
    """Whether nothing but literals goes into an expression that stands at `before`."""
    if depth == 0:
        return False
    literals = re.sub(r"b?\"[^\"]*\"", '""', re.sub(r"\b\d[\w.]*", "0", expression))
    names = set(re.findall(r"(?<![\w'])[A-Za-z_]\w*", literals))
    words = {name for name in names if not CONSTANT_WORDS.fullmatch(name)}
    if not words:
        return bool(re.search(r"\d|\"|None|default", expression, re.IGNORECASE))
    return all(is_constant_name(word, code, before, depth) for word in words)


def is_constant_name(name: str, code: str, before: int, depth: int) -> bool:
    """Whether a name is bound to literals only, and nothing writes to it before it is used."""
    scope_start = max((match.start() for match in re.finditer(r"\bfn\s", code[:before])), default=0)
    scope = code[scope_start:before]
    bindings = [
        *re.finditer(rf"\blet\s+(?:mut\s+)?{name}\s*(?::[^=;]*)?=(?!=)", scope),
        *re.finditer(rf"\b(?:const|static)\s+{name}\s*:[^=]*=(?!=)", code),
    ]
    if not bindings:
        return False
    last = bindings[-1]
    local = last.re.pattern.startswith(r"\blet")
    value = (scope if local else code)[last.end() :].split(";")[0]
    # `[0; 32]` goes on past its semicolon.
    if value.count("[") > value.count("]"):
        value = balanced((scope if local else code)[last.end() :])
    rest = scope[last.end() + len(value) :] if local else ""
    place = rf"\b{name}(?:\[[^\]]*\])?\s*"
    written = rf"&mut\s*\**{name}\b|{place}[-+^|&*]?=(?!=)|{place}\.\s*\w*(?:mut|copy_from|fill|zip)"
    return not re.search(written, rest) and is_constant(value, code, before, depth - 1)


def balanced(text: str) -> str:
    """Up to the semicolon that ends a statement."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == ";" and depth == 0:
            return text[:index]
    return text


def inside(code: str, start: int) -> str:
    """What stands between an open parenthesis before `start` and the one that closes it."""
    depth = 1
    for index in range(start, len(code)):
        depth += (code[index] in "([{") - (code[index] in ")]}")
        if depth == 0:
            return code[start:index]
    return code[start:]


def split(arguments: str) -> list[str]:
    """At commas that are in no parentheses."""
    parts, depth = [""], 0
    for character in arguments:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def bare(text: str) -> str:
    """The same text with comments and the contents of strings and characters as spaces: lines keep their numbers."""

    def spaces(match: re.Match[str]) -> str:
        keep = match[0][0] if match[0][0] in "\"'" else ""
        blank = re.sub(r"[^\n]", " ", match[0])
        return keep + blank[1:-1] + keep if keep and len(match[0]) > 1 else blank

    pattern = r"//[^\n]*|/\*.*?\*/|b?r(#*)\".*?\"\1|\"(?:\\.|[^\"\\])*\"|'(?:\\[^']+|[^'\\])'"
    return re.sub(pattern, spaces, text, flags=re.DOTALL)


TEST = re.compile(r"#\[cfg\((?:test|any\(test[^\]]*|all\(test[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*")


def without_tests(code: str) -> str:
    """Code whose items for tests only are spaces."""
    while match := TEST.search(code):
        end = end_of_item(code, match.end())
        code = code[: match.start()] + re.sub(r"[^\n]", " ", code[match.start() : end]) + code[end:]
    return code


def end_of_item(code: str, start: int) -> int:
    """Past an item, a variant or a field: its braces, or its semicolon or comma."""
    depth = 0
    for index in range(start, len(code)):
        depth += (code[index] in "([{") - (code[index] in ")]}")
        if (depth == 0 and code[index] in ";,}") or depth < 0:
            return index + (depth == 0)
    return len(code)


def test_files(path: Path, text: str) -> Iterator[Path]:
    """The files of modules that are compiled for tests only."""
    folder = path.parent if path.name in ("lib.rs", "mod.rs", "main.rs") else path.with_suffix("")
    for match in TEST.finditer(bare(text)):
        item = re.match(r"(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", text[match.end() :])
        if item:
            yield folder / f"{item[1]}.rs"
            yield folder / item[1] / "mod.rs"
            yield folder / f"{item[1]}"


if __name__ == "__main__":
    sys.exit(main())
