"""Writes what ansible-playbook does as JSON lines to an inherited descriptor.

The executor reads them: one object per line, "seq" counts from 1 without a gap,
and playbook_on_stats is the last. A write waits while nobody reads, so that no
event is lost. Works with ansible-core 2.14 and later.
"""
from __future__ import annotations

import datetime
import difflib
import json
import os

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__
from ansible.utils.display import Display

DOCUMENTATION = r"""
    name: execution_plane_events
    type: notification
    short_description: event stream for the execution plane
    description: Writes each event as one JSON line to an inherited descriptor.
"""

MAX_EVENT = 4 * 1024 * 1024  # bytes of one line
MAX_DIFF = 64 * 1024  # characters of one file's diff
MIN_SECRET = 4  # shorter ones would tear up the text
MASK = "********"


def plain(value, depth=0):
    """Gives JSON of any value, without _ansible_ keys and with no_log honoured."""
    if depth > 64:
        return "..."
    if isinstance(value, dict):
        if value.get("_ansible_no_log"):
            kept = {k: value[k] for k in ("changed", "failed", "skipped", "unreachable", "attempts") if k in value}
            kept["censored"] = "the output has been hidden: no_log was set"
            return kept
        return {str(k): plain(v, depth + 1) for k, v in value.items() if not str(k).startswith("_ansible_")}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v, depth + 1) for v in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def field(result, name):
    """Reads a field of a task result by its public name, else by its older one."""
    if hasattr(type(result), name):
        return getattr(result, name)
    return getattr(result, "_" + name)


class Scrubber:
    """Takes secret variables out of what is printed and reported."""

    def __init__(self):
        self.words = []

    def learn(self, values):
        words = {str(v) for v in values if len(str(v)) >= MIN_SECRET}
        words |= {json.dumps(w)[1:-1] for w in words}
        self.words = sorted(words, key=len, reverse=True)

    def text(self, s):
        for w in self.words:
            if w in s:
                s = s.replace(w, MASK)
        return s

    def value(self, v):
        if not self.words:
            return v
        if isinstance(v, str):
            return self.text(v)
        if isinstance(v, dict):
            return {self.text(k): self.value(x) for k, x in v.items()}
        if isinstance(v, list):
            return [self.value(x) for x in v]
        return v


SCRUBBER = Scrubber()


def scrub_display():
    """What ansible prints for people passes here, whatever wrote it."""
    shown = Display.display

    def display(self, msg, *args, **kwargs):
        if SCRUBBER.words:
            msg = SCRUBBER.text(str(msg))
        return shown(self, msg, *args, **kwargs)

    Display.display = display


def unified(diff):
    """Turns ansible's before and after into counts and a bounded unified diff."""
    out = {"before": str(diff.get("before_header") or ""), "after": str(diff.get("after_header") or "")}
    if "prepared" in diff:
        lines = str(diff["prepared"]).splitlines()
    else:
        sides = []
        for side in ("before", "after"):
            v = diff.get(side)
            if not isinstance(v, str):
                v = json.dumps(plain(v), indent=1, sort_keys=True) if v is not None else ""
            sides.append(v.splitlines())
        if max(len(s) for s in sides) > 20000:
            lines = ["the files are too long to compare"]
        else:
            lines = list(difflib.unified_diff(sides[0], sides[1], lineterm=""))[2:]
    out["added"] = sum(1 for s in lines if s.startswith("+") and not s.startswith("+++"))
    out["removed"] = sum(1 for s in lines if s.startswith("-") and not s.startswith("---"))
    text = "\n".join(lines)
    out["unified"] = text[:MAX_DIFF]
    out["truncated"] = len(text) > MAX_DIFF
    return out


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "execution_plane_events"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if not getattr(DataLoader, "execution_plane_guarded", False):
            os._exit(70)  # ansible would go on without the guard
        self.fd = int(os.environ["EXECUTION_PLANE_EVENTS_FD"])
        os.set_inheritable(self.fd, False)
        self.guard = json.loads(os.environ["EXECUTION_PLANE_GUARD"])
        self.seq = 0
        self.play = None
        self.learned = False
        if self.guard["secrets"]:
            scrub_display()

    def emit(self, event, **fields):
        self.seq += 1
        head = {
            "seq": self.seq,
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "event": event,
        }
        body = {k: v for k, v in fields.items() if v is not None and v != ""}
        if self.play is not None and "play" not in body:
            body["play"] = self.play
        line = self.encode(head, body)
        if len(line) > MAX_EVENT:
            kept = {k: v for k, v in body.items() if k not in ("result", "diff")}
            kept["truncated_bytes"] = len(line)
            line = self.encode(head, kept)
        while line:
            line = line[os.write(self.fd, line):]

    def encode(self, head, body):
        return json.dumps(dict(head, **SCRUBBER.value(plain(body)))).encode("ascii") + b"\n"

    def where(self, task):
        path = task.get_path() or ""
        for root in self.guard["roots"]:
            if path.startswith(root + "/"):
                return path[len(root) + 1:]
        return ""

    def about(self, task):
        role = getattr(task, "_role", None)
        return {
            "task": task.get_name(),
            "task_uuid": str(task._uuid),
            "action": str(task.action),
            "role": role.get_name() if role else None,
            "path": self.where(task),
            "tags": [str(t) for t in (task.tags or [])],
        }

    def result(self, event, result, **fields):
        task, host, got = field(result, "task"), field(result, "host"), field(result, "result")
        got = dict(got)
        delegated = got.get("_ansible_delegated_vars") or {}
        fields.update(self.about(task))
        self.emit(
            event,
            host=host.get_name(),
            changed=bool(got.get("changed", False)),
            delegated_to=str(delegated.get("ansible_delegated_host") or delegated.get("ansible_host") or ""),
            result=got,
            **fields,
        )

    def v2_playbook_on_start(self, playbook):
        self.emit("playbook_on_start", ansible_core=__version__, playbook=os.path.basename(str(playbook._file_name)))

    def v2_playbook_on_play_start(self, play):
        if self.guard["secrets"] and not self.learned:
            known = play.get_variable_manager().extra_vars
            SCRUBBER.learn(known[name] for name in self.guard["secrets"] if name in known)
            self.learned = True
        self.play = play.get_name().strip()
        hosts = play.hosts
        self.emit("playbook_on_play_start", pattern=",".join(map(str, hosts)) if isinstance(hosts, (list, tuple)) else str(hosts))

    def v2_playbook_on_task_start(self, task, is_conditional):
        self.emit("playbook_on_task_start", **self.about(task))

    def v2_playbook_on_handler_task_start(self, task):
        self.emit("playbook_on_handler_task_start", **self.about(task))

    def v2_runner_on_start(self, host, task):
        self.emit("runner_on_start", host=host.get_name(), task=task.get_name(), task_uuid=str(task._uuid))

    def v2_runner_on_ok(self, result):
        self.result("runner_on_ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.result("runner_on_failed", result, ignored=bool(ignore_errors))

    def v2_runner_on_skipped(self, result):
        self.result("runner_on_skipped", result)

    def v2_runner_on_unreachable(self, result):
        self.result("runner_on_unreachable", result)

    def v2_runner_retry(self, result):
        self.result("runner_retry", result)

    def v2_runner_item_on_ok(self, result):
        self.result("runner_item_on_ok", result)

    def v2_runner_item_on_failed(self, result):
        self.result("runner_item_on_failed", result)

    def v2_runner_item_on_skipped(self, result):
        self.result("runner_item_on_skipped", result)

    def v2_on_file_diff(self, result):
        got = dict(field(result, "result"))
        if got.get("_ansible_no_log"):
            return
        diffs = []
        for res in got.get("results") or [got]:
            if not isinstance(res, dict) or res.get("_ansible_no_log") or not res.get("changed", False):
                continue
            found = res.get("diff")
            for d in found if isinstance(found, list) else [found]:
                if isinstance(d, dict) and d:
                    diffs.append(unified(d))
        if diffs:
            task = field(result, "task")
            self.emit("on_file_diff", host=field(result, "host").get_name(), diff=diffs, **self.about(task))

    def v2_playbook_on_include(self, included_file):
        self.emit("playbook_on_include", path=os.path.basename(str(included_file._filename)),
                  hosts=[h.get_name() for h in included_file._hosts])

    def v2_playbook_on_no_hosts_matched(self):
        self.emit("playbook_on_no_hosts_matched")

    def v2_playbook_on_no_hosts_remaining(self):
        self.emit("playbook_on_no_hosts_remaining")

    def v2_playbook_on_notify(self, handler, host):
        self.emit("playbook_on_notify", host=host.get_name(), handler=handler.get_name())

    def v2_playbook_on_stats(self, stats):
        hosts = {h: stats.summarize(h) for h in sorted(stats.processed)}
        self.play = None
        self.emit("playbook_on_stats", hosts=hosts, custom=dict(getattr(stats, "custom", None) or {}))
