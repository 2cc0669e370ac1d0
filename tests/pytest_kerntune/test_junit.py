"""JUnit: failures and figures of each test."""

from __future__ import annotations

import xml.etree.ElementTree as ET


def test_failures_and_properties(project):
    project.file(
        """
def test_slow(autotune):
    autotune(kernel("REGRESSED"))

def test_fine(autotune):
    autotune(kernel("PASS"), name="a")
    autotune(kernel("PASS"), name="b")
"""
    )
    project.run("--junitxml=j.xml").assert_outcomes(failed=1, passed=1)
    slow, fine = ET.parse(project.path / "j.xml").getroot().iter("testcase")
    assert slow.find("failure").text == (
        "REGRESSED test_it.py::test_slow: scripted\n"
        "  to accept: pytest --kerntune --kerntune-update=regressed test_it.py::test_slow"
    )
    found = {p.get("name"): p.get("value") for p in slow.iter("property")}
    assert found == {
        "kerntune_verdict": "REGRESSED",
        "kerntune_change": "+0.1210",
        "kerntune_time_ns": "13900.0",
        "kerntune_baseline_ns": "12400.0",
    }
    assert fine.find("failure") is None
    assert {"kerntune_verdict[a]", "kerntune_verdict[b]"} <= {p.get("name") for p in fine.iter("property")}
