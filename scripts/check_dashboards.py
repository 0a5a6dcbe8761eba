"""Tests dashboards, alerts and runbooks with a live system. scripts/check-dashboards.sh calls it.

    check_dashboards.py PROGRAMS PROMETHEUS

Starts a separate system and Prometheus. For each fault it causes the fault, waits for the alerts, runs the diagnosis commands of
their runbooks, removes the cause, runs the fix commands, and waits until the alerts end. At the end every query of every panel
must have returned data, and every metric must be used.
"""

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import live_system
from live_system import ROOT, SERVICES, Prometheus, ask, free_ports, serve, temporary_folder

PROGRAMS, PROMETHEUS = (Path(argument) for argument in sys.argv[1:3])
# Time limit for what normally takes a moment, in seconds.
SOON = 30
# Alerts about the last minutes, which do not end with their cause.
LOOK_BACK = {"SuccessRateLow", "OrdersTimeOut", "BreakerOpenTooLong"}
# Status of an accepted order, with and without waiting.
ACCEPTED = (200, 201, 202)
BEGAN = time.time()
failures = []


def say(text):
    print(f"{time.time() - BEGAN:6.1f}s  {text}", file=sys.stderr, flush=True)


def fail(text):
    failures.append(text)
    say(f"FAILED: {text}")


def wait_until(what, condition, limit=SOON):
    """Waits until `condition` returns something true, and returns its last value."""
    return live_system.wait_until(what, condition, limit, fail)


class Collector(BaseHTTPRequestHandler):
    """Accepts spans like Tempo, and discards them."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class System(live_system.System):
    """A local system that waits less and records every trace."""

    def start(self):
        # Whatever is set outside, notices of what is made up here are for nobody. What takes its time takes less of it: how
        # often admin looks, and when the broker delivers again what a dead process had.
        settings = ["admin.service.notifications.webhook.url=", "admin.service.notifications.check_every=1s", "payment.bus.ack_wait=2s"]
        # Exemplars name traces.
        collector = serve(Collector)
        settings += [f"{name}.trace.{one}" for name in SERVICES for one in (f"endpoint={collector}", "sample_ratio=1")]
        super().start(*settings)

    def place(self, count, token="tok_ok", wait=0, sku="coffee-beans-1kg"):
        """Places orders, 16 in parallel, and returns their ids."""
        body = {"customer": "ada", "lines": [{"sku": sku, "quantity": 1}], "payment": {"token": token}}
        def one(_):
            return ask(f"{self.url['order']}/api/orders", "POST", body, {"Prefer": f"wait={wait}"})
        with ThreadPoolExecutor(16) as clients:
            answers = list(clients.map(one, range(count)))
        refused = [answer for answer in answers if answer[0] not in ACCEPTED]
        if refused:
            fail(f"{len(refused)} of {count} orders were rejected: {refused[0]}")
        return [answer["id"] for status, answer in answers if status in ACCEPTED]

    def has_ended(self):
        """True if admin sees no open saga, except those that need an operator."""
        status, page = ask(f"{self.url['admin']}/api/admin/overview")
        open_ones = ("STARTED", "IN_PROGRESS", "DEAD_LETTERED", "COMPENSATING", "TIMED_OUT", "UNKNOWN")
        return status == 200 and page["sagas"] and not page.get("unconsumed") and not any(
            page["sagas"]["by_status"].get(one) for one in open_ones)


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
    """The alerts that Prometheus has loaded."""

    def __init__(self, prometheus):
        self.prometheus = prometheus
        rules = [rule for group in prometheus.get("rules", type="alert")["groups"] for rule in group["rules"]]
        self.rules = {rule["name"]: rule for rule in rules}
        self.fired, self.ended = set(), set()
        runbooks = {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")} - {"README"}
        if runbooks != self.rules.keys():
            fail(f"alerts without a runbook, or runbooks without an alert: {runbooks ^ self.rules.keys()}")
        for name, rule in self.rules.items():
            texts = rule["annotations"]
            if not all(texts.get(key) for key in ("summary", "description")) or not texts.get("runbook_url", "").endswith(f"/{name}.md"):
                fail(f"alert {name}: summary, description or runbook_url is missing or wrong")

    def fires(self, name):
        return self.prometheus.now(self.rules[name]["query"])

    def wait_for(self, name, is_firing=True, limit=SOON):
        state = "fires" if is_firing else "ends"
        if wait_until(f"alert {name} {state}", lambda: bool(self.fires(name)) == is_firing, limit) and is_firing:
            self.fired.add(name)

    def check_texts(self, names):
        """Checks that the templates of the texts are complete. Pending alerts have texts already."""
        def found():
            alerts = self.prometheus.get("alerts")["alerts"]
            return alerts if set(names) <= {alert["labels"]["alertname"] for alert in alerts} else None
        for alert in wait_until(f"{', '.join(names)} are pending or firing", found) or []:
            for text in alert["annotations"].values():
                if "<no value>" in text or "<error" in text or "{{" in text:
                    fail(f"alert {alert['labels']['alertname']} has the text {text!r}")

    def case(self, system, names, ends, remove_cause=lambda: None, service=None, saga=None, letter=None):
        """Waits for the alerts, runs the diagnosis, removes the cause, runs the fix, and waits for the end of those in `ends`."""
        def variables():
            values = {"SERVICE": service, "SAGA": saga and saga(), "LETTER": letter and letter(), "REASON": "the cause is gone"}
            return {name: value for name, value in values.items() if value}
        for name in names:
            self.wait_for(name)
        self.check_texts(names)
        for name in names:
            run_blocks(system, name, False, variables)
        remove_cause()
        for name in names:
            run_blocks(system, name, True, variables)
        for name in ends:
            self.wait_for(name, is_firing=False)
        self.ended.update(ends)
        say(f"passed: {', '.join(names)}")


# --- faults -----------------------------------------------------------------------------------------------------------

def relay_stalls(system, alerts):
    """Must be the first fault, before order has published anything. Order cannot record publications, like a stalled relay."""
    system.change("order", "CREATE TRIGGER hung BEFORE INSERT ON publication BEGIN SELECT RAISE(ABORT, 'the relay hangs'); END")
    system.place(2)
    alerts.case(system, ["RelayStalled"], ends=["RelayStalled"], service="order",
                remove_cause=lambda: system.change("order", "DROP TRIGGER hung"))


def broker_is_down(system, alerts):
    system.sagactl("stop", "nats")
    system.place(3)
    # More than two minutes pass: order rejects new orders.
    system.change("order", "UPDATE outbox SET created_at = created_at - 130000000")
    names = ["BrokerUnhealthy", "OutboxTooOld", "ServiceNotReady"]
    for name in names:
        alerts.wait_for(name)
    if stalled := alerts.fires("RelayStalled"):
        fail(f"RelayStalled fires although the broker is down: {stalled}")
    alerts.case(system, names, ends=names, service="order")


def broker_rejects_message(system, alerts):
    """Marks an entry as rejected while the broker is down."""
    system.sagactl("stop", "nats")
    system.place(1)
    system.change("order", "UPDATE outbox SET status = 'FAILED', last_error = 'too large' WHERE seq = (SELECT max(seq) FROM outbox)")
    system.sagactl("start", "nats")
    alerts.wait_for("BrokerUnhealthy", is_firing=False)
    alerts.case(system, ["MessagesRejectedByBroker"], ends=["MessagesRejectedByBroker"], service="order")


def consumer_of_admin_lags(system, alerts):
    # Admin consumes two facts of each order, with one consumer for each service. One fact per message, because a pack would hide
    # the lag.
    system.environment["ORDER__BUS__MAX_PACK"] = "1"
    restart(system, "order")
    system.sagactl("faults", "inject", "admin", "pause", "--step", "admin-saga-view")
    system.sagactl("faults", "inject", "order", "publish_twice", "--next", "5")
    ask(f"{system.url['inventory']}/api/products/coffee-beans-1kg/restock", "POST", {"quantity": 1000})
    system.place(520)
    system.place(4, token="tok_declined")
    alerts.case(system, ["ConsumerLag"], ends=["ConsumerLag"], service="admin")
    # Takes effect at the next start.
    del system.environment["ORDER__BUS__MAX_PACK"]


def no_alert_fires(system, alerts):
    wait_until("every saga has ended", system.has_ended)
    firing = lambda: [name for name in alerts.rules if alerts.fires(name)]
    # A gauge lags behind by a few seconds.
    if not wait_until("no alert fires without a fault", lambda: not firing()):
        fail(f"alerts fire without a fault: {firing()}")


def bank_declines(system, alerts):
    system.sagactl("faults", "inject", "bank", "bank_decline")
    system.place(80)
    alerts.case(system, ["SuccessRateLow"], ends=[])


def steps_fail(system, alerts):
    """Dead letters of three kinds: no message at all, a sale, refunds. Those that customers wait for come last. And a few
    messages that succeed at the second attempt: too few to open a breaker."""
    system.sagactl("faults", "inject", "order", "fail_transiently", "--step", "order-confirmation", "--next", "3")
    system.sagactl("faults", "inject", "order", "publish_garbage", "--next", "1")
    system.sagactl("faults", "inject", "inventory", "fail_permanently", "--step", "inventory-sale", "--next", "3")
    system.place(3, wait=10)
    wait_until("five dead letters", lambda: len(dead_letters(system)) >= 5)
    system.sagactl("faults", "inject", "bank", "bank_refuse_refund")
    for order in system.place(12, wait=10):
        ask(f"{system.url['order']}/api/orders/{order}/cancel", "POST")

    # They had been confirmed, so their value was no longer in flight.
    wait_until("the confirmed value is taken back", lambda: alerts.prometheus.now('order_amount_minor_total{event="taken_back"} > 0'))

    def remove_cause():
        for service in ("order", "inventory", "bank"):
            system.sagactl("faults", "clear", service)
    alerts.case(system, ["NewFingerprint", "CompensationStuck", "DeadLettersPending"],
                ends=["NewFingerprint", "CompensationStuck", "DeadLettersPending"], remove_cause=remove_cause, saga=lambda: failed_saga(system), letter=lambda: a_letter(system))


def nobody_waits(system, alerts):
    """A dead letter that is no message of this system."""
    system.sagactl("faults", "inject", "order", "publish_garbage", "--next", "1")
    system.place(1, wait=10)
    alerts.case(system, ["DeadLettersToCleanUp"], ends=["DeadLettersToCleanUp"])


def nothing_is_confirmed(system, alerts):
    """Orders keep coming while a step is paused."""
    system.sagactl("faults", "inject", "payment", "pause", "--step", "payment-processing")
    def place_until_it_fires():
        system.place(3)
        time.sleep(2)
        return alerts.fires("NoOrderConfirmed") and ask(f"{system.url['admin']}/api/admin/overview")[1]["needs_human"]
    wait_until("NoOrderConfirmed fires while orders come", place_until_it_fires, 90)
    alerts.case(system, ["NoOrderConfirmed"], ends=["NoOrderConfirmed"], service="payment")


def failed_saga(system):
    sagas = ask(f"{system.url['admin']}/api/admin/sagas?status=COMPENSATION_STUCK&limit=1")[1]["sagas"]
    return sagas and sagas[0]["id"]


def a_letter(system):
    """A dead letter whose replay can succeed."""
    letters = [letter["id"] for letter in dead_letters(system) if letter["origin"] != "foreign"]
    return letters and letters[0]


def dead_letters(system):
    return (ask(f"{system.url['admin']}/api/admin/dlq?status=PENDING&limit=200")[1] or {}).get("dead_letters", [])


def bank_is_down(system, alerts):
    system.sagactl("faults", "inject", "bank", "bank_error")
    system.place(12)
    alerts.wait_for("BreakerOpenTooLong")
    wait_until("calls are open", lambda: alerts.prometheus.now('task_open{service="payment"} > 0'))
    for metric in ('saga_open_amount_minor{currency="EUR"}', "stock_reserved_units"):
        wait_until(f"{metric} is above 0", lambda: alerts.prometheus.now(f"{metric} > 0"))
    # 95 seconds pass.
    system.change("payment", "UPDATE task SET created_at = created_at - 95000000")
    alerts.case(system, ["TaskOpenTooLong", "BreakerOpenTooLong"], ends=["TaskOpenTooLong"])


def orders_time_out(system, alerts):
    """A deadline of one second, which only a paused step misses."""
    system.environment["ORDER__SERVICE__DEADLINE"] = "1s"
    restart(system, "order")
    system.sagactl("faults", "inject", "payment", "pause", "--step", "payment-processing")
    system.place(6)
    alerts.case(system, ["OrdersTimeOut"], ends=[], service="payment")
    del system.environment["ORDER__SERVICE__DEADLINE"]
    restart(system, "order")


def restart(system, service):
    system.sagactl("stop", service)
    system.sagactl("start", service)


def step_stalls(system, alerts):
    system.sagactl("faults", "inject", "payment", "pause", "--step", "payment-processing")
    orders = system.place(2)
    admin = system.url["admin"]
    wait_until("admin shows the orders", lambda: all(
        (ask(f"{admin}/api/admin/sagas/{order}")[1].get("next") or {}).get("step") == "payment-processing" for order in orders))
    system.change("admin", "UPDATE row_saga SET deadline = deadline - 100000000 WHERE finished = 0")
    alerts.case(system, ["SagasOverdue"], ends=["SagasOverdue"], service="payment")
    system.change("admin", f"UPDATE row_saga SET deadline = deadline + 100000000 WHERE id IN ({', '.join(map(repr, orders))})")


def row_is_damaged(system, alerts):
    wait_until("every saga has ended", system.has_ended)
    system.change("order", """UPDATE row_order SET customer = 'eve', state = replace(state, '"customer":"ada"', '"customer":"eve"')
        WHERE id = (SELECT id FROM row_order WHERE status = 'CONFIRMED' LIMIT 1)""")
    ask(f"{system.url['admin']}/api/admin/reconciliation?wait=20")
    alerts.case(system, ["LedgersUnbalanced"], ends=["LedgersUnbalanced"])


def reconciliation_stops(system, alerts):
    """Two hours pass: changes the row and its events."""
    earlier = time.strftime("'%Y-%m-%dT%H:%M:%SZ'", time.gmtime(time.time() - 7200))
    system.change("admin", f"UPDATE row_reconciliation SET state = json_set(state, '$.last.at', {earlier})",
                  f"""UPDATE event SET data = json_set(data, '$.Recorded.at', {earlier})
                      WHERE kind = 'reconciliation' AND json_extract(data, '$.Recorded.at') IS NOT NULL""")
    alerts.case(system, ["ReconciliationOverdue"], ends=["ReconciliationOverdue"])


def message_is_redelivered(system, alerts):
    """Payment crashes after a commit and before the acknowledgement. A commit without a message causes no redelivery."""
    for _ in range(3):
        system.sagactl("faults", "inject", "payment", "crash_before_ack", "--next", "1")
        system.place(2)
        wait_until("payment has crashed", lambda: ask(f"{system.url['payment']}/livez")[0] == 0)
        system.sagactl("start", "payment")
        until = time.time() + 5
        while time.time() < until:
            if alerts.prometheus.now("consumer_redelivery_total > 0"):
                say("passed: a redelivered message")
                return
            time.sleep(0.1)
    fail("no message was redelivered")


def admin_cannot_count(system, alerts):
    """Only the queries of the overview fail: a table that nothing else needs now is renamed."""
    system.change("admin", "ALTER TABLE row_dead_letter_view RENAME TO row_dead_letter_view_away")
    names = ["SagaCountsUnavailable", "FindingWithoutAlert"]
    alerts.case(system, names, ends=names,
                remove_cause=lambda: system.change("admin", "ALTER TABLE row_dead_letter_view_away RENAME TO row_dead_letter_view"))


def service_dies(system, alerts):
    system.sagactl("kill", "bank")
    alerts.case(system, ["ServiceDown"], ends=["ServiceDown"], service="bank")


def database_is_moved(system, alerts):
    file = system.data / "inventory" / "inventory.db"
    file.rename(file.with_suffix(".away"))
    alerts.case(system, ["StoreUnhealthy"], ends=["StoreUnhealthy"], service="inventory", remove_cause=lambda: file.with_suffix(".away").rename(file))


FAULTS = [relay_stalls, broker_is_down, broker_rejects_message, consumer_of_admin_lags, no_alert_fires, bank_declines, steps_fail,
          nobody_waits, nothing_is_confirmed, bank_is_down,
          orders_time_out, step_stalls, message_is_redelivered, row_is_damaged, reconciliation_stops, admin_cannot_count, service_dies, database_is_moved]


# --- dashboards -------------------------------------------------------------------------------------------------------

# Series of Prometheus itself.
OWN = {"ALERTS", "ALERTS_FOR_STATE", "up"}
# Data sources of the panels.
VARIABLE_SOURCES = {'{"type": "prometheus", "uid": "${datasource}"}'}
WORDS = set("""and or unless by without on ignoring group_left group_right bool offset le inf nan""".split())


def names_in(expression):
    """The metrics in an expression: names that are no function, label or keyword."""
    bare = re.sub(r'"(\\.|[^"\\])*"', '""', expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    return {name for name in re.findall(r"(?<![\w$.])[A-Za-z_:][\w:]*(?!\w)(?!\s*\()", bare) if name.lower() not in WORDS}


def families(system, prometheus):
    """All series names that the services have exported, with their metrics."""
    seen = prometheus.get("label/__name__/values", **{"match[]": '{job="saga"}', "start": BEGAN, "end": time.time()})
    known = {name: name.removesuffix("_total") for name in seen if not name.startswith("scrape_") and name not in OWN}
    for name in SERVICES:
        status, text = ask(f"{system.url[name]}/metrics")
        if status != 200:
            fail(f"{name}: /metrics answers {status}")
            continue
        for family, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M):
            parts = {"histogram": ["_bucket", "_sum", "_count"], "counter": ["_total"]}.get(kind, [""])
            known.update({family.removesuffix("_total") + part: family.removesuffix("_total") for part in parts})
    return known


def panels():
    """All panels except rows, as (dashboard, panel)."""
    for path in sorted((ROOT / "grafana/dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text(encoding="utf-8"))
        for one in dashboard["panels"]:
            for panel in one["panels"] if one["type"] == "row" else [one]:
                yield dashboard, panel


def variables():
    """The series of the variables that a query fills, as (name, series)."""
    for path in sorted((ROOT / "grafana/dashboards").glob("*.json")):
        for variable in json.loads(path.read_text(encoding="utf-8"))["templating"]["list"]:
            if variable["type"] == "query":
                yield variable["name"], re.fullmatch(r"label_values\((.*), \w+\)", variable["definition"])[1]


def plain(expression):
    """An expression with short windows, and without what hides zeros and unknown values."""
    shown = re.sub(r"^\((.*?)\) > 0 and topk.*|^(.*?) >= 0 and topk.*", lambda found: found[1] or found[2], expression)
    return shown.replace("[1m]", "[5s]").replace(" or vector(-1)", "")


def check_panels(system, prometheus, alerts):
    known, used = families(system, prometheus), set()
    expressions = [(f"alert {name}", rule["query"]) for name, rule in alerts.rules.items()]
    links, count = set(), 0
    for name, query in variables():
        expressions.append((f"variable {name}", query))
    for dashboard, panel in panels():
        where = f"panel {dashboard['title']} / {panel['title']}"
        defaults = panel["fieldConfig"]["defaults"]
        if not panel.get("description") or not defaults.get("unit"):
            fail(f"{where}: no unit, or no description")
        described = re.findall(r"docs/runbooks/(\w+)\.md", panel["description"])
        linked = [link["url"] for link in panel["links"]]
        if linked != ["${runbooks}/%s.md" % name for name in described]:
            fail(f"{where}: describes the runbooks {described}, and links to {linked}")
        for name in described:
            if not (ROOT / f"docs/runbooks/{name}.md").exists():
                fail(f"{where}: there is no runbook {name}")
        for source in {json.dumps(source) for source in sources_in(panel)} - VARIABLE_SOURCES:
            fail(f"{where}: the data source {source} is no variable of the dashboard")
        check_links(where, defaults["links"], links)
        for target in panel["targets"]:
            count += 1
            expressions.append((where, target["expr"]))
            try:
                found = prometheus.between(plain(target["expr"]), BEGAN, time.time())
            except ValueError as why:
                fail(f"{where}: {why}: {target['expr']}")
                continue
            if not found:
                fail(f"{where}: no data from {target['expr']}")
    for where, expression in expressions:
        for name in names_in(plain(expression)) - OWN:
            if name in known:
                used.add(known[name])
            else:
                fail(f"{where}: no service exports the metric {name}")
    for name in sorted(set(known.values()) - used):
        fail(f"metric {name}: no dashboard and no alert uses it")
    for path in sorted(links):
        status, _ = ask(f"{system.url['admin']}{path}")
        if status != 200:
            fail(f"a panel links to {path} of admin, which answers {status}")
    say(f"{count} queries of panels, {len(known)} names of {len(set(known.values()))} metrics, {len(links)} links")


def check_links(where, links, rows):
    """Checks that there is a link to traces and one to rows, and collects the second for a later request."""
    traces = [link["url"] for link in links if link["url"].startswith("/explore?")]
    at_admin = [link["url"].removeprefix("${admin}") for link in links if link["url"].startswith("${admin}/api/")]
    if not traces or not at_admin:
        fail(f"{where}: the link to traces or to rows is missing")
    rows.update(at_admin)
    for url in traces:
        panes = json.loads(urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["panes"][0])
        if not panes or any(pane["datasource"] != "${tempo}" or not pane["queries"][0]["query"] for pane in panes.values()):
            fail(f"{where}: its link to traces has no query")


def sources_in(value):
    """All data sources in a part of a dashboard."""
    if isinstance(value, list):
        return [source for one in value for source in sources_in(one)]
    if isinstance(value, dict):
        return [value["datasource"] for _ in "." if "datasource" in value] + sources_in([one for name, one in value.items() if name != "datasource"])
    return []


def check_metrics(system):
    """Checks what each service exports with promtool, in the format that Prometheus has known for longest."""
    for name in SERVICES:
        request = urllib.request.Request(f"{system.url[name]}/metrics", headers={"Accept": "text/plain; version=0.0.4"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
        checked = subprocess.run([PROMETHEUS.with_name("promtool"), "check", "metrics"], input=text, capture_output=True, timeout=60)
        if checked.returncode != 0 or checked.stderr:
            fail(f"{name}: promtool check metrics: {checked.stderr.decode()}{checked.stdout.decode()}")
    say(f"promtool checked the metrics of {len(SERVICES)} services")


def check_exemplars(prometheus):
    """Checks that exemplars of a histogram refer to traces."""
    found = prometheus.get("query_exemplars", query='step_duration_seconds_bucket{job="saga"}', start=BEGAN, end=time.time())
    traced = [one for series in found for one in series["exemplars"] if re.fullmatch("[0-9a-f]{32}", one["labels"].get("trace_id", ""))]
    if not traced:
        fail("no exemplar of step_duration_seconds has a trace id")


def main():
    folder = temporary_folder("dashboards-")
    base = free_ports(23080)
    system = System(PROGRAMS, folder / "data", base, fail)
    # Starts slowly, in parallel with the system.
    prometheus = Prometheus(PROMETHEUS, folder, base + 6, system)
    system.start()
    wait_until("Prometheus is ready", lambda: ask(f"{prometheus.url}/-/ready")[0] == 200)
    wait_until("all services are scraped", lambda: len(prometheus.now('up{job="saga"} == 1')) == len(SERVICES))
    alerts = Alerts(prometheus)
    for fault in FAULTS:
        fault(system, alerts)
    wait_until("every saga has ended", system.has_ended)
    # Whatever was done to it, and mended as the runbooks say.
    system.sagactl("reconcile", "--wait", "20s")
    if missed := alerts.rules.keys() - alerts.fired:
        fail(f"these alerts never fired: {sorted(missed)}")
    if lasting := alerts.fired - alerts.ended - LOOK_BACK:
        fail(f"these alerts never ended: {sorted(lasting)}")
    check_panels(system, prometheus, alerts)
    check_exemplars(prometheus)
    check_metrics(system)
    say("all checks passed" if not failures else f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
