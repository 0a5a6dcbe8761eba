#!/usr/bin/env python3
"""Writes the dashboards: grafana/dashboards/*.json. With --check it writes nothing, and fails where they are not as they
would be written.

What the replicas of a service share, its database and its consumers at the broker, each of them tells: of such a gauge the
highest is taken (max). What each process counts is added (sum).

What a panel shows stands below as one call: title, unit, what is normal and what to do when it is not, and the queries.
What panels look like stands in the functions above. scripts/check-dashboards.sh runs every query against a live system.
"""

import json
import sys
from pathlib import Path
from urllib.parse import quote

FOLDER = Path(__file__).parent / "dashboards"
PROMETHEUS = {"type": "prometheus", "uid": "prometheus"}
# One colour for one meaning, on every dashboard.
GREEN, BLUE, YELLOW, ORANGE, RED, PURPLE = "green", "blue", "yellow", "orange", "red", "purple"
COLOURS = {
    GREEN: "completed|confirmed|done|success|answered|exported|published|captured|sold|put_back|2..",
    BLUE: "started|placed|reserved|written|duplicate|IN_PROGRESS|ignored|3..",
    YELLOW: "compensated|cancelled|refunded|taken_back|released|rejected|REPLAYING|COMPENSATING|customer_request|out_of_stock|4..",
    ORANGE: "retried|PARKED|timed_out|TIMED_OUT|dropped|refused|payment_failed",
    RED: "failed|failure|FAILED|dead|PENDING|5..",
}
NOTHING = "none"
# Those of this system: a cluster has others, one of which may fire for ever to show that alerts come through.
ALERTS = 'ALERTS{alertstate="firing", system="saga"}'


def trace_link(label):
    """Explore, with the traces of the service whose line was clicked, in the time that is shown."""
    query = '{resource.service.name="${__field.labels.%s}"}' % label if label else "{}"
    panes = {"t": {"datasource": "tempo", "range": {"from": "${__from}", "to": "${__to}"}, "queries": [
        {"refId": "A", "datasource": {"type": "tempo", "uid": "tempo"}, "queryType": "traceql", "query": query}]}}
    url = "/explore?schemaVersion=1&orgId=1&panes=" + quote(json.dumps(panes, separators=(",", ":")), safe="${}_.:,[]")
    return {"title": "Traces of this time (Tempo)", "url": url, "targetBlank": True}


def rows_link(path):
    return {"title": "The rows behind it (admin's API)", "url": "${admin}/api/admin/" + path, "targetBlank": True}


class Dashboard:
    def __init__(self, uid, title, about, by_service=False):
        self.uid, self.title, self.about, self.by_service = uid, title, about, by_service
        self.panels, self.x, self.y, self.height = [], 0, 0, 0

    def row(self, title):
        self._break()
        self.panels.append({"type": "row", "title": title, "collapsed": False, "panels": [],
                            "gridPos": {"h": 1, "w": 24, "x": 0, "y": self.y}})
        self.y += 1

    def _break(self):
        self.x, self.y, self.height = 0, self.y + self.height, 0

    def _add(self, kind, title, unit, about, queries, width, height, rows, trace, options, runbook=None, defaults=None,
             overrides=(), normally_empty=False, instant=False, form="time_series"):
        if self.x + width > 24:
            self._break()
        if runbook:
            about += f" Runbook: docs/runbooks/{runbook}.md."
        targets = [{"datasource": PROMETHEUS, "editorMode": "code", "expr": expr, "legendFormat": legend, "refId": chr(65 + n),
                    "range": not instant, "instant": instant, "format": form,
                    # Points of a histogram that name the trace they were measured in.
                    "exemplar": "_bucket" in expr and not instant}
                   for n, (expr, legend) in enumerate(queries)]
        field = {"unit": unit, "links": [trace_link(trace), rows_link(rows)], **(defaults or {})}
        if normally_empty:
            field["noValue"] = NOTHING
        self.panels.append({
            "type": kind, "title": title, "description": about, "datasource": PROMETHEUS, "targets": targets,
            "gridPos": {"h": height, "w": width, "x": self.x, "y": self.y},
            "fieldConfig": {"defaults": field, "overrides": list(overrides)}, "options": options})
        self.x, self.height = self.x + width, max(self.height, height)

    def stat(self, title, unit, about, expr, rows, good=None, bad_above=None, bad_below=None, warn=False, mappings=(), **more):
        """A number that is green while nobody is needed. `good`: a colour without judgement."""
        if bad_below is not None:
            steps = [{"color": RED, "value": None}, {"color": GREEN, "value": bad_below}]
        elif bad_above is not None:
            steps = [{"color": GREEN, "value": None}, {"color": ORANGE if warn else RED, "value": bad_above}]
        else:
            steps = [{"color": good or BLUE, "value": None}]
        self._add("stat", title, unit, about, [(expr, title)], 4, 4, rows, more.pop("trace", None), {
            "colorMode": "background", "graphMode": "area", "justifyMode": "center", "textMode": "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
            defaults={"thresholds": {"mode": "absolute", "steps": steps}, "color": {"mode": "thresholds"},
                      "mappings": list(mappings), "decimals": more.pop("decimals", None)}, **more)

    def graph(self, title, unit, about, queries, rows, trace="service", stacked=False, width=12, least=0, most=None, **more):
        custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 40 if stacked else 10, "showPoints": "never",
                  "spanNulls": False, "stacking": {"mode": "normal" if stacked else "none", "group": "A"}}
        defaults = {"custom": custom, "color": {"mode": "palette-classic"}}
        if least is not None:
            defaults["min"] = least
        if most is not None:
            defaults["max"] = most
        overrides = [{"matcher": {"id": "byRegexp", "options": f"/^(.*[ ,])?({names})$/"},
                      "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
                     for colour, names in COLOURS.items()]
        self._add("timeseries", title, unit, about, queries, width, 8, rows, trace, {
            "legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"], "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"}}, defaults=defaults, overrides=overrides, **more)

    def quantiles(self, title, about, metric, by, rows, trace="service", filters='job="saga"', width=12, **more):
        """How long it takes: half of them, and nineteen of twenty, by what."""
        labels = ", ".join(["le", *by])
        legend = " ".join("{{%s}}" % label for label in by)
        queries = [(f"histogram_quantile({q}, sum by ({labels}) (rate({metric}_bucket{{{filters}}}[$__rate_interval])))",
                    f"{legend} p{int(q * 100)}".strip()) for q in (0.5, 0.95)]
        self.graph(title, "s", about, queries, rows, trace=trace, width=width, normally_empty=True, **more)

    def heatmap(self, title, unit, about, expr, rows, trace=None, width=12):
        self._add("heatmap", title, unit, about, [(expr, "{{le}}")], width, 8, rows, trace, {
            "calculate": False, "cellGap": 1, "yAxis": {"unit": unit}, "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
            "exemplars": {"color": "rgba(255,0,255,0.7)"}, "legend": {"show": True}, "tooltip": {"mode": "single", "yHistogram": False}},
            form="heatmap")

    def states(self, title, about, queries, rows, names, trace="service", width=24, **more):
        """Bands of colour over time: 0, 1, 2 by name."""
        mapping = {"type": "value", "options": {
            str(value): {"text": name, "color": colour, "index": value}
            for value, (name, colour) in enumerate(zip(names, (GREEN, YELLOW, RED)))}}
        self._add("state-timeline", title, "short", about, queries, width, 8, rows, trace, {
            "mergeValues": True, "showValue": "never", "rowHeight": 0.8, "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "single"}}, defaults={"mappings": [mapping], "color": {"mode": "thresholds"},
            "custom": {"fillOpacity": 80, "lineWidth": 0}, "thresholds": {"mode": "absolute", "steps": [
                {"color": GREEN, "value": None}, {"color": YELLOW, "value": 1}, {"color": RED, "value": 2}]}}, **more)

    def table(self, title, unit, about, expr, rows, hidden=(), trace="exported_service", width=12, **more):
        hide = [{"matcher": {"id": "byName", "options": name}, "properties": [{"id": "custom.hidden", "value": True}]}
                for name in ("Time", "__name__", "job", "instance", *hidden)]
        self._add("table", title, unit, about, [(expr, "")], width, 8, rows, trace, {"showHeader": True, "cellHeight": "sm"},
                  overrides=hide, instant=True, form="table", **more)

    def json(self):
        self._break()
        for number, panel in enumerate(self.panels, 1):
            panel["id"] = number
        variables = [{"type": "textbox", "name": "admin", "label": "Admin's address", "query": "http://localhost:8080",
                      "current": {"text": "http://localhost:8080", "value": "http://localhost:8080"},
                      "description": "Where the links to the rows behind a panel lead"}]
        if self.by_service:
            variables.append({"type": "query", "name": "service", "label": "Service", "datasource": PROMETHEUS,
                              "query": {"query": 'label_values(up{job="saga"}, service)', "refId": "service"}, "refresh": 2,
                              "includeAll": True, "allValue": ".*", "multi": True,
                              "current": {"text": ["All"], "value": ["$__all"]}, "sort": 1})
        alerts = {"name": "Alerts", "datasource": PROMETHEUS, "enable": True, "iconColor": RED, "titleFormat": "{{alertname}}",
                  "textFormat": "{{service}}", "expr": ALERTS, "step": "15s"}
        return {
            "uid": self.uid, "title": self.title, "description": self.about, "tags": ["saga"], "schemaVersion": 39, "version": 1,
            "editable": True, "graphTooltip": 1, "refresh": "5s", "timezone": "browser", "time": {"from": "now-15m", "to": "now"},
            "templating": {"list": variables}, "annotations": {"list": [alerts]}, "panels": self.panels,
            "links": [{"type": "dashboards", "tags": ["saga"], "asDropdown": False, "keepTime": True, "includeVars": True,
                       "title": "", "icon": "external link", "url": ""},
                      {"type": "link", "title": "Is somebody needed? (admin)", "url": "${admin}/api/admin/overview",
                       "icon": "info", "targetBlank": True}]}


# What counts as not wanted by anybody: an empty shelf, a customer and an operator are no failures of the shop.
UNWANTED = 'saga_cancelled_total{job="saga", reason!~"customer_request|operator|out_of_stock"}'
BOOKS = [{"type": "value", "options": {
    "0": {"text": "BALANCED", "color": GREEN, "index": 0}, "1": {"text": "IN FLIGHT", "color": YELLOW, "index": 1},
    "2": {"text": "UNBALANCED", "color": RED, "index": 2}}}]
FIRING = ("Alerts that fire. 0 is normal; each has a runbook of its name in docs/runbooks/, and sagactl doctor says what to do.")


def sagas():
    d = Dashboard("saga-business", "Sagas", "The business: orders that begin, succeed and are undone, why, for how much money, and how fast.")
    d.row("Is a human needed?")
    d.stat("Alerts", "short", FIRING, f'count({ALERTS}) or vector(0)', "overview", bad_above=1)
    d.stat("Success rate", "percentunit", "Orders confirmed, of those that ended in the last ten minutes otherwise than a customer, an "
           "operator or an empty shelf wanted. Normally above 95 %.",
           f'sum(increase(saga_completed_total{{job="saga"}}[10m])) / (sum(increase(saga_completed_total{{job="saga"}}[10m])) + (sum(increase({UNWANTED}[10m])) or vector(0)))',
           "sagas?status=COMPENSATED", bad_below=0.9, runbook="SuccessRateLow", normally_empty=True, decimals=1)
    d.stat("Failed", "short", "Sagas that cannot be undone without a human: money or stock is not where it belongs. Normally 0.",
           'max(saga_open{job="saga", status="FAILED"})', "sagas?status=FAILED", bad_above=1, runbook="CompensationFailing")
    d.stat("Overdue", "short", "Sagas that should have ended more than half a minute ago. Normally 0.", 'max(saga_overdue{job="saga"})',
           "sagas?overdue=true", bad_above=1, runbook="SagasOverdue")
    d.stat("Dead letters", "short", "Messages and calls that wait for a human. Normally 0.", 'max(dead_letter_count{job="saga", status="PENDING"})',
           "dlq?status=PENDING", bad_above=1, runbook="DeadLettersPending")
    d.stat("Books", "short", "What the last audit came to. IN FLIGHT is normal under load; UNBALANCED never is.", 'max(books_verdict{job="saga"})',
           "audit?wait=10", mappings=BOOKS, bad_above=2, runbook="LedgersUnbalanced", normally_empty=True)

    d.row("What happens")
    d.graph("Sagas begun and ended", "ops", "Orders per second: placed, confirmed, undone. The lines run together; a gap between started "
            "and the others is work under way, and red needs a human.",
            [('sum(rate(saga_started_total{job="saga"}[$__rate_interval]))', "started"),
             ('sum(rate(saga_completed_total{job="saga"}[$__rate_interval]))', "completed"),
             ('sum(rate(saga_compensated_total{job="saga"}[$__rate_interval]))', "compensated"),
             ('sum(rate(saga_failed_total{job="saga"}[$__rate_interval]))', "failed")], "sagas", trace=None, runbook="SuccessRateLow")
    d.graph("Cancelled, by reason", "ops", "Why orders do not come to their good end. out_of_stock and customer_request are business; "
            "payment_failed points to the bank, timed_out to a step that is late.",
            [('sum by (reason) (rate(saga_cancelled_total{job="saga"}[$__rate_interval]))', "{{reason}}"),
             ('sum(rate(saga_timed_out_total{job="saga"}[$__rate_interval]))', "past the deadline")],
            "sagas?status=COMPENSATED", trace=None, runbook="SuccessRateLow")
    d.graph("Sagas under way, by status", "short", "What has not ended. Normally a few, for milliseconds; PARKED waits behind a dead "
            "letter, FAILED for a human. What grows here is held up.",
            [('max by (status) (saga_open{job="saga"})', "{{status}}"), ('max(saga_overdue{job="saga"})', "overdue")],
            "sagas?status=STARTED", trace=None, runbook="SagasOverdue")
    d.graph("Undone, by reason", "ops", "Sagas all of whose parts are undone: stock and money are back. It follows the cancellations "
            "within seconds; when it does not, somebody does not undo their part.",
            [('sum by (reason) (rate(saga_compensated_total{job="saga"}[$__rate_interval]))', "{{reason}}")],
            "sagas?status=COMPENSATING", trace=None, stacked=True, runbook="CompensationFailing")

    d.row("Money and stock")
    d.graph("Money of orders", "currencyEUR", "Euros per second, by what happened to the orders: placed becomes confirmed or cancelled; taken_back "
            "was confirmed before it was cancelled.",
            [('sum by (event) (rate(order_amount_minor_total{job="saga", currency="EUR"}[$__rate_interval])) / 100', "{{event}}")],
            "sagas", trace=None)
    d.graph("Money under way", "currencyEUR", "Worth of the sagas that have not ended, those that undo included, as admin sees them every few seconds; of more "
            "than 1,000, that of the 1,000 oldest. It comes and goes with the load; what stays belongs to sagas that do not end.",
            [('max(saga_open_amount_minor{job="saga", currency="EUR"}) / 100', "placed")],
            "sagas?status=IN_PROGRESS", trace=None, runbook="SagasOverdue")
    d.graph("Money at the bank", "currencyEUR", "Euros per second that were taken from cards and given back. Refunds without "
            "cancellations, or cancellations without refunds, are a reason to audit.",
            [('sum by (event) (rate(payment_amount_minor_total{job="saga", currency="EUR"}[$__rate_interval])) / 100', "{{event}}")],
            "audit?wait=10", trace=None, runbook="LedgersUnbalanced")
    d.graph("Stock", "ops", "Units per second, by what happened to them: reserved becomes sold or released; put_back was sold and came back.",
            [('sum by (event) (rate(stock_unit_total{job="saga"}[$__rate_interval]))', "{{event}}")], "audit?wait=10", trace=None)
    d.graph("Stock under way", "short", "Units that are held for orders, neither sold nor released, as inventory sees its reservations every 5 s; of more "
            "than 1,000, those of the 1,000 oldest. Normally few, for milliseconds; what stays is held by a saga that does not end.",
            [('max(stock_held_units{job="saga"})', "reserved")],
            "sagas?status=IN_PROGRESS", trace=None, runbook="SagasOverdue")
    d.graph("The last audit", "short", "Discrepancies that it found (normally 0), and how many minutes ago it was (normally below 15).",
            [('max(books_discrepancies{job="saga"})', "discrepancies failed"), ('max(books_audit_age_seconds{job="saga"}) / 60', "minutes ago")],
            "audit?wait=10", trace=None, runbook="ReconciliationOverdue", normally_empty=True)

    d.row("How long")
    d.graph("Orders placed and ended", "ops", "Per second, as order has them. Placed above ended for long: what order takes piles up before somebody "
            "else, until it refuses what is too much.",
            [('sum(rate(order_placed_total{job="saga"}[$__rate_interval]))', "placed"),
             ('sum(rate(order_duration_seconds_count{job="saga"}[$__rate_interval]))', "ended")],
            "sagas?status=IN_PROGRESS", trace=None, runbook="SagasOverdue")
    d.quantiles("From the order to its confirmation or cancellation", "As order has it, before anything is undone. What is taken is to stay well below a "
                "second, whatever the load.", "order_duration_seconds", ["outcome"], "sagas", trace=None, runbook="SagasOverdue")
    d.quantiles("From the order to its end", "Half of the sagas, and nineteen of twenty, end within this time. Normally well below "
                "a second; a minute is the deadline.", "saga_duration_seconds", ["outcome"], "sagas", trace=None, runbook="SagasOverdue")
    d.heatmap("Confirmed orders, by how long they took", "s", "Each column is a moment, each row a duration: one narrow band is normal, a "
              "second band is a retry or an outage. Points are traces.",
              'sum by (le) (increase(saga_duration_seconds_bucket{job="saga", outcome="completed"}[$__rate_interval]))', "sagas?status=COMPLETED")
    d.quantiles("From the cancellation until all is undone", "Stock and money are back after this time. Normally below a second; with the "
                "bank away, as long as that lasts.", "saga_compensation_duration_seconds", [], "sagas?status=COMPENSATING",
                trace=None, runbook="CompensationFailing")
    return d


def outbox():
    d = Dashboard("saga-outbox", "Outbox and broker", "What is promised and published, what waits at the broker, and whether it is there.", by_service=True)
    here = 'job="saga", service=~"$service"'
    d.row("Is a human needed?")
    d.stat("Oldest that waits", "s", "Age of the oldest message that is not published. Normally milliseconds; above a minute a service is "
           "degraded, above two new orders are refused.", f'max(outbox_oldest_pending_age_seconds{{{here}}})', "outbox", bad_above=60, runbook="OutboxTooOld")
    d.stat("To be published", "short", "Messages in all outboxes. A few under load; what grows waits for the broker.", f'sum(max by (service) (outbox_pending{{{here}}}))',
           "outbox", bad_above=10000, warn=True, runbook="RelayStalled")
    d.stat("Refused and held", "short", "Messages that the broker refused, and those of their sagas behind them. Normally 0: sagactl outbox retry.",
           f'sum(max by (service) (outbox_failed{{{here}}}))', "outbox", bad_above=1, runbook="MessagesRejectedByBroker")
    d.stat("Longest queue", "short", "What waits at the broker for the consumer that has most. Above a thousand for minutes it is held up.",
           f'max(consumer_lag_messages{{{here}}})', "services", bad_above=1000, runbook="ConsumerLag")
    d.stat("Services without a broker", "short", "Those that are not connected, or whose messages the broker does not take. Normally 0.",
           f'sum(max by (service) (readiness_check{{{here}, check=~"broker|publishing"}}) > bool 0)', "services", bad_above=1, runbook="BrokerUnhealthy")
    d.stat("Messages of strangers", "short", "Parked in the last hour, as nobody of this system sent them. Normally 0: somebody writes to the streams.",
           f'sum(increase(message_foreign_total{{{here}}}[1h]))', "dlq?status=PENDING", bad_above=1, warn=True, runbook="DeadLettersPending", decimals=0)
    d.row("Outbox")
    d.graph("Written and published", "ops", "Messages per second that were promised, and that the broker has taken. The lines run together; a "
            "gap is what waits, and with written alone the relay is silent.",
            [(f'sum(rate(outbox_written_total{{{here}}}[$__rate_interval]))', "written"),
             (f'sum(rate(outbox_published_total{{{here}}}[$__rate_interval]))', "published"),
             (f'sum(rate(outbox_refused_total{{{here}}}[$__rate_interval]))', "refused")], "outbox", trace=None, runbook="RelayStalled")
    d.graph("Published, by service", "ops", "Messages per second. A service that stays at 0 while others work has nothing to say, or a relay that is silent.",
            [(f'sum by (service) (rate(outbox_published_total{{{here}}}[$__rate_interval]))', "{{service}}")], "outbox", runbook="RelayStalled")
    d.graph("Waiting, by service", "short", "Messages in the outbox. Normally few, and gone in milliseconds.",
            [(f'max by (service) (outbox_pending{{{here}}})', "{{service}}")], "outbox", runbook="OutboxTooOld")
    d.graph("Age of the oldest that waits", "s", "A line that climbs by a second each second is a broker, or a relay, that does nothing.",
            [(f'max by (service) (outbox_oldest_pending_age_seconds{{{here}}})', "{{service}}")], "outbox", runbook="OutboxTooOld")
    d.quantiles("Until the broker has acknowledged a batch", "Normally a few milliseconds: one sync of the broker's disk.",
                "outbox_publish_duration_seconds", ["service"], "outbox", filters=here, runbook="BrokerUnhealthy")
    d.graph("Messages in a batch", "short", "On average. 1 at rest; it grows with the load, and that is what keeps up.",
            [(f'sum by (service) (rate(outbox_publish_messages_sum{{{here}}}[$__rate_interval])) / sum by (service) (rate(outbox_publish_messages_count{{{here}}}[$__rate_interval]))', "{{service}}")],
            "outbox", normally_empty=True)
    d.row("Broker")
    d.graph("Waiting at the broker, by consumer", "short", "Messages that are not acknowledged. Bursts are normal; what stays or grows is held "
            "up by a breaker, a pause, or a step that is too slow.",
            [(f'max by (consumer) (consumer_lag_messages{{{here}}})', "{{consumer}}")], "services", trace=None, runbook="ConsumerLag")
    d.graph("Delivered again, by consumer", "ops", "The broker had not heard of them in time. Normally 0, but for restarts; the inbox knows those that were handled.",
            [(f'sum by (consumer) (rate(consumer_redelivery_total{{{here}}}[$__rate_interval]))', "{{consumer}}")], "services", trace=None, runbook="ConsumerLag")
    d.graph("Duplicates that an inbox knew", "ops", "Messages that came again and changed nothing. They are no failure: each is one that would have been handled twice.",
            [(f'sum by (step) (rate(saga_input_total{{{here}, outcome="duplicate"}}[$__rate_interval]))', "{{step}}")], "services", trace=None, normally_empty=True)
    d.graph("Messages of strangers, by step", "ops", "What nobody of this system sent is parked as a dead letter of origin foreign. Normally 0.",
            [(f'sum by (step) (rate(message_foreign_total{{{here}}}[$__rate_interval]))', "{{step}}")], "dlq?status=PENDING", trace=None,
            runbook="DeadLettersPending", normally_empty=True)
    return d


def failures():
    d = Dashboard("saga-failures", "Failures and dead letters", "What failed: what is tried again, what is parked, of which causes.", by_service=False)
    d.row("Is a human needed?")
    d.stat("Alerts", "short", FIRING, f'count({ALERTS}) or vector(0)', "overview", bad_above=1)
    d.stat("Dead letters", "short", "Those that wait for a human. Normally 0.", 'max(dead_letter_count{job="saga", status="PENDING"})',
           "dlq?status=PENDING", bad_above=1, runbook="DeadLettersPending")
    d.stat("Being replayed", "short", "Dead letters that were handed back, and whose outcome is not known yet.",
           'max(dead_letter_count{job="saga", status="REPLAYING"})', "dlq?status=REPLAYING")
    d.stat("New causes", "short", "Fingerprints that were not seen before, in the last quarter of an hour. Normally 0; after a release, a reason to go back.",
           'max(increase(dead_letter_fingerprint_total{job="saga"}[15m]))', "dlq/groups", bad_above=0.5, warn=True, runbook="NewFingerprint", decimals=0)
    d.stat("Sagas that fail", "percentunit", "Of those that ended in ten minutes. Normally 0; above one in a hundred it is no accident.",
           'sum(increase(saga_failed_total{job="saga"}[10m])) / (sum(increase(saga_failed_total{job="saga"}[10m])) + '
           'sum(increase(saga_completed_total{job="saga"}[10m])) + (sum(increase(saga_compensated_total{job="saga"}[10m])) or vector(0)))',
           "sagas?status=FAILED", bad_above=0.01, runbook="SagaFailureRate", normally_empty=True, decimals=2)
    d.stat("Waiting for another try", "short", "Messages that failed for a while and come back by themselves. Normally 0; many of them are an outage.",
           'sum(max by (service) (retry_waiting{job="saga"}))', "services", bad_above=100, warn=True, runbook="BreakerOpenTooLong")
    d.row("Dead letters")
    d.graph("By status", "short", "PENDING waits for a human, REPLAYING was handed back. A redrive turns the one into the other, and both into nothing.",
            [('max by (status) (dead_letter_count{job="saga"})', "{{status}}")], "dlq", trace=None, stacked=True, runbook="DeadLettersPending")
    d.graph("Waiting, by step", "short", "Where they failed. One step: a bug, or what it needs is away. All steps: something that is no message.",
            [('max by (exported_service, step) (dead_letter_pending{job="saga"})', "{{exported_service}} {{step}}")], "dlq/groups", trace="exported_service",
            stacked=True, runbook="DeadLettersPending", normally_empty=True)
    d.table("The five largest groups of one cause", "short", "Rank, service, step and how many: begin with the first. sagactl dlq groups has the causes in words.",
            'sort_desc(max by (rank, exported_service, step) (dead_letter_group_size{job="saga"}))', "dlq/groups", runbook="DeadLettersPending", normally_empty=True)
    d.graph("At each service", "short", "The same, as each service counts its own: it is there also when admin is not, or is behind.",
            [('max by (service) (dead_letter_unresolved{job="saga"})', "{{service}}")], "dlq/count", runbook="DeadLettersPending")
    d.row("What failed")
    d.graph("Inputs, by outcome", "ops", "What became of everything that was taken in. done is work, duplicate and rejected are no failures; retried "
            "comes back by itself, dead waits for a human.",
            [('sum by (outcome) (rate(saga_input_total{job="saga"}[$__rate_interval]))', "{{outcome}}")], "services", trace=None)
    d.graph("Failures, by step", "ops", "Inputs that are tried again or parked. Normally 0.",
            [('sum by (step, outcome) (rate(saga_input_total{job="saga", outcome=~"retried|dead"}[$__rate_interval]))', "{{step}} {{outcome}}")],
            "services", trace=None, runbook="NewFingerprint", normally_empty=True)
    d.graph("Waiting for another try, by service", "short", "They come back after a backoff, and hold up nothing.",
            [('max by (service) (retry_waiting{job="saga"})', "{{service}}")], "services")
    d.graph("New causes, and sagas that came to need a human", "short", "In each five minutes. Both normally 0.",
            [('max(increase(dead_letter_fingerprint_total{job="saga"}[5m]))', "new causes"),
             ('sum(increase(saga_failed_total{job="saga"}[5m]))', "sagas failed")], "dlq/groups", trace=None, runbook="NewFingerprint")
    return d


def resilience():
    d = Dashboard("saga-resilience", "Resilience", "What shields the system: breakers, calls to the outside, retries.", by_service=True)
    here = 'job="saga", service=~"$service"'
    d.row("Is a human needed?")
    d.stat("Breakers that are open", "short", "Normally 0. An open one holds back what needs what is away: nothing is lost, deadlines go on.",
           f'sum(max by (service, breaker) (breaker_state{{{here}}}) == bool 2)', "breakers", bad_above=1, runbook="BreakerOpenTooLong")
    d.stat("Oldest call", "s", "How long the oldest call to the bank, or of admin's to the receiver of notices, has been open. Normally milliseconds; above 90 s nobody answers.",
           f'max(task_oldest_open_age_seconds{{{here}}})', "services", bad_above=90, runbook="TaskOpenTooLong")
    d.stat("Open calls", "short", "Calls to the outside that are not settled: waiting, under way, or to be tried again.",
           f'sum(max by (service) (task_open{{{here}}}))', "services", bad_above=1000, warn=True, runbook="TaskOpenTooLong")
    d.stat("Calls that fail", "percentunit", "Of the calls to the outside in the last five minutes. A refusal by the bank is an answer, and no failure.",
           f'sum(increase(task_call_total{{{here}, outcome="failed"}}[5m])) / sum(increase(task_call_total{{{here}}}[5m]))', "breakers",
           bad_above=0.1, warn=True, runbook="BreakerOpenTooLong", normally_empty=True)
    d.stat("Worst breaker", "percentunit", "The failed part of the calls in the window of the breaker that fails most. At 50 % it opens.",
           f'max(breaker_failure_ratio{{{here}}})', "breakers", bad_above=0.5, runbook="BreakerOpenTooLong")
    d.stat("Refused calls", "ops", "Calls per second that breakers did not permit: load that the other side was spared.",
           f'sum(rate(breaker_not_permitted_total{{{here}}}[$__rate_interval]))', "breakers")
    d.row("Breakers")
    d.states("State", "Each band is a breaker: of a step, or of what is called. Back and forth between half-open and open is an outage that lasts.",
             [(f'max by (service, breaker) (breaker_state{{{here}}})', "{{service}} {{breaker}}")], "breakers", ["closed", "half-open", "open"], runbook="BreakerOpenTooLong")
    d.graph("Failed part of the window", "percentunit", "At 50 % of at least five calls it opens. A business no counts as nothing.",
            [(f'max by (service, breaker) (breaker_failure_ratio{{{here}}})', "{{service}} {{breaker}}")], "breakers", most=1, runbook="BreakerOpenTooLong")
    d.graph("Calls that breakers recorded, by outcome", "ops", "success and failure count; ignored says nothing of the other side (a refusal, a cancelled call).",
            [(f'sum by (outcome) (rate(breaker_calls_total{{{here}}}[$__rate_interval]))', "{{outcome}}")], "breakers", trace=None)
    d.graph("Calls not permitted, by breaker", "ops", "While a breaker is open. The pull of its step is stopped as well, so that there are few.",
            [(f'sum by (service, breaker) (rate(breaker_not_permitted_total{{{here}}}[$__rate_interval]))', "{{service}} {{breaker}}")], "breakers", runbook="BreakerOpenTooLong")
    d.graph("Failures of calls, by breaker", "ops", "Whose other side fails, and how often: this is what opens the breaker.",
            [(f'sum by (service, breaker) (rate(breaker_calls_total{{{here}, outcome="failure"}}[$__rate_interval]))', "{{service}} {{breaker}}")],
            "breakers", runbook="BreakerOpenTooLong")
    d.row("Calls to the outside")
    d.graph("Calls, by kind and outcome", "ops", "answered: also with a no. failed: no answer, or none that says what became of it; it is repeated under the same key.",
            [(f'sum by (task, outcome) (rate(task_call_total{{{here}}}[$__rate_interval]))', "{{task}} {{outcome}}")], "services", trace=None,
            runbook="TaskOpenTooLong", normally_empty=True)
    d.quantiles("Time of a call", "Normally a few milliseconds; 5 s is the limit of one call.", "task_call_duration_seconds", ["task"], "services",
                trace=None, filters=here, runbook="TaskOpenTooLong")
    d.graph("Open calls", "short", "Those that wait, are under way, or are to be tried again. What grows waits for the bank.",
            [(f'max by (service) (task_open{{{here}}})', "{{service}}")], "services", runbook="TaskOpenTooLong")
    d.graph("Age of the oldest open call", "s", "A line that climbs by a second each second is a call that nobody answers.",
            [(f'max by (service) (task_oldest_open_age_seconds{{{here}}})', "{{service}}")], "services", runbook="TaskOpenTooLong")
    return d


def services():
    d = Dashboard("saga-services", "Services", "Each service as a process: is it there, is it ready, how fast, how much does it take.", by_service=True)
    here = 'job="saga", service=~"$service"'
    d.row("Is a human needed?")
    d.stat("Services that answer", "short", "Of five. One that is missing: sagactl start NAME.", f'sum(max by (service) (up{{{here}}}))', "services", good=GREEN, runbook="ServiceDown")
    d.stat("Services that do not", "short", "Of all five, also those that Prometheus does not find. Normally 0.",
           '5 - (count(count by (service) (up{job="saga"} == 1)) or vector(0))', "services", bad_above=1, runbook="ServiceDown")
    d.stat("Checks that failed", "short", "Checks of /readyz at 2: the service does not take what it promises to take. Normally 0.",
           f'sum(readiness_check{{{here}}} == bool 2)', "services", bad_above=1, runbook="ServiceNotReady")
    d.stat("What was not stored", "short", "Batches in the last hour that could not be stored, and were taken back whole. Normally 0: the disk.",
           f'sum(increase(store_faults_total{{{here}}}[1h]))', "services", bad_above=1, runbook="StoreUnhealthy", decimals=0)
    d.stat("Worst clock", "s", "How far a machine's clock is from the broker's, whose time all go by. Above 2 s a service is degraded.",
           f'max(abs(clock_offset_seconds{{{here}}}))', "services", bad_above=2, warn=True)
    d.stat("Lost lines of the log", "short", "In the last hour: the log did not keep up, and the service went on. Normally 0.",
           f'sum(increase(log_lost_lines_total{{{here}}}[1h]))', "services", bad_above=1, warn=True, decimals=0)
    d.row("Is it there, is it ready?")
    d.states("Readiness, check by check", "What /readyz says: green ok; yellow degraded, it keeps its promises; red failed, it does not take what it is there for.",
             [(f'max by (service, check) (readiness_check{{{here}}})', "{{service}} {{check}}")], "services", ["ok", "degraded", "failed"], runbook="ServiceNotReady")
    d.table("What runs", "short", "Versions. More than one of a service is a release under way.", f'max by (service, version) (build_info{{{here}}})', "services",
            trace="service", hidden=("Value",), width=8)
    d.graph("Up", "short", "1 while Prometheus gets an answer. Steps down are restarts or crashes.",
            [(f'min by (service) (up{{{here}}})', "{{service}}")], "services", most=1, width=8, runbook="ServiceDown")
    d.graph("Since the start", "s", "Of the process. A line that falls to 0 again and again is a service that dies on something.",
            [(f'min by (service) (time() - process_start_time_seconds{{{here}}})', "{{service}}")], "services", width=8, runbook="ServiceDown")
    d.row("Work")
    d.graph("Inputs, by what reacts", "ops", "Steps, commands, tasks and due deadlines that were settled, per second.",
            [(f'sum by (service, step) (rate(saga_input_total{{{here}}}[$__rate_interval]))', "{{service}} {{step}}")], "services")
    d.quantiles("From an input to its durable outcome", "Normally a few milliseconds: one commit. Points are traces.", "step_duration_seconds", ["service", "step"],
                "services", filters=here, runbook="ConsumerLag")
    d.heatmap("All inputs, by how long they took", "s", "One band at some milliseconds is normal; a second band is waiting for the disk or for a batch before. Points are traces.",
              f'sum by (le) (increase(step_duration_seconds_bucket{{{here}}}[$__rate_interval]))', "services")
    d.quantiles("Time of a commit", "Waiting for the writer included. Normally a millisecond or two; more is a disk that is slow to sync.",
                "store_commit_duration_seconds", ["service"], "services", filters=here, runbook="StoreUnhealthy")
    d.graph("Inputs in a transaction", "short", "On average. 1 at rest, up to 256 under load: that is what makes durability cheap.",
            [(f'sum by (service) (rate(engine_batch_inputs_sum{{{here}}}[$__rate_interval])) / sum by (service) (rate(engine_batch_inputs_count{{{here}}}[$__rate_interval]))', "{{service}}")],
            "services", normally_empty=True)
    d.graph("Inputs that wait for their transaction", "short", "Normally few. What stays high is a service at its limit.",
            [(f'sum by (service) (engine_queue_inputs{{{here}}})', "{{service}}")], "services", runbook="ConsumerLag")
    d.row("HTTP")
    d.graph("Requests, by status", "ops", "Answers per second. 503 of order is load that is shed, 429 a client that asks too much; 500 is a bug.",
            [(f'sum by (service, status) (rate(http_request_total{{{here}}}[$__rate_interval]))', "{{service}} {{status}}")], "services")
    d.graph("Requests, by route", "ops", "Who is asked for what.",
            [(f'sum by (service, method, route) (rate(http_request_total{{{here}}}[$__rate_interval]))', "{{service}} {{method}} {{route}}")], "services")
    d.quantiles("Time of an answer", "By route. A wait that was asked for (Prefer: wait) counts.", "http_request_duration_seconds", ["service", "method", "route"],
                "services", filters=here)
    d.graph("Refused with 5xx", "ops", "By service and route. Normally 0; 503 of POST /api/orders is the outbox or the broker.",
            [(f'sum by (service, route, status) (rate(http_request_total{{{here}, status=~"5.."}}[$__rate_interval]))', "{{service}} {{route}} {{status}}")],
            "services", runbook="OutboxTooOld", normally_empty=True)
    d.row("Process")
    d.graph("CPU", "percentunit", "Of one core. 1 is a core that is all used.",
            [(f'sum by (service) (rate(process_cpu_seconds_total{{{here}}}[$__rate_interval]))', "{{service}}")], "services", width=8)
    d.graph("Memory", "bytes", "Resident. It grows with the load up to a bound, and comes back; what creeps for hours is a leak.",
            [(f'sum by (service) (process_resident_memory_bytes{{{here}}})', "{{service}}")], "services", width=8)
    d.graph("Open files", "percentunit", "Of those that it may have open: connections above all. Near 1 the one that has asked for nothing for longest gives way.",
            [(f'max by (service) (process_open_fds{{{here}}} / process_max_fds{{{here}}})', "{{service}}")], "services", width=8, most=1)
    d.graph("Clock", "s", "Ahead of the broker's (negative: behind). Services go by the broker's time; the machine's clock still wants mending.",
            [(f'max by (service) (clock_offset_seconds{{{here}}})', "{{service}}")], "services", width=8, least=None)
    d.graph("Lines of the log that were lost", "ops", "Normally 0: the log did not keep up.",
            [(f'sum by (service) (rate(log_lost_lines_total{{{here}}}[$__rate_interval]))', "{{service}}")], "services", width=8)
    d.graph("Spans, by what became of them", "ops", "exported goes to Tempo. dropped: the queue was full. failed: the collector did not take them. All 0 when traces are off.",
            [(f'sum by (outcome) (rate(trace_span_total{{{here}}}[$__rate_interval]))', "{{outcome}}")], "services", trace=None, width=8)
    return d


def main():
    check, wrong = sys.argv[1:] == ["--check"], []
    wanted = {f"{d.uid}.json": json.dumps(d.json(), indent=2, ensure_ascii=False) + "\n"
              for d in (sagas(), outbox(), failures(), resilience(), services())}
    for stranger in {path.name for path in FOLDER.glob("*.json")} - wanted.keys():
        wrong.append(f"{stranger} is written by nobody")
    for name, text in wanted.items():
        path = FOLDER / name
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            wrong.append(f"{name} is not as grafana/dashboards.py writes it: run that")
        elif not check:
            path.write_text(text, encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
