"""Plays incidents under load, and measures who reports each one and when. scripts/incidents.sh calls it.

    incidents.py PROGRAMS PROMETHEUS FOLDER [--hold SECONDS] [--calm SECONDS] [--draw COMMAND] [--check] [ACT…]

Starts a separate system and a Prometheus with the intervals of the containers. Each act causes one incident, holds it, removes the
cause, and waits until nothing reports a problem. Prints for each act: seconds until the overview (status and doctor show it), a
notification and an alert report it, seconds until they are calm after the cause is gone, and the pages that are left after the
inhibitions of grafana/prometheus/alertmanager.yml. Writes all of it to FOLDER/acts.json.

With --draw it draws the dashboards at the end of each act's hold, into FOLDER/ACT, and with closed rows into FOLDER/ACT-closed. With --check it fails if a picture or the reports
are not as they should be.
"""

import argparse
import atexit
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from live_system import ROOT, Prometheus, Receiver, System, free_ports, temporary_folder

FIRING = 'ALERTS{alertstate="firing", system="saga"}'
# Orders per second: all the time, and in a burst.
RATE, BURST = 20, 300
# Seconds within which overview, notification and alert report the same problem.
AGREEMENT = 15
# Colours of grafana/dashboards.py.
GREEN, RED, GREY = "#009E73", "#D55E00", "#8E8E8E"
MOST_SERIES = 12


class Act:
    """An incident: how it begins, how its cause is removed, and what reports and pictures must show.

    `page`: the alert that pages after inhibition. `tiles`: colours of tiles of the overview. `down`: the band that says so. `waits`:
    the step that orders wait for. `told`: False if nobody can be notified.
    """

    def __init__(self, name, begin=lambda _: None, end=lambda _: None, page=None, tiles=None, down=None, waits=None, told=True):
        self.name, self.begin, self.end, self.page, self.down, self.waits, self.told = name, begin, end, page, down, waits, told
        self.tiles = tiles or {}


def kill(service):
    return lambda system: system.sagactl("kill", service)


def start(service):
    return lambda system: system.sagactl("start", service)


def messages_fail(system):
    system.sagactl("faults", "inject", "payment", "fail_permanently", "--step", "payment-processing", "--probability", "40")


def replay_messages(system):
    """Replays those that orders wait for, and discards the rest."""
    system.sagactl("faults", "clear", "payment")
    system.sagactl("dlq", "redrive", "--step", "payment-processing", "--canary", "0", "--reason", "the cause is fixed")
    if system.admin("dlq/count").get("by_status", {}).get("PENDING"):
        system.sagactl("dlq", "discard", "--step", "payment-processing", "--reason", "their orders are cancelled")


WELL = {"Pages": GREEN, "Findings": GREEN, "Awaited dead letters": GREEN}
ILL = {"Pages": RED, "Findings": RED}
UNKNOWN = {"Pages": RED, "Findings": GREY, "Money in flight": GREY, "Awaited dead letters": GREY, "Books": GREY}
ACTS = [
    Act("quiet", tiles=WELL),
    Act("burst", lambda system: load(system, BURST, 20), tiles=WELL),
    Act("bank", kill("bank"), start("bank"), page="ServiceDown", tiles=ILL, down="bank", waits="payment-processing"),
    Act("broker", kill("nats"), start("nats"), page="BrokerUnhealthy", tiles=ILL | {"Awaited dead letters": GREY}, down="broker"),
    Act("inventory", kill("inventory"), start("inventory"), page="ServiceDown", tiles=ILL, down="inventory", waits="inventory-stock-reservation"),
    Act("admin", kill("admin"), start("admin"), page="ServiceDown", tiles=UNKNOWN, down="admin", told=False),
    Act("dead_letters", messages_fail, replay_messages, page="DeadLettersPending", tiles=ILL | {"Awaited dead letters": RED}, waits="payment-processing"),
]


class Watch(threading.Thread):
    """Looks at the overview and the alerts each second. What it could not see is None."""

    def __init__(self, system, prometheus):
        super().__init__(daemon=True)
        self.system, self.prometheus, self.seen = system, prometheus, []

    def run(self):
        while True:
            began = time.time()
            overview = self.system.admin("overview")
            needed = sorted(found["text"] for found in overview.get("findings", []) if not found.get("to_clean_up")) if overview else None
            try:
                firing = [one["metric"] for one in self.prometheus.now(FIRING)]
            except ValueError:
                firing = None
            self.seen.append((began, needed, firing))
            time.sleep(max(0, began + 1 - time.time()))

    def between(self, began, ended):
        return [one for one in list(self.seen) if began <= one[0] <= ended]

    def is_calm(self):
        _, needed, firing = self.seen[-1]
        return needed == [] and firing == []


def load(system, rate, seconds):
    """Sends orders in the background, until the end at most."""
    sending = subprocess.Popen([system.programs / "sagactl", "load", "--rate", str(rate), "--duration", f"{seconds}s", "--may-shed", "--drain", "1s"],
                               env=system.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(sending.wait)
    atexit.register(sending.terminate)


# --- inhibition -------------------------------------------------------------------------------------------------------

def matches(matchers, alert):
    """True if an alert has the labels that matchers name, such as alertname=~"A|B"."""
    for label, operator, value in re.findall(r'(\w+)(!=|=~|=)"([^"]*)"', matchers):
        is_equal = bool(re.fullmatch(value, alert.get(label, ""))) if operator == "=~" else alert.get(label, "") == value
        if is_equal == (operator == "!="):
            return False
    return True


def inhibitions():
    """The source and target matchers of alertmanager.yml."""
    text = (ROOT / "grafana/prometheus/alertmanager.yml").read_text(encoding="utf-8").split("inhibit_rules:")[1]
    return re.findall(r"source_matchers:(.*?)target_matchers:(.*?)(?=source_matchers:|\Z)", text, re.S)


def pages(firing):
    """The pages that are left after inhibition."""
    rules = inhibitions()
    def is_muted(alert):
        return any(matches(target, alert) and any(other != alert and matches(source, other) for other in firing) for source, target in rules)
    return sorted({alert["alertname"] for alert in firing if alert["severity"] == "page" and not is_muted(alert)})


# --- acts -------------------------------------------------------------------------------------------------------------

def play(act, system, watch, hold, calm):
    """Plays an act. Returns its times and what was reported."""
    began, told = time.time(), len(Receiver.taken)
    act.begin(system)
    time.sleep(max(0, began + hold - time.time()))
    held = time.time()
    act.end(system)
    mended = time.time()
    while time.time() < mended + calm and (time.time() < mended + 5 or not watch.is_calm()):
        time.sleep(1)
    seen = watch.between(began, time.time())
    first = lambda is_so: next((at - began for at, needed, firing in seen if is_so(needed, firing)), None)
    def calm_after(is_so):
        last = max((at for at, needed, firing in seen if is_so(needed, firing)), default=None)
        return None if last is None else max(0.0, last - mended)
    is_shown, is_firing = (lambda needed, _: needed is None or bool(needed)), (lambda _, firing: bool(firing))
    # One of the act before may still fire.
    is_page = lambda _, firing: any(alert["alertname"] == act.page for alert in firing or [])
    notices = Receiver.taken[told:]
    notified = [at for at, body in notices if body["type"] == "saga.needs_human"]
    during = [firing for at, _, firing in seen if firing is not None and at <= held]
    return {
        "act": act.name, "began": began, "held": held, "mended": mended, "ended": time.time(),
        "overview_s": first(is_shown), "notified_s": notified[0] - began if notified else None, "alert_s": first(is_page if act.page else is_firing),
        "overview_calm_s": calm_after(is_shown), "alerts_calm_s": calm_after(is_firing),
        "pages": sorted({name for firing in during for name in pages(firing)}), "pages_at_the_end": pages(during[-1]) if during else [],
        "alerts": sorted({alert["alertname"] for firing in during for alert in firing}),
        "findings": sorted({text for _, needed, _ in seen for text in needed or []}),
        "notices": [body["data"]["text"] for _, body in notices],
    }


def shown(result):
    seconds = lambda value: "–" if value is None else f"{value:.0f} s"
    times = [seconds(result[name]) for name in ("overview_s", "notified_s", "alert_s", "overview_calm_s", "alerts_calm_s")]
    return f"{result['act']:14} " + " ".join(f"{one:>9}" for one in times) + f"   {', '.join(result['pages']) or '–'}"


# --- checks -----------------------------------------------------------------------------------------------------------

def wrong_reports(act, result):
    """What overview, notification and alerts should have said and did not."""
    if act.page is None:
        return [f"{what}: {result[what]}" for what in ("alerts", "findings", "notices") if result[what]]
    wrong = []
    times = [result["overview_s"], result["alert_s"]] + ([result["notified_s"]] if act.told else [])
    if None in times or max(times) - min(times) > AGREEMENT:
        wrong.append(f"overview, alert and notification after {times} s: not within {AGREEMENT} s of each other")
    if result["pages_at_the_end"] != [act.page]:
        wrong.append(f"pages {result['pages_at_the_end']} instead of {act.page}")
    return wrong


def wrong_pictures(act, folder):
    """What the drawn dashboards should show and do not."""
    wrong, panels = [], {}
    for file in sorted(folder.glob("*.json")):
        drawn = json.loads(file.read_text(encoding="utf-8"))
        wrong += [f"{file.stem}: {error}" for error in drawn["errors"]]
        for panel in drawn["panels"]:
            if len(panel.get("series", [])) > MOST_SERIES:
                wrong.append(f"{file.stem}, {panel['title']}: {len(panel['series'])} series")
            if file.stem == "saga-overview":
                panels[panel["title"]] = panel
    colours = {title: panel["values"][0]["color"].upper() for title, panel in panels.items() if panel["type"] == "stat" and panel["values"]}
    empty = [title for title, panel in panels.items() if panel["type"] == "stat" and not panel["values"]]
    wrong += [f"the tile {title} shows nothing" for title in empty]
    wrong += [f"the tile {title} is {colours.get(title)} instead of {wanted}" for title, wanted in act.tiles.items() if colours.get(title) != wanted.upper()]
    alerts = [row[1] for row in panels["Firing alerts"]["rows"]]
    if (act.page is None) == bool(alerts) or (act.page and act.page not in alerts):
        wrong.append(f"the table of alerts shows {alerts}, the page is {act.page}")
    if act.page and act.name != "admin" and not panels["What is broken"]["rows"]:
        wrong.append("the table of what is broken is empty")
    states = panels["Services, broker, databases and disks"]["states"]
    # Who calls a service that is down may be degraded.
    wrong += [f"{name} is {state}" for name, state in states.items() if name != act.down and state in ("down", "unknown")]
    if act.down and states.get(act.down) in (None, "ok"):
        wrong.append(f"{act.down} is {states.get(act.down)}")
    waiting = panels["Orders in flight by the step that they wait for"]["series"]
    if act.waits and act.waits not in waiting:
        wrong.append(f"orders wait for {waiting}, not for {act.waits}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", type=Path)
    parser.add_argument("prometheus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hold", type=float, default=90)
    parser.add_argument("--calm", type=float, default=300)
    parser.add_argument("--draw")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("acts", nargs="*")
    wanted = parser.parse_intermixed_args()
    if unknown := set(wanted.acts) - {act.name for act in ACTS}:
        parser.error(f"there is no act {', '.join(sorted(unknown))}")
    acts = [act for act in ACTS if not wanted.acts or act.name in wanted.acts]
    base = free_ports(25080)
    wanted.folder.mkdir(parents=True, exist_ok=True)
    system = System(wanted.programs, temporary_folder("incidents-") / "data", base, fail=lambda why: print(why, file=sys.stderr))
    prometheus = Prometheus(wanted.prometheus, wanted.folder, base + 6, system, scrape="5s", evaluate="5s")
    system.start(*Receiver.settings())
    load(system, RATE, int(60 + len(acts) * (wanted.hold + wanted.calm + 30)))
    watch = Watch(system, prometheus)
    watch.start()
    # Rates are of the last minute.
    time.sleep(60)
    results, wrong = [], []
    print(f"{'':14} {'reported by':^29}   {'calm after':^17}\n{'':14} {'overview':>9} {'notice':>9} {'alert':>9} {'overview':>9} {'alerts':>9}   pages")
    for act in acts:
        result = play(act, system, watch, wanted.hold, wanted.calm)
        results.append(result)
        print(shown(result), flush=True)
        (wanted.folder / "acts.json").write_text(json.dumps(results, indent=2, ensure_ascii=False))
        wrong += [f"{act.name}: {text}" for text in wrong_reports(act, result)]
        if wanted.draw:
            draw = [wanted.draw, prometheus.url, wanted.folder / act.name, "--to", str(int(result["held"]))]
            subprocess.run(draw, check=True)
            if not wanted.check:
                # As a reader meets them.
                draw[2] = wanted.folder / f"{act.name}-closed"
                subprocess.run([*draw, "--closed"], check=True)
            wrong += [f"{act.name}: {text}" for text in wrong_pictures(act, wanted.folder / act.name)]
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wanted.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
