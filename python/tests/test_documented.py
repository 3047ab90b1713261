"""How pages are followed: `documented.py`, `docs_commands.py` and `new_user.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import docs_commands
import documented
import new_user

ROOT = Path(__file__).resolve().parents[2]

PAGE = """# A page

```bash
number=1  # a comment
test $number = 1 && \\
    echo joined
```

```toml
# some.toml
[a]
```

```bash
grep -q a some.toml
false | true
make all
```

```bash not run: takes an hour
sleep 3600
```

```
only shown
```

```python
print(open("some.toml").read())
```
"""

HOSTS = """
```
alpha$ echo alpha.example:7100 0.0.0.0:7100 > addresses
beta$  echo covey:12 > fingerprint
alpha$ echo pin beta covey:… > pinned
alpha$ scp addresses beta.example:
beta$  cat addresses
```
"""


def follow(text: str, folder: Path) -> list[documented.Done]:
    return documented.run("page.md", text, folder, os.environ, docs_commands.installed)


def test_a_page_runs_in_one_shell_and_its_failures_have_a_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = follow(PAGE, tmp_path)
    assert [(each.step.line, each.verdict) for each in done] == [
        (4, "ok"),
        (5, "ok"),
        (10, "ok"),
        (15, "ok"),
        (16, "FAILED"),
        (17, "not run"),
        (21, "not run"),
        (29, "ok"),
    ]
    assert documented.summary({"page.md": done}) == 1
    out = capsys.readouterr().out
    assert "FAILED  page.md:16: false | true" in out
    assert "not run page.md:21: sleep 3600: takes an hour" in out
    assert "5 of 6 documented commands run, 2 not run on purpose" in out
    assert "failed: page.md:16" in out
    assert documented.summary({"page.md": [each for each in done if each.verdict != "FAILED"]}) == 0
    assert documented.summary({"page.md": []}) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"some.toml"}


def test_a_page_that_ends_its_shell_has_failed(tmp_path: Path) -> None:
    done = follow("```bash\ntrue\nexit 0\necho never\n```\n", tmp_path)
    assert [each.verdict for each in done] == ["ok", "FAILED", "FAILED"]
    assert "did not come to this command" in done[2].said


def test_machines_of_a_page_have_folders_and_addresses(tmp_path: Path) -> None:
    done = follow(HOSTS, tmp_path)
    assert [each.verdict for each in done] == ["ok"] * 5
    assert (tmp_path / "alpha" / "addresses").read_text() == "127.0.1.1:7100 127.0.1.1:7100\n"
    assert (tmp_path / "alpha" / "pinned").read_text() == "pin beta covey:12\n"
    assert (tmp_path / "beta" / "addresses").exists()


def test_what_a_page_starts_ends_with_it(tmp_path: Path) -> None:
    follow("```bash\nsleep 600 & echo $! > pid\n```\n", tmp_path)
    process = Path("/proc") / (tmp_path / "pid").read_text().strip() / "cmdline"
    assert not process.exists() or process.read_bytes() == b""  # gone, or nobody has asked how it ended


def test_a_new_user_has_what_readme_lists_and_nothing_else(tmp_path: Path) -> None:
    callers = {
        "PIP_INDEX_URL": "https://packages.example",
        "CARGO_HOME": "/cargo",
        "CARGO_TARGET_DIR": "/elsewhere",
        "https_proxy": "http://proxy.example",
        "PYTHONPATH": "python",
        "COVEY_LOG": "debug",
        "PATH": "/usr/bin",
    }
    assert new_user.environment(tmp_path, "/tools", callers) == {
        "PIP_INDEX_URL": "https://packages.example",
        "CARGO_HOME": "/cargo",
        "https_proxy": "http://proxy.example",
        "HOME": str(tmp_path),
        "PATH": "/tools",
        "LANG": "C.UTF-8",
    }
    (needed,) = [line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if line.startswith("You need ")]
    for name in new_user.NEEDED:
        assert name in needed, name


def test_a_new_user_goes_through_every_page() -> None:
    first, *_ = documented.steps((ROOT / "README.md").read_text("utf-8"))
    assert (first.title, first.unrun) == ("make demo", None)
    titles = [step.title for page in docs_commands.pages() for step in _steps(page)]
    assert new_user.ENTER in titles
    for command in new_user.UNRUN:
        assert command in titles, command


@pytest.mark.parametrize("page", docs_commands.pages())
def test_no_command_hides_in_a_block_that_is_only_shown(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    blocks = [body for _, language, _, body in documented.blocks(text) if language in ("", "text", "sh", "console")]
    hidden = [line for body in blocks for line in body if line.startswith(("covey ", "make ", "pip ", "python "))]
    assert hidden == []


def _steps(page: str) -> list[documented.Step]:
    return documented.steps((ROOT / page).read_text("utf-8"))
