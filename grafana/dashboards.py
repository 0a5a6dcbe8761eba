#!/usr/bin/env python3
"""Generates the dashboards in grafana/dashboards/*.json, and the panels that the alerts in prometheus/ name. With --check it
writes nothing and fails if a file is out of date.

Replicas of a service share a database and consumers, and each exports the same gauge for those: queries use max(). Counters
belong to one process: queries use sum(). Rates are of the last minute.

A value that is unknown is NaN or has no series. It is shown in grey, never as the last value and never in green: `known` turns it
into UNKNOWN. Series of zeros are left out.

Each panel is one call below: title, unit, the question that it answers, and queries. The class Dashboard defines how panels look.
scripts/check-dashboards.sh runs every query against a live system, and scripts/draw-dashboards.sh draws the dashboards.
"""

import json
import re
import sys
from pathlib import Path
from urllib.parse import quote

FOLDER = Path(__file__).parent
# Data sources are variables: an existing Grafana has its own, under other names.
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
TEMPO = {"type": "tempo", "uid": "${tempo}"}
# Colours that are told apart with any colour vision (Okabe and Ito). Red is for what needs a human.
GREEN, BLUE, SKY, YELLOW, ORANGE, RED, PURPLE, GREY = (
    "#009E73", "#0072B2", "#56B4E9", "#F0E442", "#E69F00", "#D55E00", "#CC79A7", "#8E8E8E")
# Colours of lines, by the word that their legend begins with.
LINES = {
    "order": SKY, "inventory": ORANGE, "payment": GREEN, "bank": PURPLE, "admin": BLUE,
    "placed": SKY, "confirmed": GREEN, "cancelled": ORANGE, "taken_back": PURPLE, "written": SKY, "published": GREEN, "rejected": RED,
    "inventory-stock-reservation": ORANGE, "payment-processing": GREEN, "order-confirmation": SKY, "order-placement": BLUE,
    "inventory-stock-release": YELLOW, "payment-refund": PURPLE,
    "STARTED": SKY, "IN_PROGRESS": BLUE, "DEAD_LETTERED": ORANGE, "TIMED_OUT": YELLOW, "COMPENSATING": PURPLE, "COMPENSATION_STUCK": RED, "UNKNOWN": GREY,
    "out_of_stock": SKY, "payment_failed": ORANGE, "timed_out": RED, "customer_request": GREEN, "operator": PURPLE,
    "answered": GREEN, "failed": RED, "retried": ORANGE, "dead_lettered": RED, "duplicate": SKY, "redelivered": BLUE, "foreign": RED,
    "captured": GREEN, "refunded": ORANGE, "reserved": SKY, "sold": GREEN, "released": ORANGE, "put_back": PURPLE, "completed": GREEN, "compensated": ORANGE,
    "p50": GREEN, "p99": GREEN, "overdue": ORANGE, "discrepancies": RED, "age": SKY, "PENDING": RED, "REPLAYING": SKY, "awaited": ORANGE, "counted": GREY,
}
MOST_SERIES = 12
UNKNOWN = -1
ALERTS = 'ALERTS{alertstate="firing", system="saga"}'
ADMIN, ORDER, SAGA = 'job="saga", service="admin"', 'job="saga", service="order"', 'job="saga"'


# A row that says that there is no table of findings.
UNKNOWN_FINDINGS = (f'label_replace(label_replace(label_replace(absent(finding_open{{{ADMIN}}}) * time(), "text", "unknown: admin does not answer", "", ""), '
                    '"state", "unknown", "", ""), "key", "unknown", "", "")')


def known(expression, nothing=None):
    """An expression whose value is UNKNOWN when it is NaN or has no series."""
    return f"({expression} >= 0) or {f'({nothing}) or ' if nothing else ''}vector({UNKNOWN})"


def heard(expression):
    """A count of admin's that is unknown while admin cannot use the broker, as it then hears of no order."""
    return f'({expression} unless on () max(readiness_check{{{ADMIN}, check="broker"}}) > 0)'


def rate(metric, by="", labels=SAGA):
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{labels}}}[1m]))"


def largest(expression, most=MOST_SERIES):
    """The series that were largest in the displayed time range. topk() alone chooses others at each moment. A series that has just begun is
    between two steps of the subquery."""
    return f"topk({most}, max_over_time(({expression})[$__range:30s] @ end()) > 0 or ({expression}))"


def some(expression):
    """The largest series of an expression, where they are not 0."""
    return f"({expression}) > 0 and {largest(expression)} > 0"


def source_variable(name, label, source):
    """A data source that the reader chooses; the default one of its type at first."""
    return {"type": "datasource", "name": name, "label": label, "query": source["type"], "current": {}, "hide": 0, "refresh": 1,
            "regex": "", "includeAll": False, "multi": False, "options": []}


def link_variable(name):
    """A base address, as admin is set (service.links)."""
    query = f"label_values(dashboard_link_info{{{ADMIN}}}, {name})"
    return {"type": "query", "name": name, "label": name, "datasource": PROMETHEUS, "definition": query, "query": {"query": query, "refId": name},
            "refresh": 1, "hide": 2, "includeAll": False, "multi": False, "current": {}, "options": [], "regex": "", "sort": 0}


def trace_link(label):
    """A link to the traces of the selected service in the displayed time range."""
    query = '{resource.service.name="${__field.labels.%s}"}' % label if label else "{}"
    panes = {"t": {"datasource": TEMPO["uid"], "range": {"from": "${__from}", "to": "${__to}"}, "queries": [
        {"refId": "A", "datasource": TEMPO, "queryType": "traceql", "query": query}]}}
    url = "/explore?schemaVersion=1&orgId=1&panes=" + quote(json.dumps(panes, separators=(",", ":")), safe="${}_.:,[]")
    return {"title": "Traces in this time range (Tempo)", "url": url, "targetBlank": True}


def runbook_link(alert):
    return {"title": f"Runbook {alert}", "url": "${runbooks}/%s.md" % alert, "targetBlank": True}


def rows_link(path):
    return {"title": "Rows (admin API)", "url": "${admin}/api/admin/" + path, "targetBlank": True}


def value_mapping(texts):
    """Texts and colours of values."""
    return {"type": "value", "options": {
        str(value): {"text": text, "color": colour, "index": index} for index, (value, (text, colour)) in enumerate(texts.items())}}


def fixed(colour):
    return {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}


def override(pattern, *properties):
    return {"matcher": {"id": "byRegexp", "options": f"/{pattern}/"}, "properties": list(properties)}


def column(name, *properties):
    return {"matcher": {"id": "byName", "options": name}, "properties": list(properties)}


STATES = {UNKNOWN: ("unknown", GREY), 0: ("ok", GREEN), 1: ("degraded", YELLOW), 2: ("down", RED)}
LINE_COLOURS = [override(f"^({'|'.join(name for name in LINES if LINES[name] == colour)})( |$)", fixed(colour)) for colour in sorted({*LINES.values()})]
# The median beside a high percentile.
DASHED = override("(^| )p50$", {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [6, 4]}})


class Dashboard:
    def __init__(self, uid, title, about):
        self.uid, self.title, self.about = uid, title, about
        self.panels, self.closed, self.x, self.y, self.height, self.count = [], None, 0, 0, 0, 0

    def row(self, title):
        """Begins a row that is closed at first."""
        self._break()
        self.closed = {"id": self._id(), "type": "row", "title": title, "collapsed": True, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": self.y}}
        self.panels.append(self.closed)
        self.y += 1

    def _id(self):
        self.count += 1
        return self.count

    def _break(self):
        self.x, self.y, self.height = 0, self.y + self.height, 0

    def _add(self, kind, title, unit, about, queries, size, rows, trace, options, alerts=(), defaults=None, overrides=(),
             instant=False, form="time_series", none="none", transformations=()):
        width, height = size
        if self.x + width > 24:
            self._break()
        about += "".join(f" Runbook: docs/runbooks/{alert}.md." for alert in alerts)
        targets = [{"datasource": PROMETHEUS, "editorMode": "code", "expr": expr, "legendFormat": legend, "refId": chr(65 + n),
                    "range": not instant, "instant": instant, "format": form,
                    # Exemplars of a histogram link to traces.
                    "exemplar": "_bucket" in expr and not instant}
                   for n, (expr, legend) in enumerate(queries)]
        field = {"unit": unit, "links": [trace_link(trace), rows_link(rows)], "noValue": none, **(defaults or {})}
        panel = {
            "id": self._id(), "type": kind, "title": title, "description": about, "links": [runbook_link(alert) for alert in alerts], "datasource": PROMETHEUS,
            "targets": targets, "gridPos": {"h": height, "w": width, "x": self.x, "y": self.y},
            "fieldConfig": {"defaults": field, "overrides": list(overrides)}, "options": options, "transformations": list(transformations)}
        (self.panels if self.closed is None else self.closed["panels"]).append(panel)
        self.x, self.height = self.x + width, max(self.height, height)

    def stat(self, title, unit, about, expr, rows, steps=((None, BLUE),), texts=None, decimals=None, nothing=None, **more):
        """The current value, in the colour of the last of `steps` that it reaches; grey while it is unknown."""
        self._add("stat", title, unit, about, [(known(expr, nothing), title)], (3, 3), rows, None, {
            "colorMode": "background", "graphMode": "none", "justifyMode": "center", "textMode": "value", "wideLayout": True, "percentChangeColorMode": "standard",
            "showPercentChange": False, "orientation": "auto", "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
            defaults={"thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in steps]},
                      "color": {"mode": "thresholds"}, "decimals": decimals, "mappings": [value_mapping({UNKNOWN: ("unknown", GREY), **(texts or {})})]},
            instant=True, none="unknown", **more)

    def graph(self, title, unit, about, queries, rows, trace="service", stacked=False, size=(8, 8), least=0, log=False, **more):
        custom = {"drawStyle": "line", "lineWidth": 2, "fillOpacity": 40 if stacked else 0, "showPoints": "never", "spanNulls": False,
                  "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
                  "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"}}
        defaults = {"custom": custom, "color": {"mode": "palette-classic-by-name"}}
        if least is not None and not log:
            # A flat line of zeros would be drawn on an axis to 100.
            defaults |= {"min": least, "custom": {**custom, "axisSoftMax": 1}}
        if unit in ("short", "orders", "messages", "units", "calls"):
            defaults["decimals"] = 0
        self._add("timeseries", title, unit, about, queries, size, rows, trace, {
            "legend": {"displayMode": "list", "placement": "bottom", "calcs": [], "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"}}, defaults=defaults, overrides=[*LINE_COLOURS, DASHED], **more)

    def quantiles(self, title, about, metric, by, rows, trace="service", labels=SAGA, **more):
        """Median (dashed) and 99th percentile of a duration, of the slowest six."""
        group = ", ".join(["le", by] if by else ["le"])
        legend = "{{%s}} " % by if by else ""
        def of(quantile):
            return f"histogram_quantile({quantile}, sum by ({group}) (rate({metric}_bucket{{{labels}}}[1m])))"
        slowest = largest(of(0.99), 6)
        self.graph(title, "s", about, [(f"{of(q)} >= 0 and {slowest}", f"{legend}p{int(100 * q)}") for q in (0.5, 0.99)], rows, trace=trace, log=True, none="nothing to measure", **more)

    def states(self, title, about, queries, rows, trace=None, size=(24, 7), **more):
        """Bands over time: ok, degraded, down or unknown."""
        self._add("state-timeline", title, "short", about, queries, size, rows, trace, {
            "mergeValues": True, "showValue": "auto", "alignValue": "left", "rowHeight": 0.85, "perPage": 50,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "tooltip": {"mode": "single", "sort": "none"}}, defaults={
                "mappings": [value_mapping(STATES)], "color": {"mode": "thresholds"}, "custom": {"fillOpacity": 80, "lineWidth": 0},
                "thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": None if value == UNKNOWN else value} for value, (_, colour) in STATES.items()]}}, **more)

    def table(self, title, about, queries, columns, rows, size, join=None, trace=None, overrides=(), none="none", **more):
        """The current series; `columns` are pairs of a label (or Value) and its heading. `join`: the label that several queries share."""
        names = [name for name, _ in columns]
        organize = {"id": "organize", "options": {
            "includeByName": {name: True for name in names}, "excludeByName": {}, "indexByName": {name: index for index, name in enumerate(names)},
            "renameByName": dict(columns)}}
        transformations = [organize] if join is None else [{"id": "joinByField", "options": {"byField": join, "mode": "outer"}}, organize,
                                                        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Since"}]}}]
        self._add("table", title, "short", about, [(expr, "") for expr in queries], size, rows, trace, {
            "showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""}},
            instant=True, form="table", overrides=overrides, transformations=transformations, none=none, **more)

    def all_panels(self):
        return [panel for one in self.panels for panel in (one["panels"] if one["type"] == "row" else [one])]

    def json(self):
        self._break()
        variables = [
            source_variable("datasource", "Metrics", PROMETHEUS), source_variable("tempo", "Traces", TEMPO),
            link_variable("runbooks"), link_variable("admin")]
        marks = {"name": "Pages", "datasource": PROMETHEUS, "enable": True, "iconColor": RED, "titleFormat": "{{alertname}}", "textFormat": "{{service}}",
                 # Only their starts.
                 "expr": 'ALERTS{alertstate="firing", system="saga", severity="page"} unless ALERTS{alertstate="firing", system="saga", severity="page"} offset 30s',
                 "step": "30s"}
        return {
            "uid": self.uid, "title": self.title, "description": self.about, "tags": ["saga"], "schemaVersion": 41, "version": 1,
            "editable": True, "graphTooltip": 1, "refresh": "30s", "timezone": "browser", "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": variables}, "annotations": {"list": [marks]}, "panels": self.panels,
            "links": [{"type": "dashboards", "tags": ["saga"], "asDropdown": False, "keepTime": True, "includeVars": True,
                       "title": "", "icon": "external link", "url": ""}]}


def overview():
    d = Dashboard("saga-overview", "Overview", "Is a human needed? What is broken, since when, whom does it harm, and what is to be done?")
    d.stat("Pages", "short", "Firing alerts that justify waking somebody. Normally 0.", f'count({ALERTS[:-1]}, severity="page"}}) or vector(0)', "overview",
           ((None, GREEN), (1, RED)))
    d.stat("Findings", "short", "Problems that need a human, as sagactl status lists them. Normally 0. sagactl doctor says what to do.",
           f"sum(max by (code) (finding_open{{{ADMIN}}}))", "overview", ((None, GREEN), (1, RED)), alerts=["FindingWithoutAlert", "SagaCountsUnavailable"])
    d.stat("Orders in flight", "short", "Neither confirmed nor cancelled, as order has them. Normally as many as arrive within a few milliseconds.",
           f"max(saga_in_flight{{{ORDER}}})", "sagas?status=IN_PROGRESS")
    d.stat("Money in flight", "currencyEUR", "Of the sagas that have not ended; beyond 1,000 of them, of the 1,000 oldest.",
           heard(f'max(saga_open_amount_minor{{{ADMIN}, currency="EUR"}}) / 100'), "sagas?status=IN_PROGRESS", decimals=0)
    d.stat("Timed out in 1 min", "short", "Orders that were cancelled at their deadline within the last minute: a step did not work. Normally 0.",
           f'sum(increase(order_duration_seconds_count{{{ORDER}, outcome="timed_out"}}[1m]))', "sagas?status=COMPENSATED", ((None, GREEN), (1, RED)), decimals=0,
           alerts=["OrdersTimeOut"])
    d.stat("Next deadline in", "s", "An order in flight is cancelled at its deadline. Normally nearly the whole time that an order has, 60 s by default. To extend: "
           "sagactl saga extend.",
           heard(f"max(saga_next_deadline_seconds{{{ADMIN}}})"), "sagas?status=IN_PROGRESS", ((None, RED), (15, ORANGE), (30, BLUE)), decimals=0, texts={-2: ("none", BLUE)},
           nothing=heard(f"max(saga_overdue{{{ADMIN}}}) * 0 - 2"))
    d.stat("Awaited dead letters", "short", "Dead letters that orders wait for. Normally 0. Others are left to clean up.",
           heard(f"max(dead_letter_awaited{{{ADMIN}}})"), "dlq/groups", ((None, GREEN), (1, RED)), alerts=["DeadLettersPending", "NewFingerprint"])
    d.stat("Books", "short", "Whether orders, stock, money and messages agree, by the last reconciliation. Pending: what is in flight may explain the differences.", f"max(reconciliation_verdict{{{ADMIN}}})",
           "reconciliation?wait=10", ((None, GREEN), (1, BLUE), (2, RED)), alerts=["LedgersUnbalanced"],
           texts={0: ("balanced", GREEN), 1: ("pending", BLUE), 2: ("unbalanced", RED)})

    since = {"id": "unit", "value": "time:D MMM HH:mm:ss"}
    d.table("Firing alerts", "Alerts by severity: a page justifies waking somebody, a ticket waits for working hours. Click one for its runbook and panel.",
            [f'sort(ALERTS_FOR_STATE{{system="saga"}} and ignoring (alertstate) {ALERTS}) * 1000'],
            [("severity", "Severity"), ("alertname", "Alert"), ("service", "Service"), ("Value", "Since"), ("panel", "Panel")], "overview", (10, 7), overrides=[
                column("Severity", {"id": "mappings", "value": [value_mapping({"page": ("page", RED), "ticket": ("ticket", ORANGE)})]},
                       {"id": "custom.cellOptions", "value": {"type": "color-text"}}, {"id": "custom.width", "value": 80}),
                column("Alert", {"id": "links", "value": [
                    {"title": "Runbook", "url": "${runbooks}/${__value.raw}.md", "targetBlank": True},
                    {"title": "Panel", "url": "/d/${__data.fields.Panel}", "targetBlank": True}]}),
                column("Service", {"id": "custom.width", "value": 90}), column("Since", since, {"id": "custom.width", "value": 140}),
                column("Panel", {"id": "custom.hidden", "value": True})])
    d.table("What is broken", "The findings of sagactl status, with the orders that wait and their money. State clean_up: nobody waits any more. sagactl doctor "
            "says what to do.", [
                f"(sort(max by (key, state, text) (finding_start_timestamp_seconds{{{ADMIN}}})) or {UNKNOWN_FINDINGS}) * 1000",
                # A column of its own also when no order waits.
                f"max by (key) (finding_orders{{{ADMIN}}}) or max by (key) (finding_start_timestamp_seconds{{{ADMIN}}}) * 0 - 1",
                f'max by (key) (finding_amount_minor{{{ADMIN}, currency="EUR"}}) / 100'],
            [("state", "State"), ("text", "Problem"), ("Value #A", "Since"), ("Value #B", "Orders"), ("Value #C", "Money")], "overview", (14, 7), join="key", overrides=[
                column("State", {"id": "mappings", "value": [value_mapping({"open": ("open", RED), "clean_up": ("to clean up", GREY), "unknown": ("unknown", GREY)})]},
                       {"id": "custom.cellOptions", "value": {"type": "color-text"}}, {"id": "custom.width", "value": 90}),
                column("Problem", {"id": "custom.cellOptions", "value": {"type": "auto", "wrapText": True}}),
                column("Since", since, {"id": "custom.width", "value": 140}), column("Orders", {"id": "custom.width", "value": 70}, {"id": "mappings", "value": [value_mapping({-1: ("–", GREY)})]}),
                column("Money", {"id": "unit", "value": "currencyEUR"}, {"id": "custom.width", "value": 90})])
    d.graph("Orders placed, confirmed and cancelled", "orders/s", "Of the last minute. Confirmed follows placed within a second. The rest is cancelled, for "
            "the reasons below.", [
                (f"sum(rate(order_placed_total{{{ORDER}}}[1m]))", "placed"),
                (f'sum(rate(order_duration_seconds_count{{{ORDER}, outcome="confirmed"}}[1m]))', "confirmed"),
                (f'sum(rate(order_duration_seconds_count{{{ORDER}, outcome!="confirmed"}}[1m]))', "cancelled")],
            "sagas", trace=None, alerts=["NoOrderConfirmed", "SuccessRateLow"])
    d.graph("Orders in flight by the step that they wait for", "orders", "Also while the service of a step is down. Normally few. A step that grows is the one "
            "that does not work.", [(some(heard(f"max by (step) (saga_waiting{{{ADMIN}}})")), "{{step}}")], "sagas?status=IN_PROGRESS",
            trace=None, alerts=["SagasOverdue"], none="no order waits")
    d.graph("Cancelled orders by reason", "orders/s", "Of the last minute. payment_failed points to the bank, timed_out to a step that does not work.",
            [(some(f'sum by (outcome) (rate(order_duration_seconds_count{{{ORDER}, outcome!="confirmed"}}[1m]))'), "{{outcome}}")],
            "sagas?status=COMPENSATED", trace=None, alerts=["OrdersTimeOut"], none="no order is cancelled")
    d.states("Services, broker, databases and disks", "The state of each, and since when. Down: it does not answer, or a check of /readyz failed. Degraded: it "
             "works, but a check found a problem.", component_queries(), "services",
             alerts=["ServiceDown", "ServiceNotReady", "BrokerUnhealthy", "StoreUnhealthy"])

    d.row("Sagas")
    d.graph("Sagas in flight by status", "orders", "DEAD_LETTERED waits for a dead letter, COMPENSATION_STUCK for an operator.",
            [(some(f"max by (status) (saga_open{{{ADMIN}}})"), "{{status}}")], "sagas?status=STARTED", trace=None, alerts=["CompensationStuck"], none="none in flight")
    d.graph("Overdue sagas and stuck compensations", "orders", "Past the deadline for 30 s and not ended; or money or stock that is not back. Normally 0.", [
        (f"max(saga_overdue{{{ADMIN}}})", "overdue"), (f'max(saga_open{{{ADMIN}, status="COMPENSATION_STUCK"}})', "COMPENSATION_STUCK")],
            "sagas?overdue=true", trace=None, alerts=["SagasOverdue", "CompensationStuck"])
    d.graph("Sagas begun and ended, as admin sees them", "orders/s", "A fact that admin consumes late counts late.", [
        (rate("saga_started_total"), "placed"), (rate("saga_completed_total"), "confirmed"), (rate("saga_cancelled_total"), "cancelled"),
        (rate("saga_compensated_total"), "compensated"), (rate("saga_timed_out_total"), "timed_out"), (rate("saga_compensation_stuck_total"), "COMPENSATION_STUCK")],
            "sagas", trace=None)
    d.quantiles("Time to confirmation or cancellation", "As order measures it. Well below a second under any load.", "order_duration_seconds", "outcome", "sagas", trace=None)
    d.quantiles("Duration of sagas", "With the compensation of cancelled ones.", "saga_duration_seconds", "outcome", "sagas", trace=None)
    d.graph("Age of the oldest order in flight", "s", "Normally milliseconds. The deadline of an order is 60 s by default.",
            [(f"max(saga_oldest_open_age_seconds{{{ADMIN}}})", "age")], "sagas?status=IN_PROGRESS", trace=None)
    d.quantiles("Duration of compensations", "From the cancellation until stock and money are back.", "saga_compensation_duration_seconds", "", "sagas?status=COMPENSATING", trace=None)
    d.row("Money and stock")
    d.graph("Order value", "€/s", "Euros per second. taken_back was confirmed before it was cancelled.",
            [(f'sum by (event) (rate(order_amount_minor_total{{{SAGA}, currency="EUR"}}[1m])) / 100', "{{event}}")], "sagas", trace=None)
    d.graph("Money at the bank", "€/s", "Euros per second that were captured and refunded. Refunds without cancellations are a reason to reconcile.",
            [(f'sum by (event) (rate(payment_amount_minor_total{{{SAGA}, currency="EUR"}}[1m])) / 100', "{{event}}")], "reconciliation?wait=10", trace=None)
    d.graph("Discrepancies of the last reconciliation", "short", "Normally 0.", [(f"max(reconciliation_discrepancies{{{ADMIN}}})", "discrepancies")],
            "reconciliation?wait=10", trace=None, alerts=["LedgersUnbalanced"])
    d.graph("Stock by event", "units/s", "reserved becomes sold or released. put_back was sold and returned.",
            [(f'sum by (event) (rate(stock_unit_total{{{SAGA}, event!="restocked"}}[1m]))', "{{event}}")], "reconciliation?wait=10", trace=None)
    d.graph("Reserved stock", "units", "Neither sold nor released; at most that of the 1,000 oldest reservations.", [(f"max(stock_reserved_units{{{SAGA}}})", "reserved")],
            "sagas?status=IN_PROGRESS", trace=None)
    d.graph("Age of the last reconciliation", "s", "Normally below 15 minutes.", [(f"max(reconciliation_age_seconds{{{ADMIN}}})", "age")],
            "reconciliation?wait=10", trace=None, alerts=["ReconciliationOverdue"])
    return d


def component_queries():
    """State of each service, the broker, the databases and the disks. A service is down if no process of it answers, and degraded if one does
    not; unknown if Prometheus does not find it any more."""
    away = f"by (service) (up{{{SAGA}}} == bool 0)"
    processes = f"(max {away} + min {away})"
    checks = f'max by (service) (readiness_check{{{SAGA}, check!~"broker|publish_stall|store|database|disk"}})'
    unknown = f"(0 * max by (service) (last_over_time(up{{{SAGA}}}[1h])) + {UNKNOWN})"
    queries = [(f"({processes} > 1) or ({checks} > 0) or {processes} or {unknown}", "{{service}}")]
    for name, names in (("broker", "broker|publish_stall"), ("databases", "store|database"), ("disks", "disk")):
        # Who cannot use the broker goes on and is degraded; the broker is down.
        state = "2 * ({} > bool 0)" if name == "broker" else "{}"
        queries.append((state.format(f'max(readiness_check{{{SAGA}, check=~"{names}"}})') + f" or vector({UNKNOWN})", name))
    return queries


def flow():
    d = Dashboard("saga-flow", "Flow", "Each hop of the messages: how many, how many wait, how old the oldest is, and how long a hop takes.")
    d.graph("Messages by step", "messages/s", "Processed messages, commands, task results and due deadlines.",
            [(some(rate("saga_input_total", "step")), "{{step}}")], "services", trace=None, none="nothing is processed")
    d.graph("Messages that wait at the broker", "messages", "Not acknowledged, by consumer. A number that stays is caused by a breaker, a pause or a slow step. A "
            "service that is down reports none: see Orders in flight by the step that they wait for.",
            [(some(f"max by (consumer) (consumer_lag_messages{{{SAGA}}})"), "{{consumer}}")], "services", trace=None, alerts=["ConsumerLag"], none="nothing waits")
    d.graph("Oldest unpublished message", "s", "A line that climbs by one second per second: the broker or the relay does nothing.",
            [(some(f"max by (service) (outbox_oldest_pending_age_seconds{{{SAGA}}})"), "{{service}}")], "outbox", alerts=["OutboxTooOld"], none="all is published")
    d.quantiles("Duration of steps", "From an input to its commit. Normally a few milliseconds.", "step_duration_seconds", "step", "services", trace=None)
    d.graph("Orders in flight by the step that they wait for", "orders", "Also while the service of a step is down.",
            [(some(heard(f"max by (step) (saga_waiting{{{ADMIN}}})")), "{{step}}")], "sagas?status=IN_PROGRESS", trace=None, none="no order waits")
    d.graph("Failures by step", "messages/s", "Retried is repeated by itself; dead_lettered needs a human.",
            [(some('sum by (outcome, step) (rate(saga_input_total{job="saga", outcome=~"retried|dead_lettered"}[1m]))'), "{{outcome}} {{step}}")], "dlq/groups",
            trace=None, alerts=["NewFingerprint"], none="nothing fails")
    d.states("Breakers that are not closed", "Degraded: half-open, a probe decides. Down: open, its messages wait.",
             [(some(f"max by (service, breaker) (breaker_state{{{SAGA}}})"), "{{service}}/{{breaker}}")], "breakers",
             size=(12, 6), alerts=["BreakerOpenTooLong"], none="all breakers are closed")
    d.graph("Calls to the bank and to the receiver of notifications", "calls/s", "answered includes declines. failed: no usable answer; it is repeated with the same key.",
            [(some(rate("task_call_total", "outcome, task")), "{{outcome}} {{task}}")], "services", trace=None, size=(12, 6), alerts=["TaskOpenTooLong"], none="no calls")
    d.row("Outbox and broker")
    d.graph("Messages written and published", "messages/s", "A gap between the lines waits. With written alone the relay has stalled.", [
        (rate("outbox_written_total"), "written"), (rate("outbox_published_total"), "published"), (rate("outbox_rejected_total"), "rejected")], "outbox",
            trace=None, alerts=["RelayStalled"])
    d.graph("Unpublished messages", "messages", "Normally few, for milliseconds.", [(some(f"max by (service) (outbox_pending{{{SAGA}}})"), "{{service}}")], "outbox", none="all is published")
    d.graph("Rejected and blocked messages", "messages", "Normally 0: sagactl outbox retry.", [(some(f"max by (service) (outbox_failed{{{SAGA}}})"), "{{service}}")],
            "outbox", alerts=["MessagesRejectedByBroker"])
    d.quantiles("Duration of publishing", "Until the broker has acknowledged a batch: one sync of its disk.", "outbox_publish_duration_seconds", "service", "outbox")
    d.graph("Messages per batch", "short", "Average. 1 at rest; it grows with the load.",
            [(f'{rate("outbox_publish_messages_sum", "service")} / ({rate("outbox_publish_messages_count", "service")} > 0)', "{{service}}")], "outbox", none="nothing is published")
    d.graph("Redelivered, duplicate and foreign messages", "messages/s", "Redelivered: not acknowledged in time. Duplicate: recognised by the inbox. Foreign: of "
            "another program, and dead-lettered.", [
                (f'{rate("consumer_redelivery_total")}', "redelivered"), (f'sum(rate(saga_input_total{{{SAGA}, outcome="duplicate"}}[1m]))', "duplicate"),
                (f'{rate("message_foreign_total")}', "foreign")], "services", trace=None)
    d.row("Calls and breakers")
    d.quantiles("Duration of calls", "Normally a few milliseconds; the time-out of one call is 5 s.", "task_call_duration_seconds", "task", "services", trace=None)
    d.graph("Open calls", "calls", "Waiting, in flight, or to be repeated.", [(some(f"max by (service) (task_open{{{SAGA}}})"), "{{service}}")], "services",
            alerts=["TaskOpenTooLong"], none="no call is open")
    d.graph("Oldest open call", "s", "A line that climbs by one second per second is a call that nobody answers.",
            [(some(f"max by (service) (task_oldest_open_age_seconds{{{SAGA}}})"), "{{service}}")], "services", alerts=["TaskOpenTooLong"], none="no call is open")
    d.graph("Failed calls by breaker", "calls/s", "These open the breaker at half of at least five calls. After it has opened, only probes count.",
            [(some('sum by (service, breaker) (rate(breaker_calls_total{job="saga", outcome="failure"}[1m]))'), "{{service}}/{{breaker}}")], "breakers", none="no call fails")
    d.graph("Failure ratio before a breaker opens", "percentunit", "At 50 % it opens, and the window begins anew: 0 while it is open.",
            [(some(f"max by (service, breaker) (breaker_failure_ratio{{{SAGA}}})"), "{{service}}/{{breaker}}")], "breakers", none="no call fails")
    d.graph("Calls that breakers did not permit", "calls/s", "There are few, because consumption of the step stops too.",
            [(some(rate("breaker_not_permitted_total", "service, breaker")), "{{service}}/{{breaker}}")], "breakers", none="none")
    d.row("Dead letters and retries")
    d.graph("Dead letters by step", "messages", "Pending. One step: a bug, or a dependency is down. All steps: an invalid message.",
            [(some(f"max by (owner, step) (dead_letter_pending{{{ADMIN}}})"), "{{step}}")], "dlq/groups", trace=None, stacked=True, alerts=["DeadLettersToCleanUp"])
    d.graph("Dead letters pending and being replayed", "messages", "A redrive moves dead letters from PENDING to REPLAYING, and then removes them.", [
        (f'max(dead_letter_open{{{ADMIN}, status="PENDING"}})', "PENDING"), (f'max(dead_letter_open{{{ADMIN}, status="REPLAYING"}})', "REPLAYING"),
        (f"max(dead_letter_awaited{{{ADMIN}}})", "awaited"), (f"sum(max by (service) (dead_letter_unresolved{{{SAGA}}}))", "counted by the services")], "dlq", trace=None)
    d.graph("Waiting retries", "messages", "They are repeated after a delay, and block nothing.", [(some(f"max by (service) (retry_waiting{{{SAGA}}})"), "{{service}}")], "services", none="nothing is retried")
    return d


def machine():
    d = Dashboard("saga-machine", "Machine", "Stores, HTTP, processes and telemetry of each service.")
    d.graph("CPU", "percentunit", "1 is one core in full use.", [(rate("process_cpu_seconds_total", "service"), "{{service}}")], "services")
    d.graph("Memory", "bytes", "Resident. It grows with the load up to a limit and returns; steady growth over hours is a leak.",
            [(f"sum by (service) (process_resident_memory_bytes{{{SAGA}}})", "{{service}}")], "services")
    d.quantiles("Duration of commits", "With waiting for the writer. Normally one or two milliseconds; more is a disk that syncs slowly.",
                "store_commit_duration_seconds", "service", "services", alerts=["StoreUnhealthy"])
    d.graph("HTTP requests by status", "requests/s", "503 of order is load shedding; 429 a client over its limit; 500 a bug.",
            [(some(rate("http_request_total", "service, status")), "{{service}} {{status}}")], "services", none="no requests")
    d.quantiles("Duration of HTTP requests", "By route. With waits that the client asked for (Prefer: wait).", "http_request_duration_seconds", "route", "services", trace=None)
    d.graph("Server errors", "requests/s", "Answers with 5xx. Normally 0.",
            [(some('sum by (service, route, status) (rate(http_request_total{job="saga", status=~"5.."}[1m]))'), "{{service}} {{route}} {{status}}")], "services", none="none")
    d.row("Stores")
    d.graph("Free space for databases", "bytes", "SQLite only. Below 64 MiB order accepts no new orders.", [(f"min by (service) (store_free_bytes{{{SAGA}}})", "{{service}}")],
            "services", log=True)
    d.graph("Write-ahead log", "bytes", "SQLite only. It grows while another process reads the file for long.", [(f"max by (service) (store_log_bytes{{{SAGA}}})", "{{service}}")],
            "services")
    d.graph("Failed transactions", "batches/s", "They could not be stored and were rolled back. Normally 0.", [(some(rate("store_faults_total", "service")), "{{service}}")],
            "services", none="none", alerts=["StoreUnhealthy"])
    d.graph("Inputs per transaction", "short", "Average. 1 at rest, up to 256 under load.",
            [(f'{rate("engine_batch_inputs_sum", "service")} / ({rate("engine_batch_inputs_count", "service")} > 0)', "{{service}}")], "services", none="no transactions")
    d.graph("Inputs that wait for a transaction", "messages", "A high value is a service at its limit.", [(some(f"sum by (service) (engine_queue_inputs{{{SAGA}}})"), "{{service}}")],
            "services", none="none waits")
    d.row("Processes and telemetry")
    d.states("Checks that found a problem", "Of /readyz.", [(some(f"max by (service, check) (readiness_check{{{SAGA}}})"), "{{service}} {{check}}")], "services",
             size=(12, 8), alerts=["ServiceNotReady"], none="all checks are ok")
    d.table("Versions", "More than one version of a service: a release is in progress.", [f"max by (service, version) (build_info{{{SAGA}}})"],
            [("service", "Service"), ("version", "Version")], "services", (4, 8))
    d.graph("Uptime", "s", "A line that repeatedly falls to 0 is a service that crashes.", [(f"min by (service) (time() - process_start_time_seconds{{{SAGA}}})", "{{service}}")],
            "services", alerts=["ServiceDown"])
    d.graph("Open files", "percentunit", "Share of the limit, mostly connections.", [(f"max by (service) (process_open_fds{{{SAGA}}} / process_max_fds{{{SAGA}}})", "{{service}}")], "services")
    d.graph("Clock offset", "s", "Ahead of the broker (negative: behind). Above 2 s a service is degraded.", [(f"max by (service) (clock_offset_seconds{{{SAGA}}})", "{{service}}")],
            "services", least=None)
    d.graph("Lost log lines and spans", "lines/s", "Normally 0. Spans are dropped when the queue is full; failed ones were rejected by the collector.", [
        (some(rate("log_dropped_lines_total", "service")), "{{service}} log lines"),
        (some('sum by (outcome) (rate(trace_span_total{job="saga", outcome!="exported"}[1m]))'), "{{outcome}} spans")], "services", trace=None, none="none")
    return d


def with_panels(rules, dashboards):
    """Rules, or their tests, with the panel of each alert: the first that names it."""
    panels = {}
    for dashboard in dashboards:
        for panel in dashboard.all_panels():
            for alert in re.findall(r"docs/runbooks/(\w+)\.md", panel["description"]):
                panels.setdefault(alert, f"{dashboard.uid}?viewPanel={panel['id']}")
    def named(rule):
        if rule[1] not in panels:
            sys.exit(f"no panel names the alert {rule[1]}")
        panel = panels[rule[1]]
        return re.sub(r"/d/[^'\n]+", f"/d/{panel}", re.sub(r'panel: "[^"]*"', f'panel: "{panel}"', rule[0]))
    return re.sub(r"alert(?:name)?: (\w+)\n.*?(?=\n\n|\n {6}- |\Z)", named, rules, flags=re.S)


def main():
    check, wrong = sys.argv[1:] == ["--check"], []
    dashboards = [overview(), flow(), machine()]
    wanted = {FOLDER / "dashboards" / f"{d.uid}.json": json.dumps(d.json(), indent=2, ensure_ascii=False) + "\n" for d in dashboards}
    for unknown in set((FOLDER / "dashboards").glob("*.json")) - wanted.keys():
        wrong.append(f"{unknown.name} is not generated by grafana/dashboards.py: delete it")
    for path in [*FOLDER.glob("prometheus/rules/*.yml"), *FOLDER.glob("prometheus/tests/*.yml")]:
        wanted[path] = with_panels(path.read_text(encoding="utf-8"), dashboards)
    for path, text in wanted.items():
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            wrong.append(f"{path.name} is out of date: run grafana/dashboards.py")
        elif not check:
            path.write_text(text, encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
