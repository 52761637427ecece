"""Holds a run to what policy grants, on what only shows while it runs.

It is loaded as an inventory plugin, which is the earliest moment that
ansible-playbook offers, and takes no inventory. It refuses connections, users to
become, lookups and files that the grant does not give, however a playbook came to
name them. Files are seen by an audit hook, whatever plugin opens them. A refusal
fails the task and is told to the executor, which ends the run. It binds playbooks,
not Python code: what fences that is isolation.
"""
from __future__ import annotations

import json
import os
import sys

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins import connection as connections
from ansible.plugins.become import BecomeBase
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.plugins.loader import become_loader, connection_loader, lookup_loader
from ansible.release import __version__

DOCUMENTATION = r"""
    name: execution_plane_guard
    short_description: policy at run time
    description: Refuses what the policy's grant does not give.
"""

GRANT = json.loads(os.environ["EXECUTION_PLANE_GUARD"])
REPORT = int(os.environ["EXECUTION_PLANE_GUARD_FD"])
CODE = [os.path.realpath(p) for p in sys.path if p]
WRITABLE = [os.path.realpath(p) for p in GRANT["writable"]]
READABLE = (
    [os.path.realpath(p) for p in GRANT["roots"]] + WRITABLE + CODE
    + [os.path.realpath(p) for p in (sys.prefix, sys.exec_prefix, sys.base_prefix, "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")]
    # What Python itself may read. Names of users and hosts are looked up in C, which
    # no hook sees: their files need not stand here.
    + ["/etc/localtime", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/mime.types", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"]
    + ["/proc/cpuinfo", "/proc/meminfo", "/proc/mounts", "/proc/filesystems", "/proc/sys/crypto"]
    + ["/dev/random", "/dev/urandom", "/dev/zero"]
)
DEVICES = ["/dev/null", "/dev/tty", "/dev/ptmx", "/dev/pts"]
BUILTIN = ("", "ansible.builtin", "ansible.legacy")


def refuse(kind, value):
    value = str(value)[:200]
    line = json.dumps({"kind": kind, "value": value}) + "\n"
    os.write(REPORT, line.encode("ascii"))
    raise AnsibleError("policy does not allow the %s %s" % (kind, value))


def short(name):
    """The plain name of one of ansible's own plugins, else the name as it is."""
    space, _, last = str(name).rpartition(".")
    return last if space in BUILTIN else str(name)


def guard_loader(loader, kind, allowed):
    inner = loader.get_with_context

    def get_with_context(name, *args, **kwargs):
        if not allowed(short(name)):
            refuse(kind, name)
        return inner(name, *args, **kwargs)

    loader.get_with_context = get_with_context


def guard_become():
    inner = BecomeBase.build_become_command

    def build_become_command(self, cmd, shell):
        user = self.get_option("become_user") or "root"
        if user not in GRANT["become"]:
            refuse("become user", user)
        return inner(self, cmd, shell)

    BecomeBase.build_become_command = build_become_command


def inside(path):
    real = os.path.realpath(path)
    return any(real == root or real.startswith(root + os.sep) for root in GRANT["roots"] + CODE)


def below(path, roots):
    return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


def resolved(path, dir_fd=-1):
    """The real path that an audit event is about, None for a descriptor."""
    if isinstance(path, int):
        return None
    path = os.fsdecode(path) if path is not None else "."
    if isinstance(dir_fd, int) and dir_fd >= 0 and not os.path.isabs(path):
        path = os.path.join(os.readlink("/proc/self/fd/%d" % dir_fd), path)
    return os.path.realpath(path)


def reads(path, dir_fd=-1):
    real = resolved(path, dir_fd)
    if real is None or below(real, READABLE + DEVICES) or (below(real, ["/proc/%d" % os.getpid()]) and ":[" not in real):
        return
    # What is not there cannot be read: libraries look for files in many places.
    if ":[" in real or os.path.lexists(real):
        refuse("file", real)


def writes(path, dir_fd=-1):
    real = resolved(path, dir_fd)
    if real is not None and not below(real, WRITABLE + DEVICES):
        refuse("writing of", real)


def entry(path, dir_fd=-1):
    """A change of a folder's entry: the last part of the path is not followed."""
    if isinstance(path, int):
        return
    path = os.fsdecode(path).rstrip(os.sep)
    folder = resolved(os.path.dirname(path) or ".", dir_fd)
    real = os.path.join(folder, os.path.basename(path))
    if not below(folder, WRITABLE) and real not in WRITABLE:
        refuse("writing of", real)


def opens(path, mode, flags):
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
        writes(path)
    else:
        reads(path)


def globs(pattern, *rest):
    pattern = os.fsdecode(pattern)
    plain = len(pattern)
    for sign in "*?[":
        if sign in pattern:
            plain = min(plain, pattern.index(sign))
    reads(pattern if plain == len(pattern) else os.path.dirname(pattern[:plain]) or ".")


def makes(path, dir_fd=-1):
    if not os.path.lexists(resolved(path, dir_fd)):
        entry(path, dir_fd)


def links(source, target, source_fd=-1, target_fd=-1):
    writes(source, source_fd)
    entry(target, target_fd)


def moves(source, target, source_fd=-1, target_fd=-1):
    entry(source, source_fd)
    entry(target, target_fd)


EVENTS = {
    "open": opens,
    "glob.glob": globs,
    "os.listdir": lambda path=None, *rest: reads(path),
    "os.scandir": lambda path=None, *rest: reads(path),
    "os.rename": moves,
    "os.link": links,
    "os.symlink": lambda source, target, dir_fd=-1: entry(target, dir_fd),
    "os.remove": lambda path, dir_fd=-1: entry(path, dir_fd),
    "os.rmdir": lambda path, dir_fd=-1: entry(path, dir_fd),
    "os.mkdir": lambda path, mode=0, dir_fd=-1: makes(path, dir_fd),
    "os.chmod": lambda path, mode=0, dir_fd=-1: writes(path, dir_fd),
    "os.chown": lambda path, uid=0, gid=0, dir_fd=-1: writes(path, dir_fd),
    "os.utime": lambda path, times=None, ns=None, dir_fd=-1: writes(path, dir_fd),
    "os.truncate": lambda path, length=0: writes(path),
    "os.setxattr": lambda path, *rest: writes(path),
    "os.removexattr": lambda path, *rest: writes(path),
    "shutil.copyfile": lambda source, target: (reads(source), writes(target)),
    "shutil.copytree": lambda source, target: (reads(source), writes(target)),
    "shutil.move": lambda source, target: (entry(source), writes(target)),
    "shutil.rmtree": lambda path, dir_fd=-1: entry(path, dir_fd),
}


def audit(event, args):
    check = EVENTS.get(event)
    if check is None:
        return
    try:
        check(*args)
    except (OSError, ValueError, TypeError):
        refuse("file", "that cannot be told: %r" % (args,))


def guard_transfers():
    """Files that a connection moves are moved by ssh's programs, past the hook."""

    def hold(cls):
        for name, at, check in (("put_file", 0, reads), ("fetch_file", 1, writes)):
            if name in vars(cls):
                setattr(cls, name, held(vars(cls)[name], at, check))

    def held(inner, at, check):
        def moved(self, in_path, out_path, *args, **kwargs):
            check((in_path, out_path)[at])
            return inner(self, in_path, out_path, *args, **kwargs)

        return moved

    def __init_subclass__(cls, **kwargs):
        super(connections.ConnectionBase, cls).__init_subclass__(**kwargs)
        hold(cls)

    connections.ConnectionBase.__init_subclass__ = classmethod(__init_subclass__)
    pending = list(connections.ConnectionBase.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        hold(cls)


def guard_files():
    """Files are read from the package and the attempt's own folders."""
    found = DataLoader.path_dwim_relative_stack

    def path_dwim_relative_stack(self, *args, **kwargs):
        path = found(self, *args, **kwargs)
        if path:
            reads(path)  # that it is there is told too
        return path

    DataLoader.path_dwim_relative_stack = path_dwim_relative_stack
    contents, real = DataLoader._get_file_contents, DataLoader.get_real_file

    def _get_file_contents(self, file_name):
        path = self.path_dwim(file_name)
        if not inside(path):
            refuse("file", path)
        return contents(self, file_name)

    def get_real_file(self, file_path, decrypt=True):
        path = self.path_dwim(file_path)
        if not inside(path):
            refuse("file", path)
        return real(self, file_path, decrypt)

    DataLoader._get_file_contents = _get_file_contents
    DataLoader.get_real_file = get_real_file


def install():
    if tuple(int(n) for n in __version__.split(".")[:2]) < (2, 14):
        sys.stderr.write("ansible-core %s is too old: install 2.14 or newer on the runner\n" % __version__)
        os._exit(71)
    os.set_inheritable(REPORT, False)
    guard_loader(connection_loader, "connection", lambda n: n in GRANT["connections"])
    guard_loader(become_loader, "become method", lambda n: n == "sudo")
    guard_become()
    if "local" not in GRANT["connections"]:
        guard_loader(lookup_loader, "lookup", lambda n: n not in GRANT["lookups_refused"])
        guard_files()
        guard_transfers()
        sys.addaudithook(audit)  # last: it is for good, in forked workers too


if not getattr(DataLoader, "execution_plane_guarded", False):
    DataLoader.execution_plane_guarded = True
    install()


class InventoryModule(BaseInventoryPlugin):
    NAME = "execution_plane_guard"

    def verify_file(self, path):
        return False
