"""Python imports this at its start where ``kerntune shapes record`` put the folder first: ``triton.autotune`` is noted.

It does what another ``sitecustomize`` would have done, and has kerntune installed once Triton is there.
"""

from __future__ import annotations

import runpy
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

HERE = Path(__file__).parent

WATCH = runpy.run_path(str(HERE.parents[1] / "dynamo_watch.py"))
"""What the file defines: this Python may lack kerntune, or find it only later."""


def _install() -> None:
    from kerntune.tuning.api.install import install

    install()


def _run_the_other() -> None:
    """The ``sitecustomize`` that Python would have found without this one."""
    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if p != str(HERE)])
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        spec.loader.exec_module(module_from_spec(spec))


_noting = WATCH["AfterImport"]("triton", _install, "this process's kernels of triton.autotune can't be noted")
if "triton" in sys.modules:
    _noting.call()
else:
    sys.meta_path.insert(0, _noting)
_run_the_other()
