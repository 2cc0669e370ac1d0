"""What a process gives up before it runs a stranger's code: files, network, other processes, memory and time.

By the system alone: Landlock (kernel documentation, "Landlock: unprivileged access control"), a seccomp filter and
resource limits. All of it is inherited by every process that is started from there, and can't be taken back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import multiprocessing.synchronize
import os
import platform
import resource
import site
import struct
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls of Landlock, the same on all processors."""

ABI_QUESTION, PATH_BENEATH = 1, 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
DEVICE_NODES = 1 << 6 | 1 << 11
MAKING = sum(1 << bit for bit in range(4, 13)) & ~DEVICE_NODES
"""Removing, and making of files, folders, sockets, pipes and links, but not of device nodes."""

BITS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many kinds of access to files each version of Landlock handles; later ones as many as the fifth."""

REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Kinds of access that a rule for a single file may name."""

NO_NEW_PRIVILEGES, SECCOMP, SECCOMP_FILTER = 38, 22, 2
"""``PR_SET_NO_NEW_PRIVS``, ``PR_SET_SECCOMP``, ``SECCOMP_MODE_FILTER``."""

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""``AUDIT_ARCH_*`` of linux/audit.h."""

REFUSED_CALLS = {
    # x86_64, aarch64 (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h)
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440), "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "semctl": (66, 191), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "quotactl": (179, 60), "sethostname": (170, 161), "setdomainname": (171, 162), "clock_adjtime": (305, 266),
    "quotactl_fd": (443, 443), "open_tree_attr": (467, 467), "process_mrelease": (448, 448),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
}  # fmt: skip
"""What no kernel's author needs: sockets (no network), other processes' memory and descriptors, memory that outlives
its process, file systems, devices of the system."""

OF_CUDA = ("socket", "bind", "listen")
"""What CUDA's driver library calls at its start (seen with driver 580 on an H100), for a socket of its own. No
candidate's code runs where they are allowed; to connect is refused there as well."""

WITHOUT_GPU = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "inotify_init": (253, -1), "inotify_init1": (294, 26),
    "fanotify_init": (300, 262), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466), "file_setattr": (469, 469), "ioprio_set": (251, 30),
}  # fmt: skip
"""Refused as well where no CUDA driver starts: memory that is no address space, names of what others do in a folder,
files' attributes, which Landlock has no rule for, input's priorities, which a user's processes have together. -1: a
processor without that call."""

ANSWERED = {
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1),
    "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54), "utime": (132, -1), "utimes": (235, -1),
    "futimesat": (261, -1), "utimensat": (280, 88),
}  # fmt: skip
"""Modes, owners and times of files, which Landlock has no rule for. They are answered as if done, since copying of
files sets them; nothing changes."""

CLONE, NEW_NAMESPACES = (56, 220), 0x7E020080
"""The call, refused with any of the ``CLONE_NEW*`` flags of linux/sched.h."""

IOCTL, REFUSED_REQUESTS = (16, 29), (0x40086602, 0x40046602, 0x401C5820, 0xC0045877, 0xC0045878, 0x5412)
"""The call, refused with one of these requests: ``FS_IOC_SETFLAGS`` (of 64 and 32 bits), ``FS_IOC_FSSETXATTR``,
``FIFREEZE``, ``FITHAW`` (linux/fs.h: flags of files that may only be read) and ``TIOCSTI`` (asm/ioctls.h)."""

FCNTL, SIGNALLING = (72, 25), (8, 10, 15)
"""The call, refused with ``F_SETOWN``, ``F_SETSIG`` and ``F_SETOWN_EX`` (linux/fcntl.h) where Landlock doesn't keep
signals inside: what is written to a file would send one."""

F_NOTIFY = 1026
"""Refused as ``inotify`` is."""

CLONE3 = (435, 435)
"""Its flags lie in memory, where a filter can't look: it answers that there is no such call, and libraries use
``clone``."""

KEPT_CAPABILITIES = 1 << 2
"""``CAP_DAC_READ_SEARCH``: the administrator's process reads another user's files, where Landlock lets it. Without the
others it sets no clock, mounts nothing, and makes no file immutable."""

OWN_ALONE = {
    "prlimit64": (302, 261, 0), "sched_setaffinity": (203, 122, 0), "sched_setparam": (142, 118, 0),
    "setpriority": (141, 140, 1), "ioprio_set": (251, 30, 1), "migrate_pages": (256, 238, 0),
    "move_pages": (279, 239, 0),
}  # fmt: skip
"""Calls that change another process of the same user, whose limits, priority, processors and memory they set: they are
refused unless the argument of this place (the last number) is 0, the caller itself. Landlock has no rule for them."""

SIGNALS = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
           "rt_tgsigqueueinfo": (297, 240)}  # fmt: skip
"""What sends signals, refused where Landlock doesn't keep them within the sealed processes (before version 6)."""

LOAD, EQUAL, AT_LEAST, ANY_OF, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, END_PROCESS, REFUSE, ANSWER, NO_CALL = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000, 0x50000 | 38
"""``SECCOMP_RET_*`` of linux/seccomp.h; the last with ``ENOSYS``."""

ARGUMENTS = 16
"""Where the arguments of a call begin in ``struct seccomp_data``, eight bytes each, low half first."""

X32 = 0x40000000
"""Numbers from here on are x86-64's second set of the same calls."""

turn_file = -1
"""In a sealed process: a file that it was given, which it and the others of one referee lock in turn."""


@dataclass(frozen=True)
class SealLimits:
    """``readable`` and ``writable`` are folders or files; ``memory`` are bytes of address space beyond what the process
    has (0: no limit, which a CUDA driver needs), ``seconds`` of processor time. ``gpu``: a CUDA driver starts here."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    memory: int
    seconds: int
    gpu: bool = False


class CannotSeal(Exception):
    """The system has no Landlock or seccomp, or refuses them; the message says which."""


def landlock_version() -> int:
    """The version of Landlock that the kernel has; 0 without any."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_syscall(CREATE_RULESET, None, 0, ABI_QUESTION)))


def seal(limits: SealLimits) -> None:
    """Give up all but what ``limits`` allow, in this process and all that it will start. It must have one thread.

    :class:`CannotSeal` where the system doesn't enforce all of it.
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise CannotSeal(f"processes can't be sealed on {sys.platform} {platform.machine()}")
    version = landlock_version()
    if version < 1:
        raise CannotSeal("this kernel has no Landlock, or it is turned off")
    if version < 3:
        raise CannotSeal("this kernel's Landlock doesn't keep files from being truncated: Linux 6.2 is needed")
    set_limits(limits)
    if _prctl(NO_NEW_PRIVILEGES, 1):
        raise CannotSeal("the system refuses PR_SET_NO_NEW_PRIVS")
    _landlock(limits, version)
    if not limits.gpu:
        _drop_capabilities()
    _seccomp(signals_stay_inside=version >= 6, gpu=limits.gpu)


def set_limits(limits: SealLimits) -> None:
    """The resource limits alone: no core dumps, no large files, address space and processor time."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 1 << 28)
    _limit(resource.RLIMIT_NOFILE, 1024)
    _limit(resource.RLIMIT_CPU, limits.seconds)
    _limit(resource.RLIMIT_MEMLOCK, 1 << 26)
    if limits.memory:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory)


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def use_threads_locks() -> None:
    """Let multiprocessing's locks be those of threads: FlagGems has one for each kernel, and one that processes share
    lies in /dev/shm, which is sealed."""
    made = {"Lock": lambda *, ctx: threading.Lock(), "RLock": lambda *, ctx: threading.RLock()}
    vars(multiprocessing.synchronize).update(made)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *words: object) -> int:
    _LIBC.syscall.restype = ctypes.c_long
    return int(_LIBC.syscall(ctypes.c_long(number), *words))


def _prctl(option: int, *words: int) -> int:
    _LIBC.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return int(_LIBC.prctl(option, *words, *[0] * (4 - len(words))))


def _ruleset(*handled: int) -> int:
    """A set of Landlock's rules for kinds of access to files, to the network, and beyond these processes; negative
    where the system makes none."""
    attributes = struct.pack(f"{len(handled)}Q", *handled)
    return _syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)


def _failed(what: str) -> CannotSeal:
    """What the system has just refused, and why."""
    return CannotSeal(f"{what} ({os.strerror(ctypes.get_errno())})")


def _landlock(limits: SealLimits, version: int) -> None:
    handled = (1 << BITS_OF_ABI.get(version, 16)) - 1
    network, scoped = [3] * (version >= 4), [3] * (version >= 6)
    ruleset = _ruleset(handled, *network, *scoped)
    if ruleset < 0:
        raise _failed("Landlock makes no rules")
    reading = READ_FILE | READ_DIR | EXECUTE
    everything = handled & (reading | WRITE_FILE | MAKING | REFER | TRUNCATE | IOCTL_DEV)
    for paths, access in ((limits.readable, reading), (limits.writable, everything)):
        for path in paths:
            _allow(ruleset, path, access & handled)
    if _syscall(RESTRICT_SELF, ruleset, 0) < 0:
        raise _failed("Landlock isn't enforced")
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            access &= OF_FILES
        rule = struct.pack("=Qi", access, descriptor)
        if _syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0) < 0:
            raise _failed(f"Landlock takes no rule for {path}")
    finally:
        os.close(descriptor)


SCOPE_SIGNALS = 2
"""``LANDLOCK_SCOPE_SIGNAL`` (version 6): signals reach no process outside."""


def keep_signals_inside(outside: int) -> bool:
    """Let this process, and those that it will start, signal only each other; whether that is so: the process
    ``outside`` can't be signalled any more. Then ``kill(-1)`` reaches just these."""
    if landlock_version() < 6 or _prctl(NO_NEW_PRIVILEGES, 1):
        return False
    ruleset = _ruleset(REFER, 0, SCOPE_SIGNALS)
    if ruleset < 0:
        return False
    _allow(ruleset, "/", REFER)  # a set of rules that says nothing of it keeps files in their folders
    kept = _syscall(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    if kept < 0:
        return False
    try:
        os.kill(outside, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


SET_BOUND, AMBIENT, CLEAR_ALL = 24, 47, 4
"""``PR_CAPBSET_DROP``, ``PR_CAP_AMBIENT``, ``PR_CAP_AMBIENT_CLEAR_ALL``."""

CAPGET, CAPSET, CAPABILITIES_3 = (125, 90), (126, 91), 0x20080522
"""Calls by processor, and ``_LINUX_CAPABILITY_VERSION_3``."""


def _drop_capabilities() -> None:
    """Keep :data:`KEPT_CAPABILITIES` at most, in programs that are started from here, too. Only the
    administrator has any."""
    for number in range(64):
        if not KEPT_CAPABILITIES >> number & 1:
            _prctl(SET_BOUND, number)  # fails without CAP_SETPCAP, and beyond the last one
    _prctl(AMBIENT, CLEAR_ALL)
    at = _processor()
    head, data = struct.pack("Ii", CAPABILITIES_3, 0), ctypes.create_string_buffer(24)
    if _syscall(CAPGET[at], head, data) < 0:
        raise _failed("the system tells no capabilities")
    effective, permitted, *_ = struct.unpack("6I", data.raw)
    kept = struct.pack("6I", effective & KEPT_CAPABILITIES, permitted & KEPT_CAPABILITIES, 0, 0, 0, 0)
    if _syscall(CAPSET[at], head, kept) < 0:
        raise _failed("the system takes no capabilities away")


def _processor() -> int:
    """The place of this processor's number in the tables of calls."""
    return 0 if platform.machine() == "x86_64" else 1


def _seccomp(signals_stay_inside: bool, gpu: bool) -> None:
    at = _processor()
    refused = {n: pair for n, pair in REFUSED_CALLS.items() if not (gpu and n in OF_CUDA)}
    refused |= {**({} if signals_stay_inside else SIGNALS), **({} if gpu else WITHOUT_GPU)}
    steps = filter_steps(
        MACHINES[platform.machine()],
        sorted(pair[at] for pair in refused.values() if pair[at] >= 0),
        [
            *((entry[at], entry[2], OWN, 0) for entry in OWN_ALONE.values()),
            (OWN_ALONE["setpriority"][at], 0, OWN, 0),  # PRIO_PROCESS: others are a group's or a user's
            *((IOCTL[at], 1, NOT, request) for request in REFUSED_REQUESTS),
            *((FCNTL[at], 1, NOT, command) for command in (() if signals_stay_inside else SIGNALLING)),
            (FCNTL[at], 1, NOT, F_NOTIFY),
            (CLONE[at], 0, WITHOUT, NEW_NAMESPACES),
        ],
        [] if gpu else sorted(pair[at] for pair in ANSWERED.values() if pair[at] >= 0),
        CLONE3[at],
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(code)))
    if _prctl(SECCOMP, SECCOMP_FILTER, ctypes.addressof(program)):
        raise _failed("the system takes no seccomp filter")


FilterStep = tuple[int, int, int, int]
"""What to do, how many steps to skip if it is so and if not, a number or the place of one."""

OWN, NOT, WITHOUT = "own", "not", "without"
"""What an argument must be: 0, the caller itself; not this number; without any of these flags."""


def filter_steps(
    machine: int,
    refused: Sequence[int],
    conditions: Sequence[tuple[int, int, str, int]] = (),
    answered: Sequence[int] = (),
    missing: int = -1,
) -> list[FilterStep]:
    """A seccomp filter's steps. Another processor's calls end the process. Those in ``refused`` fail. Each of
    ``conditions`` is a call, the place of an argument (its lower half: process ids, requests and flags have 32 bits),
    :data:`OWN`, :data:`NOT` or :data:`WITHOUT`, and a number: if it doesn't hold, the call fails. Those in
    ``answered`` are answered as if done; ``missing`` answers that there is no such call. All others pass."""
    checks: list[tuple[int, str, str, int]] = [(EQUAL, "refuse", "", number) for number in refused]
    checks += [(EQUAL, "answer", "", number) for number in answered]
    checks.append((EQUAL, "no call", "", missing & 0xFFFFFFFF))
    for number, argument, test, value in conditions:
        holds = {OWN: ("", "refuse"), NOT: ("refuse", ""), WITHOUT: ("refuse", "")}[test]
        checks += [
            (EQUAL, "", "skip", number),
            (LOAD, "", "", ARGUMENTS + 8 * argument),
            (ANY_OF if test == WITHOUT else EQUAL, *holds, value),
            (LOAD, "", "", 0),
        ]
    ends = {"allow": ALLOW, "refuse": REFUSE, "answer": ANSWER, "no call": NO_CALL}
    places = {name: len(checks) + i for i, name in enumerate(ends)}

    def skipped(at: int, to: str) -> int:
        return 3 if to == "skip" else places[to] - at - 1 if to else 0

    return [
        (LOAD, 0, 0, 4), (EQUAL, 1, 0, machine), (RETURN, 0, 0, END_PROCESS),
        (LOAD, 0, 0, 0), (AT_LEAST, places["refuse"], 0, X32),
        *((code, skipped(i, to), skipped(i, other), k) for i, (code, to, other, k) in enumerate(checks)),
        *((RETURN, 0, 0, value) for value in ends.values()),
    ]  # fmt: skip


SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/sys/devices/system",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys", "/proc/filesystems", "/proc/version",
    *(f"/etc/{name}" for name in (
        "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "localtime", "timezone", "passwd", "group",
        "nsswitch.conf", "hosts", "host.conf", "services", "protocols", "mime.types", "os-release", "alternatives",
        "locale.alias", "ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "OpenCL", "nvidia",
    )),
)  # fmt: skip
"""Programs, libraries and what they read at their start; of ``/etc`` what holds no secrets. ``/proc/self`` is the
folder of the process that seals itself: those of others, with their environments and memory maps, can't be read."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full")


def nvidia_devices() -> Iterable[str]:
    """What a CUDA driver opens."""
    with contextlib.suppress(OSError):
        yield from (f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia"))


def import_folders() -> tuple[str, ...]:
    """Folders that this Python imports from, but for the working folder, and those of which it has imported nothing and
    that no package is installed in: the folder of a script that judges may hold shapes that are held back."""
    here, root = Path.cwd().resolve(), Path(__file__).resolve().parents[2]
    found = [Path(entry).resolve() for entry in sys.path if entry and Path(entry).exists()]
    files = [getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if "." not in name]
    used = {folder for file in files if file for folder in Path(file).resolve().parents[:2]} | _installed_beside()
    kept = [str(p) for p in found if p not in (here, root) and (p in used or any(p.glob("*.dist-info/RECORD")))]
    return tuple(dict.fromkeys([*kept, str(root / "kerntune"), sys.prefix, sys.base_prefix, sys.exec_prefix]))


def _installed_beside() -> set[Path]:
    """Folders of packages that are installed as editable: lines of ``.pth`` files."""
    found = set()
    for folder in site.getsitepackages():
        for file in Path(folder).glob("*.pth"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                found |= {
                    Path(folder, line.strip()).resolve() for line in file.read_text().splitlines() if line.strip()
                }
    return found
