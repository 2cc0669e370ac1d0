"""``--kerntune-interpret``, on real kernels in processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from doubles import Item, raising, through
from inner import QUIET, USER_WARNINGS, find_plugin, usage_error

from kerntune.errors import BackendError, ReferenceMismatch
from kerntune.gpu.interpreter.launches import NEVER_ENDS_SECONDS
from kerntune.kernels.compat import triton_compiler, versions
from pytest_kerntune import interpret
from pytest_kerntune.interpret import CALLED, CHECKED, INTERPRETER, InterpretedAutotune, Numerics
from pytest_kerntune.options import INTERPRET_LIMIT

KERNELS = """
import pytest, torch, triton
import triton.language as tl

HAS_GPU = torch.cuda.is_available()

@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["cols"])
@triton.jit
def scale_kernel(x_ptr, out_ptr, cols, factor, BLOCK: tl.constexpr):
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tl.program_id(0) * cols + at, mask=at < cols)
        tl.store(out_ptr + tl.program_id(0) * cols + at, x * factor, mask=at < cols)

def scale(x, factor=2.0):
    assert x.is_cuda
    out = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, out, x.shape[1], factor)
    return out
"""

TESTS = """
@pytest.mark.autotune(interpret={"rows": 4})
@pytest.mark.parametrize("rows", [1 << 15, 1 << 16])
@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_right(autotune, rows):
    assert autotune.interpreted and rows == 4
    x = torch.randn(rows, 100, device=autotune.device, dtype=torch.bfloat16)
    y = autotune(scale, x, reference=lambda: x * 2)
    assert y.shape == x.shape

def test_wrong(autotune):
    x = torch.randn(4, 100, device=autotune.device)
    autotune(scale, x, factor=2.01, reference=lambda: x * 2)

def test_own_assertion(autotune):
    x = torch.ones(4, 100, device=autotune.device)
    assert autotune(scale, x).sum().item() == 801

def test_too_large(autotune):
    autotune(scale, torch.randn(1 << 20, 1 << 10, device=autotune.device))

def test_launches_nothing(autotune):
    autotune(torch.relu, torch.ones(3, device=autotune.device))

@pytest.mark.autotune
def test_never_calls():
    pass

def test_other():
    assert scale(torch.ones(2, 40, device="cuda")).cpu().tolist() == [[2.0] * 40] * 2
"""


Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, run_copy: Run) -> Run:
    """Runs pytest on a test file given as text."""

    def given(source: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=source)
        return run_copy("-p", find_plugin(), *QUIET, *USER_WARNINGS, *args)

    return given


@pytest.mark.slow
def test_numbers_are_checked_and_nothing_else_is(pytester: pytest.Pytester) -> None:
    """With nothing imported before: torch comes with the plugin, while conftests aren't there yet."""
    pytester.makepyfile(test_it=KERNELS + TESTS)
    result = pytester.runpytest_subprocess("-p", find_plugin(), *QUIET, *USER_WARNINGS, "--kerntune-interpret", "-rs")
    result.assert_outcomes(passed=2, failed=4, skipped=1, deselected=1)
    result.stdout.fnmatch_lines(
        ["kerntune: numerics only: Triton *'s intermediate code runs on the CPU; nothing is timed"]
    )
    result.stdout.fnmatch_lines_random(
        [
            "*test_wrong*the result disagrees with its reference*",
            "*assert 800.0 == 801*",
            "*test_launches_nothing: no Triton kernel was launched in this call, so nothing was checked",
            "*test_never_calls: marked autotune, but it never called the autotune fixture, so nothing was checked; *",
            "not checked: test_it.py::test_too_large: randn of 1048576 x 1024 elements is too large *smaller shapes",
            "1 call of 1 test computed on the CPU, 1 test not checked; nothing was timed",
            "SKIPPED*numerics not checked: *",
        ]
    )
    result.stdout.no_fnmatch_line("*PASS *")
    assert not list(pytester.path.rglob("baselines"))


@pytest.mark.slow
def test_with_xdist(quick_python: None, run: Run) -> None:
    pytest.importorskip("xdist")
    result = run(KERNELS + TESTS, "--kerntune-interpret", "-n2", "-k", "right or too_large")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["not checked: *test_too_large*", "1 call of 1 test computed *, 1 test not checked*"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--kerntune", "--kerntune-interpret"), "*run pytest once with each*"),
        (("--kerntune-interpret", "--kerntune-update"), "*--kerntune-update*does nothing without --kerntune*"),
    ],
)
def test_options_that_contradict_it(run: Run, args: tuple[str, ...], said: str) -> None:
    usage_error(run("def test_it(): pass", *args), said)


@pytest.mark.parametrize(
    "args", [("--kerntune-interpret",), ("--kerntune", "--kerntune-target=cuda:90")], ids=["interpret", "compile"]
)
def test_tritons_own_interpreter_would_hide_every_kernel(
    run: Run, source_environ: dict[str, str], args: tuple[str, ...]
) -> None:
    source_environ["TRITON_INTERPRET"] = "1"
    usage_error(run(KERNELS + TESTS, *args), "*TRITON_INTERPRET is set*Unset it; --kerntune-interpret does without")


@pytest.mark.slow
def test_tritons_own_interpreter_switched_off_by_name(run: Run, source_environ: dict[str, str]) -> None:
    source_environ["TRITON_INTERPRET"] = "0"
    run(KERNELS + TESTS, "--kerntune-interpret", "-k", "test_other").assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [["--kerntune-interpret"], ["--kerntune", "--kerntune-target=cuda:90"]])
def test_a_small_value_for_no_parameter(run: Run, mode: list[str]) -> None:
    source = "import pytest\n@pytest.mark.autotune(interpret={'row': 4})\n@pytest.mark.parametrize('rows', [1])\n"
    usage_error(
        run(source + "def test_it(autotune, rows): pass", *mode),
        "*test_it*interpret: the test has no parameter row; they are rows",
    )


@pytest.mark.slow
def test_addopts_and_the_marker_without_it(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\naddopts = --kerntune-interpret\n")
    source = "def test_it(autotune): assert autotune.interpreted"
    run(source).assert_outcomes(passed=1)
    pytester.makeini("[pytest]\n")
    other = "import pytest\n@pytest.mark.autotune(interpret={'rows': 4})\n@pytest.mark.parametrize('rows', [9])\n"
    other += "def test_it(autotune, rows): assert (rows, autotune.interpreted) == (9, False)"
    run(other).assert_outcomes(passed=1)


CATCHES = """
@pytest.mark.autotune
def test_disagrees(autotune):
    x = torch.ones(4, 100, device=autotune.device)
    with pytest.raises(pytest.fail.Exception, match="disagrees"):
        autotune(scale, x, factor=3.0, reference=lambda: x * 2)

@pytest.mark.autotune
def test_refuses(autotune):
    with pytest.raises(ValueError, match="no such"):
        autotune(int, "no such")
"""


@pytest.mark.slow
def test_a_call_whose_failure_is_caught_was_made(run: Run) -> None:
    result = run(KERNELS + CATCHES, "--kerntune-interpret")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 call of 1 test computed on the CPU, *"])


PRUNES = """
import pynvml

def clock():
    try:
        return triton.testing.nvsmi(["clocks.max.sm"])[0]
    except FileNotFoundError:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetMaxClockInfo(pynvml.nvmlDeviceGetHandleByIndex(0), pynvml.NVML_CLOCK_SM)

def model(x_ptr, out_ptr, cols, factor, BLOCK, **options):
    peak = triton.testing.get_max_tensorcore_tflops(torch.float16, clock() * 1e3)
    return cols * BLOCK / peak + cols / triton.testing.get_dram_gbps()

def broken(configs, named, **options):
    return look_up(named)

def look_up(named):
    return {}["clocks"]

def tuned(**prune):
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})]
    return triton.autotune(configs, key=["cols"], prune_configs_by=prune)(scale_kernel.fn)

modelled, wrong = tuned(perf_model=model, top_k=1), tuned(early_config_prune=broken)

def run(kernel, x):
    out = torch.empty_like(x)
    kernel[(x.shape[0],)](x, out, x.shape[1], 2.0)
    return out

def test_modelled(autotune):
    x = torch.ones(4, 100, device=autotune.device)
    autotune(run, modelled, x, reference=lambda: x * 2)
    assert modelled.best_config.kwargs == {"BLOCK": 32}

def test_wrong(autotune):
    autotune(run, wrong, torch.ones(4, 100, device=autotune.device))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [("--kerntune-interpret",), ("--kerntune", "--kerntune-target=cuda:90")], ids=" ".join)
def test_pruning_asks_for_clocks_and_its_errors_are_named(run: Run, how: tuple[str, ...]) -> None:
    result = run(KERNELS + PRUNES, *how)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*def look_up(named):",
            '>       return {}["clocks"]',
            "E       KeyError: 'clocks'",
            "E       raised by early_config_prune broken (*test_it.py:*), which prunes the configs of kernel scale*",
        ]
    )


WAITS = """
import pytest, torch, triton
import triton.language as tl

@triton.jit
def spin(lock_ptr):
    while tl.atomic_cas(lock_ptr, 1, 1) == 0:
        pass

@triton.jit
def ends(lock_ptr):
    tl.store(lock_ptr, 1)

def launch(kernel, lock):
    kernel[(1,)](lock)

def lock(device):
    return torch.zeros(1, device=device, dtype=torch.int32)

def test_waits(autotune):
    autotune(launch, spin, lock(autotune.device))

def test_waits_outside():
    launch(spin, lock("cuda"))

def test_goes_on(autotune):
    autotune(launch, ends, lock(autotune.device))
"""


@pytest.mark.slow
@pytest.mark.parametrize("ini", [False, True], ids=["command line", "ini"])
def test_a_program_that_never_ends_fails_its_test_and_the_run_goes_on(
    pytester: pytest.Pytester, run: Run, ini: bool
) -> None:
    if ini:
        pytester.makeini("[pytest]\nkerntune_interpret_limit = 0.5\n")
    result = run(WAITS, "--kerntune-interpret", *([] if ini else ["-o", "kerntune_interpret_limit=0.5"]))
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_waits: kernel spin (*test_it.py:*) has not ended after 0.5 s in the interpreter, in "
            "program (0, 0, 0) of grid (1, 1, 1). *The ini key kerntune_interpret_limit changes the limit; 0 is none",
            "E *KernelTimeout: kernel spin (*",
        ]
    )


@pytest.mark.parametrize("limit", ["soon", "-1", "nan", "1e30"])
def test_a_limit_is_seconds(run: Run, limit: str) -> None:
    usage_error(
        run("def test_it(): pass", "--kerntune-interpret", "-o", f"kerntune_interpret_limit={limit}"),
        f"*ini key kerntune_interpret_limit is '{limit}'; give seconds, 0 for no limit",
    )


ON_THE_CPU = """
def test_cpu(autotune):
    x = torch.randn(4, 100, device=autotune.device)
    autotune(scale, x, reference=lambda: torch.from_numpy(x.cpu().numpy() * 2), name="tensor")
    autotune(scale, x, reference=lambda: x.cpu().numpy() * 2, name="array")

def test_wrong(autotune):
    x = torch.randn(4, 100, device=autotune.device)
    autotune(scale, x, reference=lambda: x.cpu().numpy() * 3)
"""


@pytest.mark.slow
def test_references_may_be_computed_on_the_cpu(run: Run) -> None:
    """By numpy, say: values are what is compared, wherever they lie."""
    result = run(KERNELS + ON_THE_CPU, "--kerntune-interpret")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*test_wrong: the result disagrees with its reference. Tensor-likes are not close!*"])


def test_the_limit_is_the_interpreters():
    assert INTERPRET_LIMIT == NEVER_ENDS_SECONDS


# the plugin's hooks, without a run


def a_test(marks: dict[str, Any] | None = None, params: dict[str, Any] | None = None) -> Any:
    params = {"rows": 1} if params is None else params
    names = ["autotune", *params]
    return Item(marks, nodeid="t.py::test_a[1]", callspec=SimpleNamespace(params=params), fixturenames=names)


class Interpreted:
    """Counts launches, and notes the candidates that it is given."""

    def __init__(self) -> None:
        self.launched, self.candidates = 0, list[Any]()

    def given(self, candidates: Any) -> Any:
        self.candidates.append(candidates)
        return contextlib.nullcontext()


def numerics(**option: Any) -> Any:
    return Numerics(SimpleNamespace(option=SimpleNamespace(collectonly=False, **option), stash={}))  # type: ignore[arg-type]


LIMITED = NotImplementedError("tl.inline_asm")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the interpreter can't do, by its exception."""
    found = lambda error: "no inline assembly" if error is LIMITED else None  # noqa: E731
    monkeypatch.setattr("kerntune.gpu.interpreter.limit_of", found)


def call(interpreter: Any, item: Any, launches: int, error: Exception | None = None, **words: Any) -> Any:
    def fn(x: int) -> int:
        interpreter.launched += launches
        if error is not None:
            raise error
        return x

    return InterpretedAutotune(item, interpreter)(fn, 5, **words)


def test_a_call_counts_once_it_was_interpreted_to_its_end(limits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter, item = Interpreted(), a_test({"candidates": {"k": [{"BLOCK": 32}]}})
    fixture = numerics()
    fixture._config.stash[INTERPRETER] = interpreter
    found = fixture.fixture(item)
    assert (found.device, found.interpreted, item.stash) == ("cuda", True, {CHECKED: 0})
    assert [call(interpreter, item, 1, name=name) for name in "ab"] == [5, 5]
    assert item.stash == {CHECKED: 2, CALLED: True}
    assert [list(given) for given in interpreter.candidates] == [["k"]] * 2
    with pytest.raises(
        pytest.fail.Exception, match="no Triton kernel was launched in this call, so nothing was checked"
    ):
        call(interpreter, item, 0)
    with pytest.raises(ValueError, match="mine"):
        call(interpreter, item, 1, ValueError("mine"))
    with pytest.raises(pytest.skip.Exception, match=r"^numerics not checked: no inline assembly$"):
        call(interpreter, item, 1, LIMITED)
    assert (item.stash[CHECKED], item.user_properties) == (2, [("kerntune_interpreter_limit", "no inline assembly")])


@pytest.mark.parametrize(("launches", "checked"), [(2, 1), (0, 0)])
def test_a_wrong_number_was_checked_if_a_kernel_made_it(
    monkeypatch: pytest.MonkeyPatch, launches: int, checked: int
) -> None:
    def differs(value: object, expected: object, **words: Any) -> None:
        raise ReferenceMismatch(f"{words['case']}: {value} is not {expected}")

    monkeypatch.setattr("kerntune.gate.api.compare_reference", differs)
    item = a_test()
    item.stash[CHECKED] = 0
    with pytest.raises(pytest.fail.Exception, match="5 is not 6"):
        call(Interpreted(), item, launches, reference=lambda: 6)
    assert item.stash == {CHECKED: checked, CALLED: True}


def test_small_parameters_replace_a_tests_own_and_equal_tests_run_once() -> None:
    gone: list[Any] = []
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: gone.extend(items)))
    small = {"interpret": {"rows": 4}}
    items = [a_test(small, {"rows": n, "cols": c}) for n, c in ((1024, 8), (2048, 8), (2048, 16))]
    other, plain = a_test(small, {"rows": 1, "cols": 8}), a_test({}, {"rows": 7})
    other.nodeid = "t.py::test_b[1]"
    every: list[Any] = [*items, plain, other]
    assert through(numerics().pytest_collection_modifyitems(config, every), "collected") == "collected"
    assert gone == [items[1]]
    assert every == [items[0], items[2], plain, other]
    assert [x.callspec.params for x in every] == [
        {"rows": 4, "cols": 8}, {"rows": 4, "cols": 16}, {"rows": 7}, {"rows": 4, "cols": 8},
    ]  # fmt: skip
    gone.clear()
    through(numerics().pytest_collection_modifyitems(config, every[2:]))
    assert gone == []


@pytest.mark.parametrize(
    ("marker", "called", "checked", "fails", "properties"),
    [
        ({}, True, 2, False, [("kerntune_interpreted", 2)]), ({}, True, 0, False, []), ({}, False, 0, True, []),
        ({}, True, None, False, []), (None, False, 0, False, []), (None, True, 1, False, [("kerntune_interpreted", 1)]),
    ],
)  # fmt: skip
def test_a_marked_test_calls_it(
    marker: dict[str, Any] | None, called: bool, checked: int | None, fails: bool, properties: list[Any]
) -> None:
    item: Any = a_test(marker)
    item.stash |= {k: v for k, v in {CHECKED: checked, CALLED: called or None}.items() if v is not None}
    hook = numerics().pytest_runtest_call(item)
    if fails:
        with pytest.raises(pytest.fail.Exception, match=r"^t\.py::test_a\[1\]: .*autotune") as caught:
            through(hook)
        assert not caught.value.pytrace
    else:
        assert through(hook, "value") == "value"
    assert item.user_properties == properties


@pytest.mark.parametrize("hook", ["pytest_runtest_setup", "pytest_runtest_call"])
@pytest.mark.parametrize(
    ("error", "ends"),
    [(LIMITED, pytest.skip.Exception), (ValueError("mine"), ValueError), (AssertionError(), AssertionError)],
)
def test_what_the_interpreter_can_not_do_is_no_failure(limits: None, hook: str, error: Exception, ends: Any) -> None:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - a skip would skip this test
        through(getattr(numerics(), hook)(a_test()), error)
    assert type(caught.value) is ends


def test_the_summary_counts_calls_tests_and_limits() -> None:
    plugin, lines = numerics(), []
    interpreted, limit = ("kerntune_interpreted", 2), ("kerntune_interpreter_limit", "no inline assembly")

    def report(nodeid: str, when: str, outcome: str, *properties: Any) -> Any:
        return SimpleNamespace(
            nodeid=nodeid,
            when=when,
            passed=outcome == "passed",
            skipped=outcome == "skipped",
            user_properties=properties,
        )

    reporter: Any = SimpleNamespace(
        write_sep=lambda *words: lines.append(words), write_line=lambda text, **markup: lines.append((text, markup))
    )
    for one in (report("a", "setup", "passed", ("kerntune_interpreted", 9)), report("a", "call", "passed", interpreted),
                report("b", "call", "passed"), report("c", "call", "failed", interpreted)):  # fmt: skip
        plugin.pytest_runtest_logreport(one)
    told = "computed on the CPU, {} not checked; nothing was timed"
    plugin.pytest_terminal_summary(reporter)
    title = ("=", "kerntune: numerics only")
    assert lines == [title, (f"2 calls of 1 test {told.format('0 tests')}", {"green": True})]
    lines.clear()
    plugin.pytest_runtest_logreport(report("a\x1b", "setup", "skipped", limit))
    plugin.pytest_runtest_logreport(report("d", "call", "passed", limit))
    plugin.pytest_terminal_summary(reporter)
    assert lines == [
        title, ("not checked: a\\u001b: no inline assembly", {"yellow": True}),
        (f"2 calls of 1 test {told.format('1 test')}", {"green": False}),
    ]  # fmt: skip
    lines.clear()
    plugin._config.option.collectonly = True
    plugin.pytest_terminal_summary(reporter)
    assert lines == []
    fresh = numerics()
    fresh.pytest_terminal_summary(reporter)
    assert lines[-1][1] == {"green": False}, "nothing was checked"


def test_the_header_of_an_interpreted_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "newer_versions", lambda: ["newer torch"])
    assert numerics().pytest_report_header() == [
        f"kerntune: numerics only: Triton {versions.triton_version()}'s intermediate code runs on the CPU; "
        "nothing is timed",
        "kerntune: newer torch",
    ]


@pytest.mark.parametrize(("targets", "target"), [((), "cuda:90"), (("hip:gfx942", "cuda:80"), "hip:gfx942")])
def test_interpreting_begins_before_conftests_and_ends_with_the_config(
    monkeypatch: pytest.MonkeyPatch, targets: tuple[str, ...], target: str
) -> None:
    did: list[Any] = []

    class Made(Interpreted):
        def __init__(self, spec: Any, limit: float) -> None:
            super().__init__()
            did.append((str(spec.target), limit))

        @contextlib.contextmanager
        def activate(self) -> Iterator[None]:
            did.append("begins")
            yield
            did.append("ends")

    monkeypatch.setattr(interpret.options, "resolve",
                        lambda config, given: SimpleNamespace(targets=targets, interpret_limit=7.0))  # fmt: skip
    monkeypatch.setattr("kerntune.gpu.interpreter.Interpreter", Made)
    monkeypatch.setattr(triton_compiler, "take_announcements", lambda: did.append("announcements"))
    cleanups: list[Any] = []
    config: Any = SimpleNamespace(known_args_namespace=None, stash={}, add_cleanup=cleanups.append)
    interpret.begin(config)
    assert isinstance(config.stash[INTERPRETER], Made)
    assert did == [(target, 7.0), "announcements", "begins"]
    cleanups[0]()
    assert did[-1] == "ends"

    monkeypatch.setattr(triton_compiler, "take_announcements", raising(BackendError("this torch can't")))
    with pytest.raises(pytest.UsageError, match=r"^this torch can't$"):
        interpret.begin(config)


@pytest.mark.parametrize(("name", "marked", "once"), [("benchmark", {}, True), ("other", {}, False)])
def test_a_benchmark_of_an_interpreted_test_calls_once(
    monkeypatch: pytest.MonkeyPatch, name: str, marked: Any, once: bool
) -> None:
    told: list[object] = []
    monkeypatch.setattr(interpret.marker, "run_once", told.append)
    hook = numerics().pytest_fixture_setup(SimpleNamespace(argname=name), SimpleNamespace(node=a_test(marked)))
    assert through(hook, "fixture") == "fixture"
    assert told == (["fixture"] if once else [])
