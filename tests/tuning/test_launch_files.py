"""Arguments from texts, kernels from names, and which stored winner is meant."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from samples import ENVIRONMENT

from kerntune.base.config import Config
from kerntune.compiling.compiler import Compiled
from kerntune.errors import TuningError, UsageError
from kerntune.kernels.access import Access
from kerntune.tuning import launch_files
from kerntune.tuning.cache import Winner
from kerntune.tuning.launch_files import TensorLike, argument_of, dump_folder, keeps_content, load_kernel, one_winner
from tuning.cache.made import LARGE, SMALL, WINNER

NO_ARGUMENT = "{!r} is no argument: write a number, 'text', None, or a tensor as fp16[4096,128]"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" fp16[4096, 128] ", TensorLike("float16", (4096, 128))),
        ("fp8e4nv[64]:2", TensorLike("float8_e4m3fn", (64,), (2,))),
        ("torch.float16(64,)(1,)", TensorLike("float16", (64,), (1,))),
        ("*i1[]", TensorLike("bool", ())),
        ("fp32[" + "9" * 20 + "]", TensorLike("float32", (int("9" * 20),))),
        (" -3 ", -3), ("1e-3", 1e-3), ("True", True), ("None", None), ("'a b'", "a b"), ('"it\'s"', "it's"),
    ],
)  # fmt: skip
def test_an_argument_is_read_from_its_text(text: str, value: Any) -> None:
    found = argument_of(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("fp32[" + "9" * 21 + "]", "a tensor has no size or stride of 21 digits"),
        ("fp32[2]:1," + "1" * 22, "a tensor has no size or stride of 22 digits"),
        ("name", NO_ARGUMENT.format("name")),
        ("1+2j", NO_ARGUMENT.format("1+2j")),
        ("[1]", NO_ARGUMENT.format("[1]")),
        ("9" * 41, NO_ARGUMENT.format("9" * 41)),
    ],
)
def test_any_other_text_is_no_argument(text: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        argument_of(text)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("other", "agree"),
    [
        (TensorLike("float16", (4, 8), (8, 1)), True),
        (TensorLike("float16", (4, 8), (1, 4)), False),
        (TensorLike("float32", (4, 8)), False),
        (TensorLike("float16", (4, 2, 4), (8, 4, 1)), False),
    ],
)
def test_tensors_agree_if_both_can_be_one(other: TensorLike, agree: bool) -> None:
    assert TensorLike("float16", (4, 8)).agrees(other) is agree
    assert str(other).startswith(f"{other.dtype}[4,")


def test_what_is_dumped_is_said_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for folder, expected in ("", None), ("~/dump", Path("/home/me/dump")):
        monkeypatch.setenv("KERNTUNE_DUMP", folder)
        assert dump_folder() == expected
    for text, exact in ("", False), ("described", False), ("recorded", True):
        monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", text)
        assert keeps_content() is exact
    monkeypatch.setenv("KERNTUNE_DUMP_CONTENT", "all")
    with pytest.raises(UsageError, match=r"^KERNTUNE_DUMP_CONTENT is 'all'; it can be described or recorded$"):
        keeps_content()


# kernels


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("module", "'module': name a kernel as package.module:kernel or path/to/file.py:kernel"),
        (":kernel", "':kernel': name a kernel as package.module:kernel or path/to/file.py:kernel"),
        ("module:", "'module:': name a kernel as package.module:kernel or path/to/file.py:kernel"),
        ("none.py:kernel", "none.py: is no file"),
        ("no_such_module:kernel", "there is no module no_such_module here"),
        ("no_such_module.part:kernel", "there is no module no_such_module.part here"),
        ("json:kernel", "json has no kernel"),
        ("json:dumps", "json:dumps: "),
    ],
)
def test_a_name_without_a_kernel(name: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        load_kernel(name)
    assert str(raised.value) == error if not error.endswith(": ") else str(raised.value).startswith(error)


def test_a_kernel_of_a_file_is_imported_once_under_the_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "its_kernels.py"
    path.write_text("import triton\n\nclass Group:\n    @triton.jit\n    def kernel(x):\n        pass\n")
    monkeypatch.delitem(sys.modules, "its_kernels", raising=False)
    kernel, module = load_kernel(f"{path}:Group.kernel")
    assert (kernel.fn.__name__, kernel, module.__file__) == ("kernel", module.Group.kernel, str(path))
    assert sys.modules["its_kernels"] is module
    assert load_kernel("its_kernels:Group.kernel") == (kernel, module)


KERNEL = "import triton\nfrom .sizes import SIZE\n\n@triton.jit\ndef kernel(x):\n    pass\n"


def test_a_file_of_a_package_may_import_relatively(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    package = tmp_path / "src" / "its_package" / "ops"
    package.mkdir(parents=True)
    for name, text in (
        ("../__init__", "from .ops import its_k"),
        ("__init__", ""),
        ("sizes", "SIZE = 3"),
        ("its_k", KERNEL),
    ):
        (package / f"{name}.py").write_text(text)
    kernel, module = load_kernel(f"{package / 'its_k.py'}:kernel")
    assert (kernel, module.__name__, module.SIZE) == (module.kernel, "its_package.ops.its_k", 3)
    assert sys.modules["its_package.ops"].its_k is module, "its package has imported the same module"
    assert "its_k" not in sys.modules
    (tmp_path / "its_alone.py").write_text(KERNEL)
    with pytest.raises(
        UsageError, match=r"its_alone\.py: imports relatively, and .* is no package; name it as package"
    ):
        load_kernel(f"{tmp_path / 'its_alone.py'}:kernel")
    (tmp_path / "its_lacking.py").write_text("import no_such_module_at_all")
    with pytest.raises(ModuleNotFoundError):
        load_kernel(f"{tmp_path / 'its_lacking.py'}:kernel")


# stored winners


def winner(config: Config = SMALL, **changes: Any) -> Winner:
    return Winner("winner/1", msgspec.structs.replace(WINNER, **changes), config, 1000.0, ENVIRONMENT)


def test_the_one_winner_is_meant_whatever_else_differs() -> None:
    first, same = winner(), winner(triton="3.6.0")
    assert one_winner("k", []) is None
    assert one_winner("k", iter([first, same])) is first


def test_of_several_winners_the_first_ten_are_shown() -> None:
    line = "\n  NVIDIA H100 (cuda:90): {}: {}"
    with pytest.raises(UsageError) as raised:
        one_winner("k", [winner(), winner(LARGE)])
    assert str(raised.value) == (
        "kernel k: 2 stored winners fit; say more by --key NAME=VALUE:"
        + line.format(WINNER.arguments, SMALL)
        + line.format(WINNER.arguments, LARGE)
    )
    with pytest.raises(UsageError) as raised:
        one_winner("k", [winner(arguments=f"n={n}") for n in range(11)])
    assert str(raised.value).splitlines()[1:] == [line.format(f"n={n}", SMALL)[1:] for n in range(10)]


def test_winners_are_found_by_source_target_and_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_files, "jit_of", lambda kernel: kernel)
    monkeypatch.setattr(launch_files, "source_hash", lambda kernel: "abc")
    mine, other = winner(), winner(target="cuda:80", arguments="n=1024; f=<function>; x=float32(512,)(1,)")
    cache: Any = SimpleNamespace(entries=lambda: [mine, other, winner(source="another")])
    for given, target, expected in (
        ({}, None, [mine, other]),
        ({}, "cuda:80", [other]),
        ({"n": 1024, "unknown": 3}, None, [mine, other]),
        ({"n": 1025}, None, []),
        ({"x": TensorLike("float32", (1024,))}, None, [mine]),
        ({"x": 1024}, None, []),
    ):
        assert launch_files.stored_for("kernel", given, target, cache) == expected


# a kernel that is compiled ahead of time


def test_what_a_compiler_took_for_granted_is_by_parameter() -> None:
    """What is within a tuple has no parameter of its own."""
    specialized: Any = SimpleNamespace(
        signature={"x": "*fp32", "n": "i32", "pair": "tuple", "BLOCK": "constexpr"},
        attrs={
            (0,): [["tt.divisibility", 16], ["tt.other", 3]],
            (1,): [["tt.divisibility", 8]],
            (2, 0): [["tt.divisibility", 4]],
        },
        constexprs={(3,): SimpleNamespace(value=64), (1,): 7, (2, 1): 9},
    )
    recorded: Any = SimpleNamespace(recording=SimpleNamespace(launches=("the launch",)))
    made = launch_files.AheadOfTime(recorded, specialized)
    assert (made.divisible, made.constants, made.launch) == ({"x": 16, "n": 8}, {"BLOCK": 64, "n": 7}, "the launch")


@pytest.mark.parametrize(("kind", "assembly"), [("cubin", "ptx"), ("hsaco", "amdgcn")])
@pytest.mark.parametrize("there", [True, False], ids=["in the cache", "gone"])
def test_stages_between_are_those_that_triton_s_cache_still_has(
    kind: str, assembly: str, there: bool, tmp_path: Path
) -> None:
    files = {f"kernel.{stage}": tmp_path / stage for stage in ("ttir", "ttgir", "llir", assembly, "cubin", "json")}
    for stage, path in ((path.name, path) for path in files.values()):
        path.write_text(f"the file {stage}")
    if not there:
        (tmp_path / "llir").unlink()
    binary: Any = SimpleNamespace(kind=kind)
    access = Access.everything(0, (), follows=False)
    there_now = {name: str(path) for name, path in files.items()}
    compiled = Compiled(binary, b"", "module", "text", access, {}, {}, files=lambda: there_now)
    between = {"ttgir": "the file ttgir", "llir": "the file llir"} if there else {}
    found = launch_files.stages_of(compiled)
    assert found == {"ttir": "module", **between, assembly: "text"}
    assert list(found) == ["ttir", *between, assembly]


def test_a_config_is_found_as_the_user_wrote_it_or_by_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = object(), object()
    monkeypatch.setattr(launch_files, "config_of", lambda config, where: (config, where))
    known = {(other, "kernel k"): 5}
    monkeypatch.setattr(launch_files, "candidate_of", lambda site, config: known.get(config))
    site: Any = SimpleNamespace(kernel="k", originals=[object(), one])
    assert [launch_files._index_of(site, config) for config in (one, other)] == [1, 5]
    with pytest.raises(TuningError, match="kernel k: None is not among the configs of this call"):
        launch_files._index_of(site, None)


# what is dumped


@pytest.mark.parametrize(
    ("folder", "again", "warmup", "graph", "dumped"),
    [(True, 0, False, False, True), (False, 0, False, False, False), (True, 1, False, False, False),
     (True, 0, True, False, False), (True, 0, False, True, False)],
)  # fmt: skip
def test_the_first_launch_of_a_key_with_a_config_is_dumped(
    folder: bool, again: int, warmup: bool, graph: bool, dumped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    monkeypatch.setattr(launch_files, "dump_folder", lambda: tmp_path if folder else None)
    monkeypatch.setattr(launch_files, "captures_graph", lambda: graph)
    monkeypatch.setattr(launch_files, "_begin", lambda *given: did.append("begun") or (lambda: did.append("written")))

    def tuner() -> None:
        """Can be referred to weakly."""

    words = {"warmup": True} if warmup else {}
    for _ in range(again):
        launch_files.dumping(tuner, "key", "config", (), {}, lambda: None)
    did.clear()
    assert launch_files.dumping(tuner, "key", "config", (), words, lambda: did.append("launched") or 7) == 7  # type: ignore[func-returns-value]
    assert did == (["begun", "launched", "written"] if dumped else ["launched"])
    did.clear()
    launch_files.dumping(tuner, "key", "another", (), {}, lambda: None)
    assert did == ["begun", "written"] * (folder and not graph)


@pytest.mark.parametrize("fails", ["begin", "finish"])
def test_a_launch_that_can_not_be_dumped_is_launched_with_a_warning(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> Any:
        raise OSError("a full disk")

    monkeypatch.setattr(launch_files, "dump_folder", lambda: tmp_path)
    monkeypatch.setattr(launch_files, "captures_graph", lambda: False)
    monkeypatch.setattr(launch_files, "_begin", fail if fails == "begin" else lambda *given: fail)

    def tuner() -> None:
        """Can be referred to weakly."""

    tuner.base_fn = tuner  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning) as told:
        assert launch_files.dumping(tuner, "key", "config", (), {}, lambda: 7) == 7
    assert [str(w.message) for w in told] == ["kernel tuner: its launch was not dumped: a full disk"]


@pytest.mark.parametrize(
    "missing", ["", "backend", "gpu", "kernel", "capture"], ids=lambda what: f"no {what}" if what else "all"
)
@pytest.mark.parametrize("exact", [False, True])
def test_what_a_launch_finds_is_taken_before_it_and_the_rest_after_it(
    missing: str, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SimpleNamespace(environment=lambda: "environment")
    backend = None if missing == "backend" else SimpleNamespace(gpu=None if missing == "gpu" else gpu)
    capture = SimpleNamespace(launches=[SimpleNamespace(jit="jit")], plan=SimpleNamespace(tensors=lambda: ["x", "y"]))
    monkeypatch.setattr(launch_files.context, "this_gpu", lambda: backend)
    monkeypatch.setattr(launch_files.context, "open_capture", lambda backend: capture)
    monkeypatch.setattr(launch_files, "is_kernel", lambda tuner: missing != "kernel")
    monkeypatch.setattr(launch_files.captures, "current", lambda: "a capture" if missing == "capture" else None)
    monkeypatch.setattr(launch_files, "keeps_content", lambda: exact)
    recorded = SimpleNamespace(recording="recording")
    monkeypatch.setattr(launch_files, "staged_launch", lambda *given: recorded)
    monkeypatch.setattr(launch_files, "with_content", lambda recorded, backend: ("with content", "kept"))
    monkeypatch.setattr(launch_files, "exact_contents", lambda gpu, recorded: {0: b"before"})
    monkeypatch.setattr(launch_files, "written_contents", lambda gpu, recording, tensors: {1: b"after"})
    monkeypatch.setattr(launch_files, "texts_of", lambda recorded, index, jit: ("texts", index, jit))
    monkeypatch.setattr(launch_files, "write_launch", lambda *given, **words: (given, words))
    finish = launch_files._begin(Path("folder"), None, None, (), {})
    assert (finish is None) is bool(missing)
    if finish is not None:
        given, words = finish()  # type: ignore[misc]
        assert given == (Path("folder"), "with content", 0, "kept", ("texts", 0, "jit"))
        contents = words["contents"]
        assert (contents.before, contents.after) == (({0: b"before"}, {1: b"after"}) if exact else ({}, {}))
        assert words["environment"] == "environment"
