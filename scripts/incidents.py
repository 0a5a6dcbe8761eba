"""Plays incidents under load, and measures who reports each one and when. scripts/incidents.sh calls it.

    incidents.py PROGRAMS PROMETHEUS FOLDER [--hold SECONDS] [--calm SECONDS] [ACT…]

Starts a separate system and a Prometheus with the intervals of the containers. Each act causes one incident, holds it, removes the
cause, and waits until nothing reports a problem. Prints for each act: seconds until the overview (status, doctor and the console
show it), a notification and an alert report it, and seconds until all three are calm after the cause is gone. Writes the times of
all acts, for pictures of that moment, to FOLDER/acts.json; the data of Prometheus stay in FOLDER.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from live_system import Prometheus, System, free_ports, serve, temporary_folder

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FIRING = 'ALERTS{alertstate="firing", system="saga"}'
# Orders per second: all the time, and in a burst.
RATE, BURST = 20, 300


class Act:
    """An incident: how it begins, and how its cause is removed. `reported` is False where nobody is needed."""

    def __init__(self, name, about, begin, end, reported=True):
        self.name, self.about, self.begin, self.end, self.reported = name, about, begin, end, reported


def stop_and_start(service, how="kill"):
    return (lambda system: system.sagactl(how, service), lambda system: system.sagactl("start", service))


def messages_fail(system):
    system.sagactl("faults", "inject", "payment", "fail_permanently", "--step", "payment-processing", "--probability", "40")


def replay_messages(system):
    """Replays those that orders wait for, and discards the rest."""
    system.sagactl("faults", "clear", "payment")
    system.sagactl("dlq", "redrive", "--step", "payment-processing", "--reason", "the cause is fixed")
    system.sagactl("dlq", "discard", "--step", "payment-processing", "--reason", "their orders are cancelled")


ACTS = [
    Act("quiet", "nothing happens", lambda system: None, lambda system: None, reported=False),
    Act("burst", f"{BURST} orders per second arrive", lambda system: load(system, BURST, 20), lambda system: None, reported=False),
    Act("bank", "the bank is killed", *stop_and_start("bank")),
    Act("broker", "the broker is killed", *stop_and_start("nats")),
    Act("inventory", "inventory is killed", *stop_and_start("inventory")),
    Act("admin", "admin is killed", *stop_and_start("admin")),
    Act("dead_letters", "40 % of the charges fail permanently", messages_fail, replay_messages),
]


class Receiver(BaseHTTPRequestHandler):
    """Takes notifications, and keeps the time of each with its kind."""

    told = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.told.append((time.time(), body["type"], body["data"]["text"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Watch(threading.Thread):
    """Looks at the overview and the alerts each second."""

    def __init__(self, system, prometheus):
        super().__init__(daemon=True)
        self.system, self.prometheus, self.seen = system, prometheus, []

    def run(self):
        while True:
            began = time.time()
            overview = self.system.admin("overview")
            needed = sorted(found["text"] for found in overview.get("findings", []) if not found.get("to_clean_up")) if overview else None
            try:
                firing = sorted(one["metric"]["alertname"] for one in self.prometheus.now(FIRING))
            except ValueError:
                firing = None
            self.seen.append((began, needed, firing))
            time.sleep(max(0, began + 1 - time.time()))

    def first(self, since, condition):
        return next((at - since for at, needed, firing in list(self.seen) if at >= since and condition(needed, firing)), None)

    def is_calm(self):
        _, needed, firing = self.seen[-1]
        return needed == [] and firing == []


def load(system, rate, seconds):
    """Sends orders in the background."""
    return subprocess.Popen([system.programs / "sagactl", "load", "--rate", str(rate), "--duration", f"{seconds}s", "--may-shed", "--drain", "1s"],
                            env=system.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def play(act, system, watch, hold, calm):
    """Plays an act. Returns its times and what was reported."""
    began = time.time()
    told = len(Receiver.told)
    act.begin(system)
    time.sleep(max(0, began + hold - time.time()))
    held = time.time()
    act.end(system)
    mended = time.time()
    while time.time() < mended + calm and (time.time() < mended + 5 or not watch.is_calm()):
        time.sleep(1)
    ended = time.time()
    during = [(at, needed, firing) for at, needed, firing in list(watch.seen) if began <= at <= ended]
    last = lambda is_reported: max((at for at, needed, firing in during if is_reported(needed, firing)), default=None)
    after = lambda at: None if at is None else max(0.0, at - mended)
    notified = [at for at, kind, _ in Receiver.told[told:] if kind == "saga.needs_human"]
    return {
        "act": act.name, "about": act.about, "began": began, "held": held, "mended": mended, "ended": ended,
        "overview_s": watch.first(began, lambda needed, _: needed is None or bool(needed)),
        "notified_s": notified[0] - began if notified else None,
        "alert_s": watch.first(began, lambda _, firing: bool(firing)),
        "overview_calm_s": after(last(lambda needed, _: needed is None or bool(needed))),
        "alerts_calm_s": after(last(lambda _, firing: firing is None or bool(firing))),
        "findings": sorted({text for _, needed, _ in during for text in needed or []}),
        "alerts": sorted({name for _, _, firing in during for name in firing or []}),
        "notices": [text for _, _, text in Receiver.told[told:]],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("prometheus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hold", type=float, default=90)
    parser.add_argument("--calm", type=float, default=300)
    parser.add_argument("acts", nargs="*")
    wanted = parser.parse_args()
    acts = [act for act in ACTS if not wanted.acts or act.name in wanted.acts]
    base = free_ports(25080)
    wanted.folder.mkdir(parents=True, exist_ok=True)
    system = System(wanted.programs, temporary_folder("incidents-") / "data", base, fail=lambda why: print(why, file=sys.stderr))
    prometheus = Prometheus(wanted.prometheus, wanted.folder, base + 6, system, scrape="5s", evaluate="10s")
    system.start(f"admin.service.notifications.webhook.url={serve(Receiver)}/hook", f"admin.service.notifications.webhook.secret={SECRET}")
    print(f"Prometheus: {prometheus.url}", file=sys.stderr)
    longest = len(acts) * (wanted.hold + wanted.calm + 30)
    background = load(system, RATE, int(longest))
    watch = Watch(system, prometheus)
    watch.start()
    time.sleep(30)
    results = []
    print(f"{'act':14} {'overview':>9} {'notified':>9} {'alert':>9}   calm: {'overview':>9} {'alerts':>9}")
    seconds = lambda value: "–" if value is None else f"{value:.0f} s"
    for act in acts:
        result = play(act, system, watch, wanted.hold, wanted.calm)
        results.append(result)
        shown = [seconds(result[name]) for name in ("overview_s", "notified_s", "alert_s", "overview_calm_s", "alerts_calm_s")]
        print(f"{act.name:14} {shown[0]:>9} {shown[1]:>9} {shown[2]:>9}         {shown[3]:>9} {shown[4]:>9}   {', '.join(result['alerts'])}", flush=True)
        (wanted.folder / "acts.json").write_text(json.dumps(results, indent=2, ensure_ascii=False))
    background.terminate()
    background.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
