"""Which versions kerntune was run with, what is said of others, and what Triton and torch answer about this machine."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.runtime import cache

from kerntune.kernels.compat import launch_environment, triton_compiler, tuners, versions
from kerntune.kernels.compat.versions import as_series, newer_than_run, newer_versions


@pytest.mark.parametrize(
    ("found", "series"),
    [("2.15.0+cu132", (2, 15)), ("3.9.0", (3, 9)), ("2.16.0.dev20260101", (2, 16)), ("10.0", (10, 0)), ("", None)],
)
def test_the_series_of_a_version(found: str, series: tuple[int, int] | None) -> None:
    assert as_series(found) == series


@pytest.mark.parametrize("found", ["2.15.1+cpu", "2.9.0", "2.11", "", "unknown"])
def test_nothing_is_said_of_a_version_that_was_run_or_is_unknown(found: str) -> None:
    assert newer_than_run("torch", found, ("2.11", "2.13", "2.15")) == ""


@pytest.mark.parametrize("found", ["2.16.0", "2.100", "3.0.1+cu140"])
def test_a_newer_series_is_named(found: str) -> None:
    said = newer_than_run("torch", found, ("2.11", "2.13", "2.15"))
    assert said.startswith(f"torch {'.'.join(found.split('.')[:2])} is newer than any")
    assert said.endswith("(2.15)")


def test_both_are_named_where_both_are_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "torch_version", lambda: "2.16.0")
    monkeypatch.setattr(versions, "triton_version", lambda: "3.10.0")
    monkeypatch.setattr(versions, "TORCH_RUN", ("2.11", "2.13", "2.15"))
    monkeypatch.setattr(versions, "TRITON_RUN", ("3.6", "3.7", "3.9"))
    assert newer_versions() == [
        "torch 2.16 is newer than any that kerntune was run with (2.15)",
        "Triton 3.10 is newer than any that kerntune was run with (3.9)",
    ]


def test_what_is_installed_here_was_run() -> None:
    assert newer_versions() == []


@pytest.mark.parametrize(("calls", "known"), [(0, False), (1, True), (None, True)])
def test_whether_triton_knows_its_hash(monkeypatch: pytest.MonkeyPatch, calls: int | None, known: bool) -> None:
    """A Triton that keeps no answer of its own has nothing to wait for."""
    asked = SimpleNamespace() if calls is None else SimpleNamespace(cache_info=lambda: SimpleNamespace(currsize=calls))
    monkeypatch.setattr(cache, "triton_key", asked)
    assert triton_compiler.triton_key_is_known() == known


@pytest.mark.parametrize(
    ("names", "kind"), [([], ()), (["H200"], ()), (["H200", "H200"], ()), (["A100", "H200"], ("A100",))]
)
def test_the_gpus_name_counts_where_others_have_other_names(
    monkeypatch: pytest.MonkeyPatch, names: list[str], kind: tuple[str, ...]
) -> None:
    answers: dict[str, Any] = {
        "device_count": lambda: len(names),
        "is_available": lambda: bool(names),
        "get_device_name": lambda i=0: names[i],
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    assert tuners.kind_of_gpu() == kind


def test_what_was_run_is_from_the_oldest_to_the_newest() -> None:
    series = sorted(versions.TORCH_RUN, key=lambda text: [*map(int, text.split("."))])
    assert versions.versions_run() == f"kerntune was run with torch {series[0]} to {series[-1]}"


@pytest.mark.parametrize(
    ("knobs", "present", "value"),
    [
        (None, True, None),
        (SimpleNamespace(), True, None),
        (SimpleNamespace(flag=True, knob_descriptors={}), False, True),
        (SimpleNamespace(flag=False, knob_descriptors={}), True, None),
        (SimpleNamespace(flag=7, knob_descriptors={"flag": SimpleNamespace(default=7)}), True, None),
        (SimpleNamespace(flag=8, knob_descriptors={"flag": SimpleNamespace(default=7)}), True, 8),
        (SimpleNamespace(flag="x", knob_descriptors={"flag": SimpleNamespace()}), True, "x"),
    ],
    ids=["no group", "no knob", "assigned", "as Triton has it", "its default", "another", "without a default"],
)
def test_a_setting_s_value(monkeypatch: pytest.MonkeyPatch, knobs: Any, present: bool, value: object) -> None:
    monkeypatch.setattr(launch_environment, "_group", lambda name: knobs)
    assert launch_environment._value("TRITON_FLAG", "group.flag", present) == value


def test_a_knob_that_is_neither_set_nor_assigned_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking takes ten times as long."""

    class Knobs:
        flag = property(lambda self: pytest.fail("asked for"))

    monkeypatch.setattr(launch_environment, "_group", lambda name: Knobs())
    assert launch_environment._value("TRITON_FLAG", "group.flag", False) is None


def test_a_part_of_an_extension_s_module_is_found_though_nothing_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = SimpleNamespace(function=len)
    monkeypatch.setitem(sys.modules, "an_extension", SimpleNamespace(inner=SimpleNamespace(deep=deep)))
    assert versions.PrivateName("an_extension.inner.deep", "function").load() is deep
    assert versions.PrivateName("an_extension.inner.other.more", "function").load() is None
    assert versions.PrivateName("no_extension.inner", "function").load() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.b:C.d", ("a.b", "C.d", "function", ())),
        ("a:f(x, y)", ("a", "f", "function", ("x", "y"))),
        ("class a.b:C", ("a.b", "C", "class", ())),
        ("value a:b.c", ("a", "b.c", "value", ())),
    ],
)
def test_a_name_as_a_table_has_it(text: str, words: tuple[str, str, str, tuple[str, ...]]) -> None:
    found = versions.PrivateName.parsed(text)
    assert (found.module, found.path, found.kind, found.parameters) == words
    assert found.name == f"{words[0]}:{words[1]}"


class Holder:
    value = 3

    def method(self, a: int, *, b: int) -> None: ...

    def any_words(self, **words: int) -> None: ...


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("m:Holder.method(a, b)", ""),
        ("m:Holder.method(a, c, d)", "'s m:Holder.method has no parameter c, d any more"),
        ("m:Holder.any_words(c)", ""),
        ("m:Holder.gone", " has no m:Holder.gone"),
        ("m:gone.method", " has no m:gone.method"),
        ("class m:Holder", ""),
        ("m:Holder", "'s m:Holder is no function any more"),
        ("class m:Holder.method", "'s m:Holder.method is no class any more"),
        ("value m:Holder.value", ""),
        ("value m:Holder", "'s m:Holder is no value any more"),
        ("value m:Holder.method", "'s m:Holder.method is no value any more"),
        ("m:Holder.value", "'s m:Holder.value is no function any more"),
    ],
)
def test_what_has_changed_about_a_name(text: str, problem: str) -> None:
    found = versions.PrivateName.parsed(text).problem_in(SimpleNamespace(Holder=Holder))
    assert found == (problem and f"torch {versions.torch_version()}{problem}")
