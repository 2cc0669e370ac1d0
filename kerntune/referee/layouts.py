"""The layouts of users' files that are read as they are, recognised by their syntax: the referee never imports them.

* a plain function of the inputs: ``file.py::name``;
* KernelBench's (Ouyang and others, arXiv 2502.10517): ``Model``, ``get_inputs`` and ``get_init_inputs`` in the task's
  file, ``ModelNew`` in the candidate's; either may be another class that is named;
* GPU MODE's reference-kernels: ``custom_kernel`` in the candidate's file; ``ref_kernel``, ``generate_input`` and
  ``check_implementation`` in the task's, shapes in ``task.yml``. Another submission may be named as the reference.

``check_implementation`` isn't called. In 37 of 41 tasks (gpu-mode/reference-kernels, f83cb92a) it compares with
``ref_kernel`` within a tolerance wider than ours, so it would refuse nothing more. In four (``problems/linalg``) it
tests a property of results that aren't unique: it would have to decide in place of our comparison, not beside it.
"""

from __future__ import annotations

import ast
import codecs
import functools
import importlib.util
import io
import os
import re
import sys
import tokenize
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType

import msgspec
from msgspec.structs import replace

from kerntune.errors import UsageError
from kerntune.referee.case_inputs import Given, UserCallable

FUNCTION, KERNELBENCH, GPU_MODE = "function", "kernelbench", "gpu mode"

MOST_SOURCE = 256 << 10
"""Bytes of a source file that is read: Python's parser takes some 600 bytes of memory for each."""

CANDIDATES = {"ModelNew": KERNELBENCH, "custom_kernel": GPU_MODE}
REFERENCES = {"Model": KERNELBENCH, "ref_kernel": GPU_MODE}
LAYOUTS = {**CANDIDATES, **REFERENCES}
MAKERS = {KERNELBENCH: "get_inputs", GPU_MODE: "generate_input"}
"""The function of a task's file that makes inputs, by layout."""


def candidate_source(spec: str) -> UserCallable:
    """``file.py::name``, or a file in one of the two layouts. :class:`UsageError` for anything else."""
    return _source(spec, CANDIDATES, "a candidate's ModelNew or custom_kernel")


def candidate_beside(
    spec: str, reference: UserCallable, inputs: str | Sequence[str]
) -> tuple[UserCallable, UserCallable]:
    """The same, and the reference beside it. A candidate's imports must not let it read held-back shapes: where its
    package has the file of inputs, the working folder or the running program, its file is none of that one's modules.
    Neither is a reference's where the candidate lies in its package, whose modules might run the candidate's code."""
    found = candidate_source(spec)
    program = getattr(sys.modules["__main__"], "__file__", None)
    files = inputs if isinstance(inputs, str) and os.path.isfile(inputs) else "."
    kept = [Path(place).resolve() for place in (".", files, program or ".")]
    if found.package and any(place.is_relative_to(found.package) for place in kept):
        found = replace(found, package="")
    if reference.package and Path(found.path).is_relative_to(reference.package):
        reference = replace(reference, package="")
    return found, reference


def reference_source(spec: str) -> UserCallable:
    """The same for the reference."""
    return _source(spec, REFERENCES, "a task's Model or ref_kernel")


def _source(spec: str, known: dict[str, str], what: str) -> UserCallable:
    path, _, name = spec.partition("::")
    if not path.isprintable():
        raise UsageError(f"{path!r}: a file's name must be text of one line")
    found = defined_names(path)
    if not name:
        name = next((n for n in known if n in found), "")
        if not name:
            raise UsageError(f"{path}: it has none of {what}; name its function as {path}::function")
    if name not in found:
        raise UsageError(f"{path}: it defines no {name} at its top level; it has {', '.join(sorted(found)) or 'none'}")
    classes = [x for x in _classes(path) if x.name == name]
    is_model = any(
        not any("Function" in (getattr(b, "attr", ""), getattr(b, "id", "")) for b in x.bases) for x in classes
    )
    layout = LAYOUTS.get(name, KERNELBENCH if is_model else FUNCTION)
    return UserCallable(str(Path(path).resolve()), name, layout, package=_package_of(path))


def _classes(path: str) -> list[ast.ClassDef]:
    return [x for x in syntax_of(path).body if isinstance(x, ast.ClassDef)]


def _package_of(path: str) -> str:
    """The top folder of the package that a file lies in, if it imports from it; empty for other files."""
    folder, top = Path(path).resolve().parent, ""
    while (folder / "__init__.py").is_file():
        folder, top = folder.parent, str(folder)
    return top if top and {"", Path(top).name} & set(_imported(path)) else ""


def _imported(path: str) -> Iterator[str]:
    """The first part of each name that a file imports from, empty of a relative one."""
    for node in ast.walk(syntax_of(path)):
        if isinstance(node, ast.Import):
            yield from (a.name.partition(".")[0] for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level else (node.module or "").partition(".")[0]


TASK_MODULE = "reference"
"""The name by which a ``task.yml`` of GPU MODE's names the task's own code."""


def makes_inputs(source: UserCallable) -> bool:
    """Whether a reference's file, or its task's module, has the function of its layout that makes inputs."""
    files = (source.path, source.modules.get(TASK_MODULE))
    return source.layout in MAKERS and any(MAKERS[source.layout] in defined_names(file) for file in files if file)


def defined_names(path: str) -> frozenset[str]:
    """What a file defines or imports at its top level. :class:`UsageError` if it can't be read or is no Python."""
    found: set[str] = set()
    for node in syntax_of(path).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(t.id for t in targets if isinstance(t, ast.Name))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(a.asname or a.name.partition(".")[0] for a in node.names)
    return frozenset(found)


def parameters_of(source: UserCallable) -> tuple[str, ...]:
    """What a function of a file takes by position; empty if the file doesn't define it."""
    known = [n for n in syntax_of(source.path).body if isinstance(n, ast.FunctionDef) and n.name == source.name]
    return tuple(a.arg for a in (*known[-1].args.posonlyargs, *known[-1].args.args)) if known else ()


def syntax_of(path: str) -> ast.Module:
    """A file's syntax tree."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_SOURCE + 1)
        if len(data) > MOST_SOURCE:
            raise UsageError(f"{path}: it has more than {MOST_SOURCE >> 10} KiB")
        coding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if codecs.lookup(coding).name not in ("ascii", "utf-8", "utf-8-sig"):  # some take hours to decode
            raise UsageError(f"{path}: its encoding is {coding}; save it as UTF-8")
        return _tree_of(data.decode(coding), path)
    except OSError as exc:
        raise UsageError(f"{path}: it can't be read ({exc.strerror})") from exc
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise UsageError(f"{path}: it is no Python that can be read ({exc})") from None


@functools.lru_cache(maxsize=8)
def _tree_of(text: str, path: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they show the line that they are for
        return ast.parse(text, filename=path)


def remarks_of_imports(candidate: UserCallable, reference: UserCallable) -> tuple[str, ...]:
    """A sentence where a candidate may read all of a package, by what its file imports; and one for each module beside
    either's file that it imports by name where an installed one comes first. And one where a backward pass isn't
    called."""
    told, folders = list[str](), [p for p in sys.path if p not in ("", str(Path.cwd()))]
    if candidate.layout == FUNCTION and any(x.name == candidate.name for x in _classes(candidate.path)):
        told.append(f"of {candidate.name} the forward pass alone is judged; a function that runs both has both judged")
    if candidate.package:
        told.append(f"the candidate's process may read all of its package, {Path(candidate.package).name}")
    for source in (candidate, reference):
        file = Path(source.path)
        if package := _package_of(source.path) if not source.package else "":
            whose = "the working folder, the inputs or this program" if source is candidate else "the candidate"
            told.append(f"{file.name} isn't read as a module of {Path(package).name}, in which {whose} lies")
        for name in dict.fromkeys(_imported(source.path)):
            if name in ("", Path(source.package).name):
                continue
            beside = [x for x in (file.parent / name / "__init__.py", file.with_name(f"{name}.py")) if x.is_file()]
            spec = PathFinder.find_spec(name, folders) if beside else None
            if spec is not None and spec.origin and Path(spec.origin).resolve() != beside[0]:
                told.append(f"{file.name} imports the installed {name}, not the one beside it")
    return tuple(dict.fromkeys(told))


def literal_inputs(path: str) -> tuple[str, ...]:
    """The lines of ``INPUTS`` in an inputs file, a text or a list of texts; empty without one. The file isn't run: it
    may name them once."""
    tree = syntax_of(path)
    uses = sum(isinstance(node, ast.Name) and node.id == "INPUTS" for node in ast.walk(tree))
    for node in tree.body if uses else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if uses > 1 or not any(isinstance(t, ast.Name) and t.id == "INPUTS" for t in targets):
            continue
        try:
            found = ast.literal_eval(node.value)  # type: ignore[attr-defined]
        except (ValueError, TypeError, MemoryError, RecursionError):
            found = None
        lines = [found] if isinstance(found, str) else found
        if not isinstance(lines, (list, tuple)) or not all(isinstance(line, str) for line in lines):
            raise UsageError(f"{path}: INPUTS is no plain text or list of texts")
        return tuple(lines)
    if uses:
        raise UsageError(f"{path}: INPUTS must be set once, at the top level, and not be used: the file isn't run")
    return ()


MOST_SHAPES = 64

MOST_ABOVE = 3
"""Folders above a task's that its modules may lie in, or below: as many as its clone has, at most."""

MARKS = re.compile(
    r"""  "(?:[^"\\]|\\.)*"?  |  '([^'\\]*)'  |  [\d.+-][\w.+-]*  |  ([A-Za-z_][\w.-]*)  |  (\s\#.*|,(?=\s*[]}]))""",
    re.VERBOSE,
)
"""Of a mapping in braces: a text; one in Python's or YAML's other quotes; a number; a word; a comment; a last comma."""

WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false", "null": "null",
         "none": "null"}  # fmt: skip
"""What words of YAML 1.1, and Python's ``None``, are in JSON."""


def task_shapes(path: str, small: bool = False) -> tuple[dict[str, Given], ...]:
    """The shapes of a ``task.yml`` of GPU MODE, a mapping in braces each; their seeds are left out. They are those of
    ``benchmarks``, else of ``tests``; if they should be ``small``, the other way round. :class:`UsageError` for
    anything else."""
    found = _mappings(path)
    first, second = (found[name] for name in (("tests", "benchmarks") if small else ("benchmarks", "tests")))
    shapes = [{k: v for k, v in shape.items() if k != "seed"} for shape in first or second]
    if not 0 < len(shapes) <= MOST_SHAPES:
        raise UsageError(f"{path}: it has {len(shapes)} shapes under benchmarks or tests; 1 to {MOST_SHAPES} are read")
    return tuple(shapes)


def task_modules(path: str) -> dict[str, str]:
    """The paths of the modules that ``files`` of a ``task.yml`` names, but for those that aren't there.
    :class:`UsageError` for one outside of the task's clone."""
    folder, found = Path(path).resolve().parent, dict[str, str]()
    around = [folder, *folder.parents][: MOST_ABOVE + 1]
    clone = next((above for above in around if (above / ".git").exists()), around[-1])
    for file in _mappings(path)["files"]:
        name, source = Path(str(file.get("name"))), (folder / str(file.get("source"))).resolve()
        if name.name != f"{name}" or not name.stem.isidentifier() or (name.suffix, source.suffix) != (".py", ".py"):
            continue  # a header, or the candidate
        if not source.is_relative_to(clone):
            raise UsageError(f"{path}: {file['source']!r} lies outside of {clone}")
        if source.is_file():
            found[name.stem] = str(source)
    return found


def _mappings(path: str) -> dict[str, list[dict[str, Given]]]:
    """The lines in braces under ``files``, ``tests`` and ``benchmarks``. The latter two have no others."""
    try:
        lines = Path(path).read_text(encoding="utf-8")[:MOST_SOURCE].splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path}: it can't be read ({exc})") from None
    found: dict[str, list[dict[str, Given]]] = {"files": [], "tests": [], "benchmarks": []}
    section = ""
    for line in lines:
        shown = line.strip()
        if line and not line[0].isspace() and line[0] not in "-#":
            section = line.partition(" #")[0].rstrip().removesuffix(":")
        elif section in found and shown.startswith("- {"):
            try:
                found[section].append(msgspec.json.decode(MARKS.sub(_as_json, shown[2:]), type=dict[str, Given]))
            except msgspec.MsgspecError:
                raise UsageError(f"{path}: {shown!r} is no mapping in braces") from None
        elif section in ("tests", "benchmarks") and shown and not shown.startswith("#"):
            raise UsageError(f"{path}: {shown!r}; each shape is a line `- {{...}}` under {section}")
    return found


def _as_json(mark: re.Match[str]) -> str:
    """What JSON has for a piece of a mapping. A piece that is none stays, and JSON's reader refuses it."""
    text, word, nothing = mark.groups()
    if text is None and word is None:
        return "" if nothing else mark[0]
    return WORDS.get((word or "").lower()) or msgspec.json.encode(text if word is None else word).decode()


# in a sealed process


class SourceLoader(SourceFileLoader):
    """Compiles the source at each import: code in ``__pycache__`` may be of another one (PEP 552)."""

    def get_code(self, fullname: str) -> CodeType:
        """Of the source."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


@dataclass(frozen=True)
class UsersFolder:
    """Finds the ``modules`` that a task names, then those in a user's folder, by sources and extensions. As the last of
    the finders it is asked for what the others don't find: an installed package without a file of its own comes first,
    too."""

    folder: str
    modules: Mapping[str, str] = field(default_factory=dict)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """A module of that name, or at the top of the folder."""
        if named := self.modules.get(name):
            return importlib.util.spec_from_file_location(name, named, loader=SourceLoader(name, named))
        return PathFinder.find_spec(name, [self.folder]) if path is None else None

    def entry(self, path: str) -> FileFinder:
        """Python's finder for the folder and those below it; ImportError for others."""
        if path != self.folder and not path.startswith(self.folder + os.sep):
            raise ImportError(path)
        return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (SourceLoader, SOURCE_SUFFIXES))


@dataclass(frozen=True)
class UsersPackage:
    """Finds the package that a user's file belongs to. As the first of the finders: of two versions of a library, the
    file's own one counts, not an installed one."""

    folder: str

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """The package, by its sources."""
        init = Path(self.folder, "__init__.py")
        loader = SourceLoader(name, str(init))
        return importlib.util.spec_from_file_location(name, init, loader=loader) if name == init.parent.name else None


def load(source: UserCallable) -> ModuleType:
    """Import a user's file, and let it import from its folder what is found nowhere else: in a reference's folder
    candidates may lie, which must not be taken for the standard library or an installed package. Sources count, never
    compiled code beside them. The module has the file's name, unless that is another's. A file that imports from its
    package is that one's module."""
    path = Path(source.path)
    top, init = Path(source.package).name, str(Path(source.package, "__init__.py"))
    known, folder = sys.modules.get(top), UsersFolder(str(path.parent), source.modules)
    _add_finder(folder, len(sys.meta_path), folder)
    if source.package and (known is None or getattr(known, "__file__", None) == init):  # else torch's or Triton's
        _add_finder(UsersPackage(source.package), 0, UsersFolder(source.package))
        inside = path.relative_to(Path(source.package).parent).with_suffix("")
        name = ".".join(inside.parts).removesuffix(".__init__")
        spec = importlib.util.find_spec(name)
        if name in sys.modules:
            return sys.modules[name]
    else:
        name = f"{path.stem}_of_user" if _named_as_another(path) else path.stem
        spec = importlib.util.spec_from_file_location(name, path, loader=SourceLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _add_finder(finder: UsersFolder | UsersPackage, place: int, folder: UsersFolder) -> None:
    if finder not in sys.meta_path:
        sys.meta_path.insert(place, finder)
        sys.path_hooks.insert(0, folder.entry)


def _named_as_another(path: Path) -> bool:
    """Whether the file has the name of a module that is imported already, or that an import would find elsewhere."""
    if path.stem in sys.modules:
        return getattr(sys.modules[path.stem], "__file__", None) != str(path)
    found = PathFinder.find_spec(path.stem)
    return path.stem in sys.builtin_module_names or (found is not None and found.origin != str(path))
