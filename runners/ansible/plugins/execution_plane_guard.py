"""Holds a run to what policy grants, on what only shows while it runs.

It is loaded as an inventory plugin, which is the earliest moment that
ansible-playbook offers, and takes no inventory. It refuses connections, users to
become, lookups and files that the grant does not give, however a playbook came to
name them. A refusal fails the task and is told to the executor, which ends the
run. It binds playbooks, not Python code: what fences that is isolation.
"""
from __future__ import annotations

import json
import os
import sys

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
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


def guard_files():
    """Files are read from the package and the attempt's own folders."""
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


if not getattr(DataLoader, "execution_plane_guarded", False):
    DataLoader.execution_plane_guarded = True
    install()


class InventoryModule(BaseInventoryPlugin):
    NAME = "execution_plane_guard"

    def verify_file(self, path):
        return False
