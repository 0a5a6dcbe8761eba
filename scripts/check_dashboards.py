"""Holds dashboards, alerts and runbooks against a live system; scripts/check-dashboards.sh calls it.

    check_dashboards.py ROOT PROGRAMS PROMETHEUS

It starts a system and a Prometheus of its own, and then, fault by fault: makes it, sees that the alerts fire that are for
it, runs what their runbooks say to look at, ends the cause, runs what they say to do, and sees that the alerts are over.
At the end every query of every panel has to have returned something since the start, and every metric has to be used.
"""

import atexit
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT, PROGRAMS, PROMETHEUS = (Path(argument) for argument in sys.argv[1:4])
SERVICES = ["admin", "order", "inventory", "payment", "bank"]
# For whatever takes a moment, unless something hangs.
SOON = 30
# Alerts on what happened within minutes: that is not over when its cause is.
LOOK_BACK = {"NewFingerprint", "SagaFailureRate", "SuccessRateLow", "OrdersTimeOut", "BreakerOpenTooLong"}
# An order that was waited for is there, another is taken.
TAKEN = (200, 201, 202)
BEGAN = time.time()
failures = []


def say(text):
    print(f"{time.time() - BEGAN:6.1f}s  {text}", file=sys.stderr, flush=True)


def fail(text):
    failures.append(text)
    say(f"FAILED: {text}")


def wait_until(what, is_so, limit=SOON):
    """Whether it came to be so; the last answer of `is_so` is told when it did not."""
    until = time.time() + limit
    while not (found := is_so()):
        if time.time() > until:
            fail(f"{what}: not within {limit} s")
            return found
        time.sleep(0.1)
    return found


def ask(url, method="GET", body=None, headers=None):
    """Status and JSON of an answer; whoever does not answer has status 0."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        status, text = refused.code, refused.read()
    except OSError:
        return 0, None
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text.decode(errors="replace")


def free_ports():
    """The first of seven ports in a row that nobody uses."""
    for base in range(23080, 32000, 10):
        try:
            taken = [socket.create_server(("127.0.0.1", base + offset)) for offset in range(7)]
        except OSError:
            continue
        for one in taken:
            one.close()
        return base
    sys.exit("no free ports")


class Collector(BaseHTTPRequestHandler):
    """Takes every span, as Tempo would, and forgets it."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

    @classmethod
    def start(cls):
        server = ThreadingHTTPServer(("127.0.0.1", 0), cls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"


class System:
    """The local system, in a folder of its own."""

    def __init__(self, data, base):
        self.data, self.base = data, base
        self.url = {name: f"http://localhost:{base + offset}" for offset, name in enumerate(SERVICES)}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SAGA_")},
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "SAGA_DATA": str(data), "SAGA_OPERATOR": "ada", "NO_COLOR": "1"}

    def sagactl(self, *arguments):
        done = subprocess.run([PROGRAMS / "sagactl", *arguments], env=self.environment, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            fail(f"sagactl {' '.join(arguments)}: {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def start(self):
        # Whatever is set outside, notices of what is made up here are for nobody. What takes its time takes less of it: how
        # often admin looks, and when the broker delivers again what a dead process had.
        settings = ["admin.service.push.webhook.url=", "admin.service.push.every=1s", "payment.bus.ack_wait=2s"]
        # Every trace is recorded: exemplars name them.
        collector = Collector.start()
        settings += [f"{name}.trace.{one}" for name in SERVICES for one in (f"endpoint={collector}", "sample_ratio=1")]
        self.sagactl("up", "--detach", "--port-base", str(self.base), *(word for one in settings for word in ("--set", one)))
        atexit.register(subprocess.run, [PROGRAMS / "sagactl", "down"], env=self.environment, capture_output=True, timeout=60)

    def place(self, count, token="tok_ok", wait=0, sku="coffee-beans-1kg"):
        """So many orders, sixteen at a time; their ids."""
        body = {"customer": "ada", "lines": [{"sku": sku, "quantity": 1}], "payment": {"token": token}}
        def one(_):
            return ask(f"{self.url['order']}/api/orders", "POST", body, {"Prefer": f"wait={wait}"})
        with ThreadPoolExecutor(16) as clients:
            answers = list(clients.map(one, range(count)))
        refused = [answer for answer in answers if answer[0] not in TAKEN]
        if refused:
            fail(f"{len(refused)} of {count} orders were refused: {refused[0]}")
        return [answer["id"] for status, answer in answers if status in TAKEN]

    def change(self, service, *statements):
        """Changes rows behind a service's back: what nobody waits for in a test, and what nobody should ever do."""
        with sqlite3.connect(self.data / service / f"{service}.db", timeout=10) as database:
            for statement in statements:
                database.execute(statement)
        database.close()

    def has_ended(self):
        """Whether no saga is under way, as admin sees it, but for those that wait for a human."""
        status, page = ask(f"{self.url['admin']}/api/admin/overview")
        open_ones = ("STARTED", "IN_PROGRESS", "PARKED", "COMPENSATING", "TIMED_OUT", "UNKNOWN")
        return status == 200 and page["sagas"] and not page.get("behind") and not any(
            page["sagas"]["by_status"].get(one) for one in open_ones)


class Prometheus:
    """A real one, on a port of its own. Its targets have the labels that those of grafana/prometheus/ have."""

    def __init__(self, folder, port, system):
        self.url = f"http://127.0.0.1:{port}"
        jobs = "\n".join(f"""      - targets: ["localhost:{system.base + offset}"]
        labels: {{service: {name}}}""" for offset, name in enumerate(SERVICES))
        config = folder / "prometheus.yml"
        config.write_text(f"""global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{ROOT}/grafana/prometheus/rules/*.yml"]
scrape_configs:
  - job_name: saga
    static_configs:
{jobs}
""")
        log = open(folder / "prometheus.log", "w")
        process = subprocess.Popen(
            [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}",
             "--enable-feature=exemplar-storage", "--log.level=warn"], stdout=log, stderr=log)
        atexit.register(process.wait, timeout=20)
        atexit.register(process.terminate)

    def get(self, path, **parameters):
        status, answer = ask(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        if status != 200:
            raise ValueError(answer["error"] if isinstance(answer, dict) else f"Prometheus answers {status}")
        return answer["data"]

    def now(self, expression):
        """What an expression says now: the series that have a number."""
        return numbers(self.get("query", query=expression)["result"])

    def since_the_start(self, expression):
        return numbers(self.get("query_range", query=expression, start=BEGAN, end=time.time(), step=1)["result"])


def numbers(series):
    """Those series that have a number somewhere: what divides nothing by nothing has none."""
    return [one for one in series if any(value != "NaN" for _, value in one.get("values", [one.get("value")]))]


# --- runbooks ---------------------------------------------------------------------------------------------------------

def blocks_of(alert):
    """The commands of a runbook: (True for a fix, expected exit code, commands)."""
    text = (ROOT / f"docs/runbooks/{alert}.md").read_text(encoding="utf-8")
    found = re.findall(r"^```sh([^\n]*)\n(.*?)^```", text, re.M | re.S)
    for words, _ in found:
        if not re.fullmatch(r"( fix)?( exit=\d+)?", words):
            fail(f"{alert}.md: unknown marker ```sh{words}")
    if {"fix" in words for words, _ in found} != {True, False}:
        fail(f"{alert}.md: no commands to diagnose, or none to fix")
    return [("fix" in words, int((re.search(r"exit=(\d+)", words) or [0, 0])[1]), body) for words, body in found]


def run_blocks(system, alert, fixing, variables):
    """Runs the commands of a runbook that diagnose, or those that fix. `variables` returns what an operator would export."""
    for fixes, wanted, body in blocks_of(alert):
        if fixes != fixing:
            continue
        environment = system.environment | (variables() if "${" in body else {})
        # The runbooks use the default ports.
        here = re.sub(r"\b808([0-4])\b", lambda port: str(system.base + int(port[1])), body)
        done = subprocess.run(["bash", "-eu", "-c", here], env=environment, cwd=ROOT, capture_output=True,
                              text=True, timeout=120, stdin=subprocess.DEVNULL)
        if done.returncode != wanted:
            fail(f"runbook {alert}: exit code {done.returncode} instead of {wanted} from\n{body}{done.stdout[-1500:]}{done.stderr[-1500:]}")


class Alerts:
    """The alerts, as Prometheus has read them."""

    def __init__(self, prometheus):
        self.prometheus = prometheus
        rules = [rule for group in prometheus.get("rules", type="alert")["groups"] for rule in group["rules"]]
        self.rules = {rule["name"]: rule for rule in rules}
        self.fired, self.over = set(), set()
        runbooks = {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")} - {"README"}
        if runbooks != self.rules.keys():
            fail(f"alerts without a runbook, or the other way round: {runbooks ^ self.rules.keys()}")
        for name, rule in self.rules.items():
            said = rule["annotations"]
            if not all(said.get(key) for key in ("summary", "description")) or said.get("runbook_url") != f"docs/runbooks/{name}.md":
                fail(f"alert {name}: summary, description or runbook_url is missing or leads elsewhere")

    def fires(self, name):
        return self.prometheus.now(self.rules[name]["query"])

    def wait_for(self, name, is_firing=True, limit=SOON):
        state = "fires" if is_firing else "is over"
        if wait_until(f"alert {name} {state}", lambda: bool(self.fires(name)) == is_firing, limit) and is_firing:
            self.fired.add(name)

    def read_what_they_say(self, names):
        """Pending ones have their texts already: nothing in them may be left out."""
        def told():
            alerts = self.prometheus.get("alerts")["alerts"]
            return alerts if set(names) <= {alert["labels"]["alertname"] for alert in alerts} else None
        for alert in wait_until(f"{', '.join(names)} are told", told) or []:
            for text in alert["annotations"].values():
                if "<no value>" in text or "<error" in text or "{{" in text:
                    fail(f"alert {alert['labels']['alertname']} says {text!r}")

    def case(self, system, names, quiet, lift=lambda: None, service=None, saga=None, letter=None):
        """The alerts fire; what their runbooks look at is there; the cause ends; what they do is done; those in `quiet` end."""
        def said():
            words = {"SERVICE": service, "SAGA": saga and saga(), "LETTER": letter and letter(), "REASON": "the cause is gone"}
            return {name: word for name, word in words.items() if word}
        for name in names:
            self.wait_for(name)
        self.read_what_they_say(names)
        for name in names:
            run_blocks(system, name, False, said)
        lift()
        for name in names:
            run_blocks(system, name, True, said)
        for name in quiet:
            self.wait_for(name, is_firing=False)
        self.over.update(quiet)
        say(f"seen: {', '.join(names)}")


# --- faults -----------------------------------------------------------------------------------------------------------

def a_relay_is_silent(system, alerts):
    """First, as order has published nothing yet. What it publishes it cannot note: to its service, a relay that does nothing."""
    system.change("order", "CREATE TRIGGER hung BEFORE INSERT ON publication BEGIN SELECT RAISE(ABORT, 'the relay hangs'); END")
    system.place(2)
    alerts.case(system, ["RelayStalled"], quiet=["RelayStalled"], service="order",
                lift=lambda: system.change("order", "DROP TRIGGER hung"))


def the_broker_is_away(system, alerts):
    system.sagactl("stop", "nats")
    system.place(3)
    # Two minutes and more that nobody waits: order refuses others by then.
    system.change("order", "UPDATE outbox SET created_at = created_at - 130000000")
    names = ["BrokerUnhealthy", "OutboxTooOld", "ServiceNotReady"]
    for name in names:
        alerts.wait_for(name)
    if silent := alerts.fires("RelayStalled"):
        fail(f"the broker is away, and the relay is blamed: {silent}")
    alerts.case(system, names, quiet=names, service="order")


def the_broker_refuses_a_message(system, alerts):
    """As if it had, before it was away."""
    system.sagactl("stop", "nats")
    system.place(1)
    system.change("order", "UPDATE outbox SET status = 'FAILED', last_error = 'too large' WHERE seq = (SELECT max(seq) FROM outbox)")
    system.sagactl("start", "nats")
    alerts.wait_for("BrokerUnhealthy", is_firing=False)
    alerts.case(system, ["MessagesRejectedByBroker"], quiet=["MessagesRejectedByBroker"], service="order")


def a_crowd_comes_and_admin_hears_nothing(system, alerts):
    # Of each it hears two facts from the order service, and there is a queue for each service that it hears. Each in a
    # message of its own: a crowd's facts travel together otherwise.
    system.environment["ORDER__BUS__PACK"] = "1"
    restart(system, "order")
    system.sagactl("faults", "inject", "admin", "pause", "--step", "admin-saga-view")
    system.sagactl("faults", "inject", "order", "publish_twice", "--next", "5")
    ask(f"{system.url['inventory']}/api/products/coffee-beans-1kg/restock", "POST", {"quantity": 1000})
    system.place(520)
    system.place(4, token="tok_declined")
    alerts.case(system, ["ConsumerLag"], quiet=["ConsumerLag"], service="admin")
    # Until it is started again.
    del system.environment["ORDER__BUS__PACK"]


def all_is_well(system, alerts):
    wait_until("every saga has ended", system.has_ended)
    firing = [name for name in alerts.rules if alerts.fires(name)]
    if firing:
        fail(f"nothing is wrong, and these fire: {firing}")


def the_bank_declines(system, alerts):
    system.sagactl("faults", "inject", "bank", "bank_decline")
    system.place(80)
    alerts.case(system, ["SuccessRateLow"], quiet=[])


def steps_fail(system, alerts):
    """Dead letters of three kinds: no message at all, a sale, refunds. Those that customers wait for come last. And a few
    messages that go through at the second try: less than opens a breaker."""
    system.sagactl("faults", "inject", "order", "fail_transiently", "--step", "order-confirmation", "--next", "3")
    system.sagactl("faults", "inject", "order", "publish_garbage", "--next", "1")
    system.sagactl("faults", "inject", "inventory", "fail_permanently", "--step", "inventory-sale", "--next", "3")
    system.place(3, wait=10)
    wait_until("five dead letters", lambda: len(dead_letters(system)) >= 5)
    system.sagactl("faults", "inject", "bank", "bank_refuse_refund")
    for order in system.place(12, wait=10):
        ask(f"{system.url['order']}/api/orders/{order}/cancel", "POST")

    # They had been confirmed: what they are worth was under way no longer.
    wait_until("what was confirmed is taken back", lambda: alerts.prometheus.now('order_amount_minor_total{event="taken_back"} > 0'))

    def lift():
        for service in ("order", "inventory", "bank"):
            system.sagactl("faults", "clear", service)
    alerts.case(system, ["NewFingerprint", "CompensationFailing", "SagaFailureRate", "DeadLettersPending"],
                quiet=["CompensationFailing", "DeadLettersPending"], lift=lift, saga=lambda: failed_saga(system), letter=lambda: a_letter(system))


def failed_saga(system):
    sagas = ask(f"{system.url['admin']}/api/admin/sagas?status=FAILED&limit=1")[1]["sagas"]
    return sagas and sagas[0]["id"]


def a_letter(system):
    """One of a message that can work."""
    letters = [letter["id"] for letter in dead_letters(system) if letter["origin"] != "foreign"]
    return letters and letters[0]


def dead_letters(system):
    return (ask(f"{system.url['admin']}/api/admin/dlq?status=PENDING&limit=200")[1] or {}).get("dead_letters", [])


def the_bank_is_away(system, alerts):
    system.sagactl("faults", "inject", "bank", "bank_error")
    system.place(12)
    alerts.wait_for("BreakerOpenTooLong")
    wait_until("calls are open", lambda: alerts.prometheus.now('task_open{service="payment"} > 0'))
    for under_way in ('saga_open_amount_minor{currency="EUR"}', "stock_held_units"):
        wait_until(f"{under_way} tells of them", lambda: alerts.prometheus.now(f"{under_way} > 0"))
    # A minute and a half that nobody waits.
    system.change("payment", "UPDATE task SET created_at = created_at - 95000000")
    alerts.case(system, ["TaskOpenTooLong", "BreakerOpenTooLong"], quiet=["TaskOpenTooLong"])


def orders_time_out(system, alerts):
    """A second is time enough for them, but for a step that is paused."""
    system.environment["ORDER__SERVICE__DEADLINE"] = "1s"
    restart(system, "order")
    system.sagactl("faults", "inject", "payment", "pause", "--step", "payment-processing")
    system.place(6)
    alerts.case(system, ["OrdersTimeOut"], quiet=[], service="payment")
    del system.environment["ORDER__SERVICE__DEADLINE"]
    restart(system, "order")


def restart(system, service):
    system.sagactl("stop", service)
    system.sagactl("start", service)


def a_step_does_nothing(system, alerts):
    system.sagactl("faults", "inject", "payment", "pause", "--step", "payment-processing")
    orders = system.place(2)
    admin = system.url["admin"]
    wait_until("admin knows of them", lambda: all(
        (ask(f"{admin}/api/admin/sagas/{order}")[1].get("next") or {}).get("step") == "payment-processing" for order in orders))
    system.change("admin", "UPDATE row_saga SET deadline = deadline - 100000000 WHERE finished = 0")
    alerts.case(system, ["SagasOverdue"], quiet=["SagasOverdue"], service="payment")
    system.change("admin", f"UPDATE row_saga SET deadline = deadline + 100000000 WHERE id IN ({', '.join(map(repr, orders))})")


def a_row_is_damaged(system, alerts):
    wait_until("every saga has ended", system.has_ended)
    system.change("order", """UPDATE row_order SET customer = 'eve', state = replace(state, '"customer":"ada"', '"customer":"eve"')
        WHERE id = (SELECT id FROM row_order WHERE status = 'CONFIRMED' LIMIT 1)""")
    ask(f"{system.url['admin']}/api/admin/audit?wait=20")
    alerts.case(system, ["LedgersUnbalanced"], quiet=["LedgersUnbalanced"])


def nobody_audits(system, alerts):
    """Two hours that nobody waits: the row, and what it is the fold of."""
    earlier = time.strftime("'%Y-%m-%dT%H:%M:%SZ'", time.gmtime(time.time() - 7200))
    system.change("admin", f"UPDATE row_books SET state = json_set(state, '$.look.at', {earlier})",
                  f"""UPDATE event SET data = json_set(data, '$.at', {earlier})
                      WHERE kind = 'books' AND json_extract(data, '$.at') IS NOT NULL""")
    alerts.case(system, ["ReconciliationOverdue"], quiet=["ReconciliationOverdue"])


def a_message_comes_again(system, alerts):
    """Payment dies after a commit, before it acknowledges. Of a commit without a message there is nothing to come again."""
    for _ in range(3):
        system.sagactl("faults", "inject", "payment", "crash_before_ack", "--next", "1")
        system.place(2)
        wait_until("payment is gone", lambda: ask(f"{system.url['payment']}/livez")[0] == 0)
        system.sagactl("start", "payment")
        until = time.time() + 5
        while time.time() < until:
            if alerts.prometheus.now("consumer_redelivery_total > 0"):
                say("seen: a message that was delivered again")
                return
            time.sleep(0.1)
    fail("nothing was ever delivered again")


def admin_cannot_look(system, alerts):
    """All else goes on there, and its store is well: a table is away that only its look needs just now."""
    system.change("admin", "ALTER TABLE row_dead_letter_view RENAME TO row_dead_letter_view_away")
    alerts.case(system, ["SagaCountsUnavailable"], quiet=["SagaCountsUnavailable"],
                lift=lambda: system.change("admin", "ALTER TABLE row_dead_letter_view_away RENAME TO row_dead_letter_view"))


def a_service_dies(system, alerts):
    system.sagactl("kill", "bank")
    alerts.case(system, ["ServiceDown"], quiet=["ServiceDown"], service="bank")


def a_database_is_moved(system, alerts):
    file = system.data / "inventory" / "inventory.db"
    file.rename(file.with_suffix(".away"))
    alerts.case(system, ["StoreUnhealthy"], quiet=["StoreUnhealthy"], service="inventory", lift=lambda: file.with_suffix(".away").rename(file))


FAULTS = [a_relay_is_silent, the_broker_is_away, the_broker_refuses_a_message, a_crowd_comes_and_admin_hears_nothing, all_is_well, the_bank_declines, steps_fail, the_bank_is_away,
          orders_time_out, a_step_does_nothing, a_message_comes_again, a_row_is_damaged, nobody_audits, admin_cannot_look, a_service_dies, a_database_is_moved]


# --- dashboards -------------------------------------------------------------------------------------------------------

# Prometheus' own.
OWN = {"ALERTS", "ALERTS_FOR_STATE", "up"}
WORDS = set("""and or unless by without on ignoring group_left group_right bool offset le inf nan""".split())


def names_in(expression):
    """The metrics of an expression: what is no function, no label, no word of the language."""
    bare = re.sub(r'"(\\.|[^"\\])*"', '""', expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    return {name for name in re.findall(r"(?<![\w$.])[A-Za-z_:][\w:]*(?!\w)(?!\s*\()", bare) if name.lower() not in WORDS}


def families(system, prometheus):
    """What the services offer, or have offered: each name, and the metric it belongs to."""
    seen = prometheus.get("label/__name__/values", **{"match[]": '{job="saga"}', "start": BEGAN, "end": time.time()})
    known = {name: name.removesuffix("_total") for name in seen if not name.startswith("scrape_") and name not in OWN}
    for name in SERVICES:
        status, text = ask(f"{system.url[name]}/metrics")
        if status != 200:
            fail(f"{name} shows no metrics: it answers {status}")
            continue
        for family, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M):
            parts = {"histogram": ["_bucket", "_sum", "_count"], "counter": ["_total"]}.get(kind, [""])
            known.update({family.removesuffix("_total") + part: family.removesuffix("_total") for part in parts})
    return known


def panels():
    """Every panel of every dashboard but rows, as (dashboard, panel)."""
    for path in sorted((ROOT / "grafana/dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        for panel in dashboard["panels"]:
            if panel["type"] != "row":
                yield dashboard, panel


def plain(expression):
    """An expression with Grafana's variables as they would be here."""
    return expression.replace("$__rate_interval", "5s").replace("$__range", "5m").replace("$service", ".*")


def check_panels(system, prometheus, alerts):
    known, used = families(system, prometheus), set()
    expressions = [(f"alert {name}", rule["query"]) for name, rule in alerts.rules.items()]
    links, count = set(), 0
    for dashboard, panel in panels():
        where = f"panel {dashboard['title']} / {panel['title']}"
        defaults = panel["fieldConfig"]["defaults"]
        if not panel.get("description") or not defaults.get("unit"):
            fail(f"{where}: no unit, or no description")
        for runbook in re.findall(r"docs/runbooks/\w+\.md", panel["description"]):
            if not (ROOT / runbook).exists():
                fail(f"{where}: there is no {runbook}")
        check_links(where, defaults["links"], links)
        for target in panel["targets"]:
            count += 1
            expressions.append((where, target["expr"]))
            try:
                found = prometheus.since_the_start(plain(target["expr"]))
            except ValueError as why:
                fail(f"{where}: {why}: {target['expr']}")
                continue
            if not found:
                fail(f"{where}: nothing was ever returned by {target['expr']}")
    for where, expression in expressions:
        for name in names_in(plain(expression)) - OWN:
            if name in known:
                used.add(known[name])
            else:
                fail(f"{where}: no service has a metric {name}")
    for name in sorted(set(known.values()) - used):
        fail(f"metric {name}: no dashboard and no alert uses it")
    for path in sorted(links):
        status, _ = ask(f"{system.url['admin']}{path}")
        if status != 200:
            fail(f"a panel links to admin's {path}, which answers {status}")
    say(f"{count} queries of panels, {len(known)} names of {len(set(known.values()))} metrics, {len(links)} links")


def check_links(where, links, rows):
    """One to the traces, in Tempo's language, and one to the rows, which is asked for later."""
    traces = [link["url"] for link in links if link["url"].startswith("/explore?")]
    at_admin = [link["url"].removeprefix("${admin}") for link in links if link["url"].startswith("${admin}/api/")]
    if not traces or not at_admin:
        fail(f"{where}: links to no trace, or to no rows")
    rows.update(at_admin)
    for url in traces:
        panes = json.loads(urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["panes"][0])
        if not panes or any(pane["datasource"] != "tempo" or not pane["queries"][0]["query"] for pane in panes.values()):
            fail(f"{where}: its link to traces asks nothing of Tempo")


def check_exemplars(prometheus):
    """Points of a histogram lead to the trace that they were measured in."""
    found = prometheus.get("query_exemplars", query='step_duration_seconds_bucket{job="saga"}', start=BEGAN, end=time.time())
    traced = [one for series in found for one in series["exemplars"] if re.fullmatch("[0-9a-f]{32}", one["labels"].get("trace_id", ""))]
    if not traced:
        fail("no exemplar of step_duration_seconds names a trace")


def main():
    # What was started is stopped, whatever ends this.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="dashboards-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    base = free_ports()
    system = System(folder / "data", base)
    # It takes its time to start: meanwhile there is nothing to be scraped.
    prometheus = Prometheus(folder, base + 6, system)
    system.start()
    wait_until("Prometheus is ready", lambda: ask(f"{prometheus.url}/-/ready")[0] == 200)
    wait_until("all are scraped", lambda: len(prometheus.now('up{job="saga"} == 1')) == len(SERVICES))
    alerts = Alerts(prometheus)
    for fault in FAULTS:
        fault(system, alerts)
    wait_until("every saga has ended", system.has_ended)
    # Whatever was done to it, and mended as the runbooks say.
    system.sagactl("audit", "--wait", "20s")
    if missed := alerts.rules.keys() - alerts.fired:
        fail(f"nobody has seen these fire: {sorted(missed)}")
    if lasting := alerts.fired - alerts.over - LOOK_BACK:
        fail(f"nobody has seen these end: {sorted(lasting)}")
    check_panels(system, prometheus, alerts)
    check_exemplars(prometheus)
    say("held" if not failures else f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
