"""Question 6, one process under the recorder: where the code of ten calls of torch comes from, and how large it is.

LD_PRELOAD=recorder.so RECORDER_OUT=FILE RECORDER_CODE=FOLDER python modules_child.py
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import answer, library

FATBIN_HEAD = struct.Struct("<IHHQ")
FATBIN_ENTRY = struct.Struct("<HHIQIIHHI")
PTX, ELF = 1, 2
MAGIC = 0xBA55ED50


def calls() -> dict[str, Callable[[], Any]]:
    f32 = lambda *s: torch.randn(*s, device="cuda")  # noqa: E731
    half = lambda *s: torch.randn(*s, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    x, a, b, q = f32(1024, 1024), half(512, 512), half(512, 512), half(2, 8, 256, 64)
    image, weight = half(4, 32, 64, 64), half(64, 32, 3, 3)
    compiled = torch.compile(lambda t: torch.softmax(t * 2, -1))
    return {
        "mul": lambda: x * x, "mm_bf16": lambda: a @ b, "mm_fp32": lambda: x @ x, "attention": lambda:
        F.scaled_dot_product_attention(q, q, q), "conv2d": lambda: F.conv2d(image, weight), "layer_norm": lambda:
        F.layer_norm(x, (1024,)), "sort": lambda: x.sort(), "foreach_add": lambda: torch._foreach_add_([x, x], 1.0),
        "fft": lambda: torch.fft.rfft(x), "compiled_softmax": lambda: compiled(x),
    }  # fmt: skip


def entries(data: bytes) -> list[dict[str, Any]]:
    """Parts of a fat binary: kind, architecture and size as stored, which is compressed for most."""
    if len(data) < 16 or FATBIN_HEAD.unpack_from(data)[0] != MAGIC:
        return []
    _, _, head, size = FATBIN_HEAD.unpack_from(data)
    at, found = head, []
    while at + FATBIN_ENTRY.size <= min(len(data), head + size):
        kind, _, entry, payload, compressed, _, _, _, arch = FATBIN_ENTRY.unpack_from(data, at)
        if entry == 0:
            break
        found.append({"kind": {PTX: "ptx", ELF: "cubin"}.get(kind, kind), "arch": arch, "bytes": compressed or payload})
        at += entry + payload
    return found


def licences() -> Callable[[str], dict[str, str]]:
    owners: dict[str, importlib.metadata.Distribution] = {}
    for distribution in importlib.metadata.distributions():
        for file in distribution.files or ():
            if ".so" in file.name:
                owners[str(Path(distribution.locate_file(file)).resolve())] = distribution

    def of(path: str) -> dict[str, str]:
        owner = owners.get(str(Path(path).resolve())) if path else None
        if owner is None:
            return {"package": "", "licence": ""}
        said = (
            owner.metadata.get("License-Expression")
            or owner.metadata.get("License")
            or "; ".join(c for c in owner.metadata.get_all("Classifier") or () if c.startswith("License"))
        )
        return {
            "package": f"{owner.metadata['Name']} {owner.version}",
            "licence": (said or "").splitlines()[0][:90] if said else "",
        }

    return of


def main() -> None:
    warnings.simplefilter("ignore")
    recorder, rows = library("recorder"), {}
    recorder.recorder_level(2)
    for name, call in calls().items():
        try:
            call()
            torch.cuda.synchronize()
            recorder.recorder_mark(f"begin {name}".encode())
            call()
            torch.cuda.synchronize()
            recorder.recorder_mark(b"end")
        except Exception as error:
            rows[name] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    recorder.recorder_mark(b"over")
    lines = Path(f"{os.environ['RECORDER_OUT']}.{os.getpid()}").read_text(errors="replace").splitlines()
    folder, licence_of = Path(os.environ["RECORDER_CODE"]), licences()
    codes: dict[int, dict[str, Any]] = {}
    section = None
    for line in map(json.loads, lines):
        if line["what"] == "module":
            codes[line["code"]] = line
        elif line["what"] == "mark":
            section = line["text"].removeprefix("begin ") if line["text"].startswith("begin") else None
        elif line["what"] == "launch" and section:
            row = rows.setdefault(section, {"kernels": []})
            code = codes.get(line["code"], {})
            path = folder / f"{line['hash']}.{line['kind']}"
            parts = entries(path.read_bytes()) if path.exists() else []
            row.setdefault("kernels", []).append(
                {
                    "name": (line["name"] or "?")[:80],
                    "file": Path(code.get("file", "")).name or "(memory)",
                    "kind": code.get("kind"),
                    "module_bytes": code.get("size"),
                    "sm90_bytes": sum(p["bytes"] for p in parts if p["arch"] == 90 and p["kind"] == "cubin"),
                    "architectures": sorted({p["arch"] for p in parts}),
                    "dumped": path.exists(),
                    **licence_of(code.get("file", "")),
                }
            )
    answer({"calls": rows, "modules_of_process": len(codes), "bytes_of_all": sum(c["size"] for c in codes.values())})


main()
