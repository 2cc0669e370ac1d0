"""What a sealed process can't do, tried from inside: each attempt would succeed without its rule."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerntune.referee import sealing
from kerntune.referee.sealing import REFUSED_CALLS, filter_steps, landlock_version

AT_LEAST = 53
EQUAL = 21
ANY_OF = 69
LOAD = 32
RETURN = 6
X32 = 0x40000000


ROOT = Path(__file__).parents[2]

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")


def attempt(body: str, folder: Path, sealed: bool = True, seconds: int = 20) -> str:
    """What a process prints that seals itself, with ``folder`` to write in, and then runs ``body``."""
    code = f"""
    import sys; sys.path.insert(0, {str(ROOT)!r})
    import os, resource, signal, socket, ctypes
    from kerntune.referee.sealing import SYSTEM, DEVICES, SealLimits, import_folders, seal
    def libc(x86, arm, *arguments):
        call = ctypes.CDLL(None, use_errno=True).syscall
        if call(x86 if os.uname().machine == "x86_64" else arm, *arguments) < 0:
            raise OSError(ctypes.get_errno(), "a call")
        return 0
    limits = SealLimits((*SYSTEM, *import_folders()), ({str(folder)!r}, *DEVICES), 1 << 30, {seconds})
    if {sealed}: seal(limits)
    def tried(work):
        try:
            return f"did it {{work()}}"
        except (OSError, MemoryError, ValueError) as exc:
            return type(exc).__name__
    """
    text = textwrap.dedent(code) + textwrap.dedent(body)
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=60)
    return done.stdout.strip() or f"status {done.returncode}: {done.stderr[-300:]}"


FORBIDDEN = {
    "write beside the folder": "print(tried(lambda: open(os.path.join(os.pardir, 'x'), 'w')))",
    "read beside the folder": "print(tried(lambda: open(os.path.join(os.pardir, 'secret')).read()))",
    "list beside the folder": "print(tried(lambda: os.listdir(os.pardir)))",
    "make a folder": "print(tried(lambda: os.mkdir(os.path.join(os.pardir, 'y'))))",
    "remove": "print(tried(lambda: os.unlink(os.path.join(os.pardir, 'secret'))))",
    "rename out": "open('z', 'w').close(); print(tried(lambda: os.rename('z', os.path.join(os.pardir, 'z'))))",
    "truncate": "print(tried(lambda: os.truncate(os.path.join(os.pardir, 'secret'), 0)))",
    "network": "print(tried(lambda: socket.socket()))",
    "unix sockets": "print(tried(lambda: socket.socket(socket.AF_UNIX)))",
    "signal the parent": "print(tried(lambda: os.kill(os.getppid(), 0)))",
    "another's environment": "print(tried(lambda: open(f'/proc/{os.getppid()}/environ').read()))",
    "another's memory": "print(tried(lambda: open(f'/proc/{os.getppid()}/mem', 'rb')))",
    "another's limits": "print(tried(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE)))",
    "another's priority": "print(tried(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)))",
    "another's processors": "print(tried(lambda: os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))))",
    "an own namespace": "print(tried(lambda: os.waitstatus_to_exitcode(libc(56, 220, 0x10000011, 0, 0, 0, 0))))",
    "memory of a file": "print(tried(lambda: os.memfd_create('x')))",
    "a device": "print(tried(lambda: os.mknod('d', 0o020600, os.makedev(1, 1))))",
    "passwords": "print(tried(lambda: open('/etc/shadow').read()))",
    "the clock": "print(tried(lambda: __import__('time').clock_settime(0, 1e9)))",
    "the host's name": "print(tried(lambda: socket.sethostname('x')))",
    "a file's flags": "import fcntl; print(tried(lambda: fcntl.ioctl(open('/bin/sh'), 0x40086602, bytes(8))))",
    "priorities of all": "print(tried(lambda: os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0))))",
    "attributes": "open('f', 'w').close(); print(tried(lambda: os.setxattr('f', 'user.x', b'1')))",
    "a large file": "print(tried(lambda: os.truncate(os.open('big', os.O_CREAT | os.O_WRONLY), 1 << 30)))",
    "more address space": "print(tried(lambda: len(bytearray(1 << 31))))",
}  # fmt: skip


@needs_landlock
@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    body = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + FORBIDDEN[name]
    said = attempt(body, folder)
    assert said in ("PermissionError", "OSError", "MemoryError", "ProcessLookupError"), said
    assert (tmp_path / "secret").read_text() == "secret"


@needs_landlock
@pytest.mark.parametrize(
    "name",
    ["read beside the folder", "network", "signal the parent",
     pytest.param("more address space", marks=pytest.mark.slow)],
)  # fmt: skip
def test_all_that_can_be_done_unsealed(name: str, tmp_path: Path) -> None:
    """The attempts themselves are right."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    assert attempt(FORBIDDEN[name], folder, sealed=False).startswith("did it")


@needs_landlock
def test_what_a_candidate_needs_goes_on(tmp_path: Path) -> None:
    body = """
    open("own", "w").write("x")
    import json, subprocess
    print(open("own").read(), subprocess.run(["/bin/sh", "-c", "echo $((1+1))"], capture_output=True).stdout)
    """
    assert attempt(body, tmp_path) == "x b'2\\n'"


@needs_landlock
def test_system_calls_are_refused_by_number(tmp_path: Path) -> None:
    at = 0 if os.uname().machine == "x86_64" else 1
    numbers = [pair[at] for pair in {**REFUSED_CALLS, **sealing.WITHOUT_GPU}.values() if pair[at] >= 0]
    body = f"""
    libc, found = ctypes.CDLL(None, use_errno=True), []
    for number in {numbers}:
        found.append((libc.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0, 0), ctypes.get_errno()))
    print(set(found))
    """
    assert attempt(body, tmp_path) == "{(-1, 1)}"


@needs_landlock
def test_modes_and_times_of_files_stay_as_they_are(tmp_path: Path) -> None:
    """Whoever asks for others goes on."""
    folder, outside = tmp_path / "scratch", tmp_path / "secret"
    folder.mkdir()
    outside.write_text("secret")
    before = outside.stat()
    body = """
    import shutil
    os.chmod("../secret", 0o777); os.utime("../secret", (1, 1)); os.chown("../secret", 0, 0)
    open("a", "w").write("x"); shutil.copy2("a", "b")
    print(open("b").read())
    """
    assert attempt(body, folder) == "x"
    after = outside.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_uid) == (before.st_mode, before.st_mtime_ns, before.st_uid)


@needs_landlock
def test_the_administrator_s_capabilities_are_gone(tmp_path: Path) -> None:
    """And those that a program started by the administrator would have again (the bounding set)."""
    said = attempt("print(open('/proc/self/status').read())", tmp_path)
    sets = {name: int(value, 16) for name, value in re.findall(r"^Cap(\w+):\s+(\w+)$", said, re.MULTILINE)}
    assert sets.keys() == {"Inh", "Prm", "Eff", "Bnd", "Amb"}
    if os.geteuid():
        del sets["Bnd"]
    assert {name for name, kept in sets.items() if kept & ~sealing.KEPT_CAPABILITIES} == set()


def test_signals_stay_inside_where_landlock_keeps_them(tmp_path: Path) -> None:
    """So that all of its descendants can be killed at once. A process that is gone proves nothing."""
    body = """
    import subprocess, time
    from kerntune.referee.sealing import keep_signals_inside
    print(keep_signals_inside(1 << 22))
    inside, child = keep_signals_inside(os.getppid()), subprocess.Popen(["/bin/sleep", "60"])
    os.kill(-1 if inside else child.pid, signal.SIGTERM)
    os.mkdir("a"); open("a/b", "w").close(); os.replace("a/b", "b")
    print(inside, child.wait())
    """
    scoped = landlock_version() >= 6
    assert attempt(body, tmp_path, sealed=False) == f"False\n{scoped} -15"


@needs_landlock
def test_children_are_sealed_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    body = """
    import subprocess
    print(subprocess.run(["/bin/cat", "../secret"], capture_output=True, text=True).returncode)
    """
    assert attempt(body, folder) == "1"


@pytest.mark.slow
@needs_landlock
def test_processor_time_is_bounded(tmp_path: Path) -> None:
    assert attempt("while True: pass", tmp_path, seconds=1).startswith("status -")


def run_filter(
    steps: list[tuple[int, int, int, int]], machine: int, number: int, arguments: tuple[int, ...] = ()
) -> int:
    """What a filter says, by the rules of seccomp's machine."""
    place, value = 0, 0
    while True:
        code, if_so, if_not, k = steps[place]
        if code == RETURN:
            return k
        if code == LOAD:
            value = {0: number, 4: machine}[k] if k < 16 else arguments[(k - 16) // 8]
            place += 1
        else:
            holds = {EQUAL: value == k, AT_LEAST: value >= k, ANY_OF: bool(value & k)}[code]
            place += 1 + (if_so if holds else if_not)


def test_the_filter_refuses_its_numbers_and_no_others() -> None:
    steps = filter_steps(0xC000003E, [41, 62, 101])
    for number in (41, 62, 101, X32 + 1, X32 + 41):
        assert run_filter(steps, 0xC000003E, number) == sealing.REFUSE
    for number in (0, 40, 42, 61, 63, 300):
        assert run_filter(steps, 0xC000003E, number) == sealing.ALLOW
    assert run_filter(steps, 0x40000003, 0) == sealing.END_PROCESS


def test_calls_on_other_processes_are_refused_by_their_argument() -> None:
    steps = filter_steps(0xC000003E, [41, 500], [(302, 0, "own", 0), (141, 1, "own", 0)])

    def said(number: int, *arguments: int) -> int:
        return run_filter(steps, 0xC000003E, number, arguments)

    assert said(302, 0, 9) == said(141, 9, 0) == said(142, 9, 9) == sealing.ALLOW
    assert said(302, 9, 0) == said(141, 0, 9) == said(41, 0, 0) == said(500, 0, 0) == sealing.REFUSE


def test_calls_that_are_answered_refused_by_a_flag_or_said_to_be_missing() -> None:
    conditions = [(302, 0, "own", 0), (16, 1, "not", 7), (16, 1, "not", 9), (56, 0, "without", 0x7E020080)]
    steps = filter_steps(0xC000003E, [41], conditions, [90, 91], 435)

    def said(number: int, *arguments: int) -> int:
        return run_filter(steps, 0xC000003E, number, arguments)

    assert said(90) == said(91) == sealing.ANSWER == 0x50000
    assert said(435) == sealing.NO_CALL == 0x50026
    assert said(56, 0x10000011) == said(56, 0x80) == said(302, 1) == sealing.REFUSE == 0x50001
    assert said(16, 0, 7) == said(16, 0, 9) == sealing.REFUSE
    assert said(16, 7, 8) == said(17, 0, 7) == sealing.ALLOW
    assert said(56, 0x11) == said(57, 0x80) == said(302, 0) == said(0) == sealing.ALLOW


def header(path: str, pattern: str) -> dict[str, int]:
    """Numbers that a header of the system defines, by name."""
    try:
        text = next(Path(folder, path).read_text() for folder in INCLUDES if Path(folder, path).exists())
    except StopIteration:
        pytest.skip(f"this system has no {path}")
    return {name: int(value, 0) for name, value in re.findall(rf"^#define\s+{pattern}\s+(\d+)\b", text, re.MULTILINE)}


INCLUDES = ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu")


@pytest.mark.parametrize(
    ("at", "path", "pattern"),
    [(0, "asm/unistd_64.h", r"__NR_(\w+)"), (1, "asm-generic/unistd.h", r"__NR(?:3264)?_(\w+)")],
    ids=["x86_64", "aarch64"],
)
def test_numbers_of_calls_are_the_systems(at: int, path: str, pattern: str) -> None:
    """The name of a header's call that older ones lack is left out."""
    known = header(path, pattern)
    tables = (REFUSED_CALLS, sealing.OWN_ALONE, sealing.SIGNALS, sealing.WITHOUT_GPU, sealing.ANSWERED)
    more = {
        "clone": sealing.CLONE,
        "clone3": sealing.CLONE3,
        "capget": sealing.CAPGET,
        "capset": sealing.CAPSET,
        "ioctl": sealing.IOCTL,
        "fcntl": sealing.FCNTL,
    }
    ours = {n: entry[at] for table in (*tables, more) for n, entry in table.items() if entry[at] >= 0}
    missing = {n for table in tables for n, entry in table.items() if entry[at] < 0}
    assert not missing & known.keys()
    assert len(ours.keys() & known.keys()) > 50
    assert {n: number for n, number in ours.items() if known.get(n, number) != number} == {}


def test_numbers_of_the_kernels_interface_by_hand() -> None:
    """linux/landlock.h, linux/prctl.h, linux/seccomp.h, linux/bpf_common.h and linux/filter.h."""
    assert (sealing.CREATE_RULESET, sealing.ADD_RULE, sealing.RESTRICT_SELF) == (444, 445, 446)
    assert (sealing.ABI_QUESTION, sealing.PATH_BENEATH) == (1, 1)
    assert (sealing.EXECUTE, sealing.WRITE_FILE, sealing.READ_FILE, sealing.READ_DIR) == (1, 2, 4, 8)
    assert sealing.MAKING == 0b1_0111_1011_0000
    assert sealing.DEVICE_NODES | sealing.MAKING == 0b1_1111_1111_0000
    assert (sealing.REFER, sealing.TRUNCATE, sealing.IOCTL_DEV) == (0x2000, 0x4000, 0x8000)
    assert sealing.OF_FILES == 0xC007
    assert (sealing.NO_NEW_PRIVILEGES, sealing.SECCOMP, sealing.SECCOMP_FILTER) == (38, 22, 2)
    assert (sealing.LOAD, sealing.EQUAL, sealing.AT_LEAST, sealing.ANY_OF) == (0x20, 0x15, 0x35, 0x45)
    assert (sealing.RETURN, sealing.KEPT_CAPABILITIES, sealing.CAPABILITIES_3) == (0x06, 0b100, 0x20080522)
    assert (sealing.SET_BOUND, sealing.AMBIENT, sealing.CLEAR_ALL) == (24, 47, 4)


@pytest.mark.parametrize(
    ("version", "fields"),
    [(1, [0x1FFF]), (2, [0x3FFF]), (3, [0x7FFF]), (4, [0x7FFF, 3]), (5, [0xFFFF, 3]), (6, [0xFFFF, 3, 3]),
     (9, [0xFFFF, 3, 3])],
)  # fmt: skip
def test_what_landlock_is_told(
    version: int, fields: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Reading and running of one kind of folders, everything of the other; of a file what can be done with one."""
    calls: list[tuple[object, ...]] = []

    def syscall(*words: object) -> int:
        calls.append(words)
        return os.open("/dev/null", os.O_RDONLY) if words[0] == 444 else 0

    monkeypatch.setattr(sealing, "_syscall", syscall)
    (tmp_path / "file").touch()
    limits = sealing.SealLimits((str(tmp_path), str(tmp_path / "none")), (str(tmp_path), str(tmp_path / "file")), 0, 1)
    sealing._landlock(limits, version)
    (number, attributes, size, flags), *rules, last = calls
    assert (number, list(struct.unpack(f"{len(fields)}Q", attributes)), flags) == (444, fields, 0)  # type: ignore[arg-type]
    assert size.value == 8 * len(fields)  # type: ignore[attr-defined]
    allowed = [struct.unpack("=Qi", words[3])[0] for words in rules]  # type: ignore[arg-type]
    assert allowed == [0b1101, fields[0] & ~0b1000_0100_0000, fields[0] & 0xC007]
    assert [(words[0], words[2], words[4]) for words in rules] == [(445, 1, 0)] * 3
    assert (last[0], last[2]) == (446, 0)


@pytest.mark.parametrize("failing", [444, 445, 446])
def test_rules_that_landlock_refuses(failing: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def syscall(number: int, *words: object) -> int:
        return -1 if number == failing else os.open("/dev/null", os.O_RDONLY)

    monkeypatch.setattr(sealing, "_syscall", syscall)
    with pytest.raises(sealing.CannotSeal, match="Landlock"):
        sealing._landlock(sealing.SealLimits((str(tmp_path),), (), 0, 1), 6)


def test_limits_of_a_sealed_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than what this process may have itself."""
    told: dict[int, tuple[int, int]] = {}
    hard = {resource.RLIMIT_NOFILE: 100}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (0, hard.get(which, resource.RLIM_INFINITY)))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: told.update({which: limits}))
    sealing.set_limits(sealing.SealLimits((), (), 1 << 30, 7))
    space = told.pop(resource.RLIMIT_AS)[0]
    assert 1 << 30 < space < 1 << 50
    most = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 1 << 28, resource.RLIMIT_NOFILE: 100,
            resource.RLIMIT_CPU: 7, resource.RLIMIT_MEMLOCK: 1 << 26}  # fmt: skip
    assert told == {which: (n, n) for which, n in most.items()}
    told.clear()
    sealing.set_limits(sealing.SealLimits((), (), 0, 7))
    assert resource.RLIMIT_AS not in told


def test_folders_that_imports_come_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each once: those that packages were imported from or are installed in, by ``pip install --target``, too. Neither
    the working folder nor the one beside kerntune's sources, but kerntune's own; not the folder of a script."""
    monkeypatch.chdir(tmp_path)
    folders = {name: tmp_path / name for name in ("site", "editable", "imported", "target", "script")}
    for folder in folders.values():
        folder.mkdir()
    (folders["script"] / "no-1.0.dist-info").mkdir()
    (folders["target"] / "one-1.0.dist-info").mkdir()
    (folders["target"] / "one-1.0.dist-info" / "RECORD").touch()
    (folders["site"] / "x.pth").write_text("\n../editable\nimport os\n")
    monkeypatch.setattr(sealing.site, "getsitepackages", lambda: [str(folders["site"])])
    monkeypatch.setitem(sys.modules, "one", SimpleNamespace(__file__=str(folders["imported"] / "one" / "__init__.py")))
    paths = [str(folders[name]) for name in ("editable", "imported", "target", "script", "editable")]
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(ROOT), str(tmp_path / "none"), *paths])
    own = [str(ROOT / "kerntune"), sys.prefix, sys.base_prefix, sys.exec_prefix]
    assert sealing.import_folders() == tuple(dict.fromkeys([*paths[:3], *own]))


@pytest.mark.parametrize(
    ("system", "machine", "told"),
    [("darwin", "x86_64", "on darwin x86_64"), ("linux", "riscv64", "on linux riscv64")],
)
def test_systems_that_cannot_seal(monkeypatch: pytest.MonkeyPatch, system: str, machine: str, told: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(sealing.platform, "machine", lambda: machine)
    with pytest.raises(sealing.CannotSeal, match=told):
        sealing.seal(sealing.SealLimits((), (), 0, 1))
    if system != "linux":
        assert landlock_version() == 0


SIGNALS = {"x86_64": [62, 200, 234, 129, 297], "aarch64": [129, 130, 131, 138, 240]}
SOCKETS = {"x86_64": [41, 49, 50], "aarch64": [198, 200, 201]}
CONNECT = {"x86_64": 42, "aarch64": 203}


class System:
    """What the system is told by :func:`kerntune.referee.sealing.seal`, in order; ``failing`` is an option of prctl."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, version: int, machine: str, failing: int = 0) -> None:
        self.told: list[object] = []
        self.steps: list[tuple[int, ...]] = []
        self._failing = failing
        monkeypatch.setattr(sealing, "landlock_version", lambda: version)
        monkeypatch.setattr(sealing, "set_limits", self.told.append)
        monkeypatch.setattr(sealing, "_landlock", lambda *words: self.told.append(words))
        monkeypatch.setattr(sealing, "_prctl", self._prctl)
        monkeypatch.setattr(sealing, "_drop_capabilities", lambda: self.told.append("no capabilities"))
        monkeypatch.setattr(sealing.platform, "machine", lambda: machine)

    def _prctl(self, option: int, word: int, address: int = 0) -> int:
        self.told.append((option, word))
        if option == 22:
            count, code = struct.unpack("HP", ctypes.string_at(address, 16))
            self.steps = list(struct.iter_unpack("HBBI", ctypes.string_at(code, 8 * count)))
        return int(option == self._failing)

    def says(self, machine: int, number: int, *arguments: int) -> int:
        return run_filter(self.steps, machine, number, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize(("machine", "code"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
@pytest.mark.parametrize("version", [3, 5, 6])
def test_the_system_is_told_all_of_it(
    version: int, machine: str, code: int, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals are refused where Landlock doesn't keep them inside; a driver may have sockets, and connects none."""
    system, limits = System(monkeypatch, version, machine), sealing.SealLimits(("a",), (), 0, 1, gpu)
    sealing.seal(limits)
    assert system.told == [limits, (38, 1), (limits, version), *([] if gpu else ["no capabilities"]), (22, 2)]
    at = ["x86_64", "aarch64"].index(machine)

    def numbers(table: dict[str, tuple[int, ...]]) -> set[int]:
        return {entry[at] for entry in table.values()}

    refused = numbers(REFUSED_CALLS) - set(SOCKETS[machine] if gpu else ())
    refused |= (set() if gpu else numbers(sealing.WITHOUT_GPU)) | set(SIGNALS[machine] if version < 6 else ())
    said = dict.fromkeys(refused, sealing.REFUSE) | {435: sealing.NO_CALL}
    said |= {} if gpu else dict.fromkeys(numbers(sealing.ANSWERED), sealing.ANSWER)
    for number in range(500):
        assert system.says(code, number, 0, 0, 0) == said.get(number, sealing.ALLOW), number
    assert CONNECT[machine] in refused
    conditions = [(entry[at], entry[2], 1) for entry in sealing.OWN_ALONE.values()]
    conditions += [((141, 140)[at], 0, 1), ((141, 140)[at], 0, 2)]  # priorities of a group's and of a user's processes
    conditions += [((16, 29)[at], 1, request) for request in sealing.REFUSED_REQUESTS]
    conditions += [((56, 220)[at], 0, 1 << bit) for bit in (7, 17, 25, 26, 27, 28, 29, 30)]
    for number, place, value in conditions:
        assert system.says(code, number, *(value * (i == place) for i in range(3))) == sealing.REFUSE
    assert system.says(code, (141, 140)[at], 0, 0, 19) == system.says(code, (56, 220)[at], 0x11, 0) == sealing.ALLOW
    for command in (8, 10, 15):
        told = system.says(code, (72, 25)[at], 0, command, 0)
        assert told == (sealing.REFUSE if version < 6 else sealing.ALLOW)
    assert system.says(0x40000003, 0) == sealing.END_PROCESS


@pytest.mark.parametrize(
    ("version", "failing", "told"),
    [
        (0, 0, "this kernel has no Landlock, or it is turned off"),
        (2, 0, "this kernel's Landlock doesn't keep files from being truncated: Linux 6.2 is needed"),
        (3, 38, "the system refuses PR_SET_NO_NEW_PRIVS"),
        (3, 22, "the system takes no seccomp filter "),
    ],
)
def test_a_system_that_refuses_a_part_cannot_seal(
    version: int, failing: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    System(monkeypatch, version, "x86_64", failing)
    with pytest.raises(sealing.CannotSeal) as caught:
        sealing.seal(sealing.SealLimits((), (), 0, 1))
    assert str(caught.value).partition("(")[0] == told


@pytest.mark.parametrize(("answered", "version"), [(-1, 0), (0, 0), (1, 1), (7, 7)])
def test_the_version_of_landlock_is_asked(answered: int, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sealing, "_syscall", lambda *words: (asked.append(words), answered)[1])
    assert landlock_version() == version
    assert asked == [(444, None, 0, 1)]


@pytest.mark.parametrize(
    ("version", "refused", "ruleset", "restricted", "signalled", "inside"),
    [
        (6, 0, 0, 0, PermissionError, True), (6, 0, 0, 0, ProcessLookupError, False), (6, 0, 0, 0, None, False),
        (5, 0, 0, 0, PermissionError, False), (6, 1, 0, 0, PermissionError, False),
        (6, 0, -1, 0, PermissionError, False), (6, 0, 0, -1, PermissionError, False),
    ],
)  # fmt: skip
def test_signals_stay_inside_if_one_to_the_outside_is_refused(
    version: int, refused: int, ruleset: int, restricted: int, signalled: Any, inside: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told: list[tuple[Any, ...]] = []

    def syscall(number: int, *words: Any) -> int:
        told.append((number, *words))
        return {444: ruleset or os.open("/dev/null", os.O_RDONLY), 445: 0, 446: restricted}[number]

    def kill(pid: int, number: int) -> None:
        assert (pid, number) == (77, 0)
        if signalled is not None:
            raise signalled

    monkeypatch.setattr(sealing, "landlock_version", lambda: version)
    monkeypatch.setattr(sealing, "_prctl", lambda *words: refused if words == (38, 1) else 1)
    monkeypatch.setattr(sealing, "_syscall", syscall)
    monkeypatch.setattr(sealing.os, "kill", kill)
    assert sealing.keep_signals_inside(77) is inside
    asked = [] if version < 6 or refused else [444] if ruleset else [444, 445, 446]
    assert [(words[0], words[-1]) for words in told] == [(number, 0) for number in asked]
    if asked:
        assert (told[0][1], told[0][2].value) == (struct.pack("3Q", 1 << 13, 0, 2), 24)
    if len(asked) == 3:
        assert struct.unpack("=Qi", told[1][3])[0] == 1 << 13, "files may be moved to other folders, as before"


@pytest.mark.parametrize(("machine", "numbers"), [("x86_64", (125, 126)), ("aarch64", (90, 91))])
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_capabilities_are_given_up_but_for_reading(
    machine: str, numbers: tuple[int, int], failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[tuple[int, ...]] = []
    kept: list[tuple[int, ...]] = []

    def syscall(number: int, head: bytes, data: Any) -> int:
        assert head == struct.pack("Ii", 0x20080522, 0)
        if number == numbers[0]:
            data.raw = struct.pack("6I", 0xFF, 0xFFFF, 7, 7, 7, 7)
            return -(failing == 1)
        kept.append(struct.unpack("6I", data))
        return -(failing == 2)

    monkeypatch.setattr(sealing.platform, "machine", lambda: machine)
    monkeypatch.setattr(sealing, "_prctl", lambda *words: options.append(words))
    monkeypatch.setattr(sealing, "_syscall", syscall)
    if failing:
        told = "the system t(ells no capabilities|akes no capabilities away) "
        with pytest.raises(sealing.CannotSeal, match=told):
            sealing._drop_capabilities()
    else:
        sealing._drop_capabilities()
    assert options == [*((24, n) for n in range(64) if n != 2), (47, 4)]
    assert kept == [(4, 4, 0, 0, 0, 0)][: failing != 1]
