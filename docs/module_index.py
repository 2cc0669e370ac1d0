"""Writes docs/packages.md: every module of kerntune and of the plugin with the first sentence of its docstring.

python docs/module_index.py            # write it (`make fix` does)
python docs/module_index.py --check    # exit with 1 if it isn't up to date
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "packages.md"

ORDER = (
    *("base", "grids", "heuristics", "kernels", "search", "compiling", "gpu", "static"),
    *("capture", "timing", "tuning", "gate", "referee", "cli", "pytest_kerntune"),
)
"""By layer, as the table in docs/architecture.md."""

HEAD = """# Every module

Made by `docs/module_index.py` (`make fix`) from the modules' docstrings: don't edit it. A package imports only from
packages of the layers above it ([the table](architecture.md#packages)).
"""


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def plain(text: str) -> str:
    """reST roles and double backticks as Markdown, on one line, with nothing that ends a table's cell."""
    text = re.sub(r":(?:mod|class|func|meth|data|attr):`~?([^`]+)`", r"`\1`", " ".join(text.split()))
    return text.replace("``", "`").replace("|", "\\|")


def section(package: Path) -> str:
    """A package's own words, and a row for each module and folder in it."""
    own = plain(docstring(package / "__init__.py"))
    lines = [f"\n## {package.name}\n", own, "", "| module | what it is |", "|---|---|"]
    for path in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path.stem != "__init__", path)):
        if path != package / "__init__.py":
            lines.append(row(path))
    return "\n".join(lines) + "\n"


def row(path: Path) -> str:
    """A module, or a folder for its ``__init__``, with the first sentence."""
    name = path.relative_to(ROOT).as_posix().removeprefix("kerntune/").removesuffix(".py").removesuffix("__init__")
    return f"| `{name}` | {plain(docstring(path).partition(chr(10) * 2)[0])} |"


def page() -> str:
    """The whole document."""
    packages = (ROOT / name if name.startswith("pytest") else ROOT / "kerntune" / name for name in ORDER)
    return HEAD + "".join(map(section, packages))


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
