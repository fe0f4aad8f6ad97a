"""A filter of system calls for the sandbox: what no solution to a problem needs, and what namespaces do not hold.

The list is of the calls that go round the other walls: sockets (AF_VSOCK knows nothing of network namespaces), memory
that no limit counts (memfd, System V), new namespaces (root in a namespace of one's own may mount a file system in
memory), other processes' memory, and the parts of the kernel where most escapes were found (bpf, io_uring, keys,
perf). Shared mappings of memory are refused too: their pages outlive `madvise` without counting as anybody's resident
memory, so that a process could fill the machine unseen. It is a list of what is refused, not of what is allowed: an
argument against accidents and known tricks, not a proof.
"""

from __future__ import annotations

import platform
import struct

# fmt: off
REFUSED: dict[str, tuple[int, int]] = {  # name: number on x86_64, on aarch64
    "socket": (41, 198), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "personality": (135, 92),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
}
# fmt: on
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
CLONE, CLONE3, MMAP = (56, 220), 435, (9, 222)
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET."""
MAP_SHARED = 1
"""Also the lowest bit of MAP_SHARED_VALIDATE, and not of MAP_PRIVATE."""

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # opcodes of classic BPF
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, FOURTH_ARGUMENT = 0, 4, 16, 40  # offsets in struct seccomp_data
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def program() -> bytes | None:
    """Return the filter as an array of struct sock_filter, for `bwrap --seccomp`; None on a machine without a table."""
    if platform.machine() not in MACHINES:
        return None
    column, architecture = MACHINES[platform.machine()]
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),  # 32-bit calls have other numbers
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, 0x40000000),
        (RETURN, 0, 0, KILL),  # and so have x32 calls
    ]
    for numbers in REFUSED.values():
        steps += [(EQUAL, 0, 1, numbers[column]), (RETURN, 0, 0, EPERM)]
    steps += [
        (EQUAL, 0, 4, MMAP[column]),
        (LOAD, 0, 0, FOURTH_ARGUMENT),
        (ANY_BIT, 0, 1, MAP_SHARED),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
        (EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, ENOSYS),  # its flags lie behind a pointer; the C library falls back to clone
        (EQUAL, 0, 3, CLONE[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 0, 1, NEW_NAMESPACES),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
