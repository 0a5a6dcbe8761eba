#!/usr/bin/env python3
"""Generates the dashboards in grafana/dashboards/*.json. With --check it writes nothing and fails if a file is out of date.

Replicas of a service share a database and consumers, and each exports the same gauge for those: queries use max(). Counters
belong to one process: queries use sum().

Each panel is one call below: title, unit, description with the normal value, and queries. The class Dashboard defines how
panels look. scripts/check-dashboards.sh runs every query against a live system.
"""

import json
import sys
from pathlib import Path
from urllib.parse import quote

FOLDER = Path(__file__).parent / "dashboards"
# Data sources are variables: an existing Grafana has its own, under other names.
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
TEMPO = {"type": "tempo", "uid": "${tempo}"}
# One colour for one meaning, on every dashboard.
GREEN, BLUE, YELLOW, ORANGE, RED, PURPLE = "green", "blue", "yellow", "orange", "red", "purple"
COLOURS = {
    GREEN: "completed|confirmed|done|success|answered|exported|published|captured|sold|put_back|2..",
    BLUE: "started|placed|reserved|written|duplicate|IN_PROGRESS|ignored|3..",
    YELLOW: "compensated|cancelled|refunded|taken_back|released|rejected|REPLAYING|COMPENSATING|customer_request|out_of_stock|4..",
    ORANGE: "retried|DEAD_LETTERED|timed_out|TIMED_OUT|dropped|payment_failed",
    RED: "failed|failure|stuck|FAILED|COMPENSATION_STUCK|dead_lettered|PENDING|5..",
}
NOTHING = "none"
# The alerts of this system. A cluster has others, such as a watchdog that always fires.
ALERTS = 'ALERTS{alertstate="firing", system="saga"}'


def trace_link(label):
    """A link to the traces of the selected service in the displayed time range."""
    query = '{resource.service.name="${__field.labels.%s}"}' % label if label else "{}"
    panes = {"t": {"datasource": TEMPO["uid"], "range": {"from": "${__from}", "to": "${__to}"}, "queries": [
        {"refId": "A", "datasource": TEMPO, "queryType": "traceql", "query": query}]}}
    url = "/explore?schemaVersion=1&orgId=1&panes=" + quote(json.dumps(panes, separators=(",", ":")), safe="${}_.:,[]")
    return {"title": "Traces in this time range (Tempo)", "url": url, "targetBlank": True}


def runbook_link(alert):
    return {"title": f"Runbook {alert}", "url": "${runbooks}/%s.md" % alert, "targetBlank": True}


def source_variable(name, label, source):
    """A data source that the reader chooses; the default one of its type at first."""
    return {"type": "datasource", "name": name, "label": label, "query": source["type"], "current": {}, "hide": 0, "refresh": 1,
            "regex": "", "includeAll": False, "multi": False, "options": []}


def rows_link(path):
    return {"title": "Rows (admin API)", "url": "${admin}/api/admin/" + path, "targetBlank": True}


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
                    # Exemplars of a histogram link to traces.
                    "exemplar": "_bucket" in expr and not instant}
                   for n, (expr, legend) in enumerate(queries)]
        field = {"unit": unit, "links": [trace_link(trace), rows_link(rows)], **(defaults or {})}
        if normally_empty:
            field["noValue"] = NOTHING
        self.panels.append({
            "type": kind, "title": title, "description": about, "links": [runbook_link(runbook)] if runbook else [], "datasource": PROMETHEUS, "targets": targets,
            "gridPos": {"h": height, "w": width, "x": self.x, "y": self.y},
            "fieldConfig": {"defaults": field, "overrides": list(overrides)}, "options": options})
        self.x, self.height = self.x + width, max(self.height, height)

    def stat(self, title, unit, about, expr, rows, good=None, bad_above=None, bad_below=None, warn=False, mappings=(), **more):
        """A number, green while no operator is needed. `good`: a neutral colour instead."""
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
        """Median and 95th percentile of a duration."""
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
        """Coloured bands over time; `names` are those of the values 0, 1 and 2."""
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
        variables = [source_variable("datasource", "Metrics", PROMETHEUS), source_variable("tempo", "Traces", TEMPO),
                     {"type": "textbox", "name": "runbooks", "label": "Runbooks", "query": "docs/runbooks",
                      "current": {"text": "docs/runbooks", "value": "docs/runbooks"},
                      "description": "Base URL of the links to runbooks: where your team reads docs/runbooks"},
                     {"type": "textbox", "name": "admin", "label": "Admin address", "query": "http://localhost:8080",
                      "current": {"text": "http://localhost:8080", "value": "http://localhost:8080"},
                      "description": "Base URL of the links to rows"}]
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
                      {"type": "link", "title": "Overview (admin)", "url": "${admin}/api/admin/overview",
                       "icon": "info", "targetBlank": True}]}


# Cancellations that count as failures. Out of stock and cancellations by customers and operators do not.
UNWANTED = 'saga_cancelled_total{job="saga", reason!~"customer_request|operator|out_of_stock"}'
VERDICTS = [{"type": "value", "options": {
    "0": {"text": "BALANCED", "color": GREEN, "index": 0}, "1": {"text": "IN FLIGHT", "color": YELLOW, "index": 1},
    "2": {"text": "UNBALANCED", "color": RED, "index": 2}}}]
FIRING = "Normally 0. Each alert has a runbook with its name in docs/runbooks/. sagactl doctor suggests what to do."


def sagas():
    d = Dashboard("saga-business", "Sagas", "Orders and sagas: how many succeed and are compensated, why, their value and their duration.")
    d.row("Operator needed?")
    d.stat("Firing alerts", "short", FIRING, f'count({ALERTS}) or vector(0)', "overview", bad_above=1)
    d.stat("Success rate", "percentunit",
           "Confirmed orders among those that ended in the last ten minutes. Cancellations by customers or operators "
           "and orders out of stock do not count. Normally above 95 %.",
           f'sum(increase(saga_completed_total{{job="saga"}}[10m])) / (sum(increase(saga_completed_total{{job="saga"}}[10m])) + (sum(increase({UNWANTED}[10m])) or vector(0)))',
           "sagas?status=COMPENSATED", bad_below=0.9, runbook="SuccessRateLow", normally_empty=True, decimals=1)
    d.stat("Findings", "short",
           "Problems that need an operator, as sagactl status lists them. Normally 0. sagactl doctor suggests what to do.",
           'sum(max by (code) (finding_open{job="saga"}))', "overview", bad_above=1, runbook="FindingWithoutAlert")
    d.stat("Stuck compensations", "short",
           "Sagas whose compensation needs an operator: money or stock is in the wrong place. Normally 0.",
           'max(saga_open{job="saga", status="COMPENSATION_STUCK"})', "sagas?status=COMPENSATION_STUCK", bad_above=1, runbook="CompensationStuck")
    d.stat("Overdue sagas", "short",
           "Sagas that passed their deadline more than 30 seconds ago and have not ended. Normally 0.", 'max(saga_overdue{job="saga"})',
           "sagas?overdue=true", bad_above=1, runbook="SagasOverdue")
    d.stat("Dead letters", "short",
           "Messages and calls that need an operator. Normally 0.", 'max(dead_letter_open{job="saga", status="PENDING"})',
           "dlq?status=PENDING", bad_above=1, runbook="DeadLettersPending")
    d.stat("Reconciliation", "short",
           "Result of the last reconciliation. IN FLIGHT is normal under load. UNBALANCED never is.", 'max(reconciliation_verdict{job="saga"})',
           "reconciliation?wait=10", mappings=VERDICTS, bad_above=2, runbook="LedgersUnbalanced", normally_empty=True)

    d.row("Sagas")
    d.graph("Sagas started and ended", "ops",
            "Sagas per second: started, completed, compensated, stuck. A gap between started and the others is work in"
            " flight. A stuck compensation needs an operator.",
            [('sum(rate(saga_started_total{job="saga"}[$__rate_interval]))', "started"),
             ('sum(rate(saga_completed_total{job="saga"}[$__rate_interval]))', "completed"),
             ('sum(rate(saga_compensated_total{job="saga"}[$__rate_interval]))', "compensated"),
             ('sum(rate(saga_compensation_stuck_total{job="saga"}[$__rate_interval]))', "stuck")], "sagas", trace=None, runbook="SuccessRateLow")
    d.graph("Cancellations by reason", "ops",
            "Why orders are not confirmed. out_of_stock and customer_request are business results. payment_failed "
            "points to the bank, timed_out to a late step.",
            [('sum by (reason) (rate(saga_cancelled_total{job="saga"}[$__rate_interval]))', "{{reason}}"),
             ('sum(rate(saga_timed_out_total{job="saga"}[$__rate_interval]))', "deadline passed")],
            "sagas?status=COMPENSATED", trace=None, runbook="SuccessRateLow")
    d.graph("Open sagas by status", "short",
            "Sagas that have not ended. Normally a few, for milliseconds. DEAD_LETTERED waits for a dead letter, "
            "COMPENSATION_STUCK for an operator. A growing number is stalled.",
            [('max by (status) (saga_open{job="saga"})', "{{status}}"), ('max(saga_overdue{job="saga"})', "overdue")],
            "sagas?status=STARTED", trace=None, runbook="SagasOverdue")
    d.graph("Compensated sagas by reason", "ops",
            "Sagas whose compensation is complete: stock and money are back. Follows the cancellations within seconds; "
            "otherwise a service does not execute its compensation.",
            [('sum by (reason) (rate(saga_compensated_total{job="saga"}[$__rate_interval]))', "{{reason}}")],
            "sagas?status=COMPENSATING", trace=None, stacked=True, runbook="CompensationStuck")

    d.row("Money and stock")
    d.graph("Order value by event", "currencyEUR",
            "Euros per second. placed becomes confirmed or cancelled. taken_back was confirmed before it was cancelled.",
            [('sum by (event) (rate(order_amount_minor_total{job="saga", currency="EUR"}[$__rate_interval])) / 100', "{{event}}")],
            "sagas", trace=None)
    d.graph("Value of open sagas", "currencyEUR",
            "Value of the sagas that have not ended, compensations included. Admin samples it every few seconds, at "
            "most the 1,000 oldest. A value that stays belongs to sagas that do not end.",
            [('max(saga_open_amount_minor{job="saga", currency="EUR"}) / 100', "placed")],
            "sagas?status=IN_PROGRESS", trace=None, runbook="SagasOverdue")
    d.graph("Money at the bank", "currencyEUR",
            "Euros per second that were charged and refunded. Refunds without cancellations, or the reverse, are a "
            "reason to reconcile.",
            [('sum by (event) (rate(payment_amount_minor_total{job="saga", currency="EUR"}[$__rate_interval])) / 100', "{{event}}")],
            "reconciliation?wait=10", trace=None, runbook="LedgersUnbalanced")
    d.graph("Stock by event", "ops",
            "Units per second. reserved becomes sold or released. put_back was sold and returned.",
            [('sum by (event) (rate(stock_unit_total{job="saga"}[$__rate_interval]))', "{{event}}")], "reconciliation?wait=10", trace=None)
    d.graph("Reserved stock", "short",
            "Units reserved for orders, neither sold nor released. Inventory samples them every 5 s, at most the 1,000 "
            "oldest. Normally few, for milliseconds; a value that stays belongs to a saga that does not end.",
            [('max(stock_reserved_units{job="saga"})', "reserved")],
            "sagas?status=IN_PROGRESS", trace=None, runbook="SagasOverdue")
    d.graph("Last reconciliation", "short",
            "Discrepancies that it found (normally 0), and its age in minutes (normally below 15).",
            [('max(reconciliation_discrepancies{job="saga"})', "discrepancies failed"), ('max(reconciliation_age_seconds{job="saga"}) / 60', "minutes ago")],
            "reconciliation?wait=10", trace=None, runbook="ReconciliationOverdue", normally_empty=True)

    d.row("Durations")
    d.graph("Orders placed and ended", "ops",
            "Orders per second, as the order service counts them. If placed stays above ended, orders queue up until "
            "the order service rejects new ones.",
            [('sum(rate(order_placed_total{job="saga"}[$__rate_interval]))', "placed"),
             ('sum(rate(order_duration_seconds_count{job="saga"}[$__rate_interval]))', "ended")],
            "sagas?status=IN_PROGRESS", trace=None, runbook="SagasOverdue")
    d.quantiles("Time to confirmation or cancellation",
                "Measured by the order service, before compensation. Well below a second under any load.", "order_duration_seconds", ["outcome"], "sagas", trace=None, runbook="SagasOverdue")
    d.quantiles("Saga duration",
                "Median and 95th percentile. Normally well below a second; the deadline is a minute.", "saga_duration_seconds", ["outcome"], "sagas", trace=None, runbook="SagasOverdue")
    d.heatmap("Distribution of saga durations", "s",
              "Confirmed orders: each column is a moment, each row a duration. One narrow band is normal; a second band "
              "shows retries or an outage. Points are traces.",
              'sum by (le) (increase(saga_duration_seconds_bucket{job="saga", outcome="completed"}[$__rate_interval]))', "sagas?status=COMPLETED")
    d.quantiles("Compensation duration",
                "Time from the cancellation until stock and money are back. Normally below a second; during an outage of "
                "the bank as long as the outage.", "saga_compensation_duration_seconds", [], "sagas?status=COMPENSATING",
                trace=None, runbook="CompensationStuck")
    return d


def outbox():
    d = Dashboard("saga-outbox", "Outbox and broker", "Outboxes, publishing, consumers and the state of the broker.", by_service=True)
    here = 'job="saga", service=~"$service"'
    d.row("Operator needed?")
    d.stat("Oldest outbox entry", "s",
           "Age of the oldest unpublished message. Normally milliseconds. Above one minute a service is degraded; "
           "above two minutes new orders are rejected.", f'max(outbox_oldest_pending_age_seconds{{{here}}})', "outbox", bad_above=60, runbook="OutboxTooOld")
    d.stat("Unpublished messages", "short",
           "Messages in all outboxes. A few under load; a growing number waits for the broker.", f'sum(max by (service) (outbox_pending{{{here}}}))',
           "outbox", bad_above=10000, warn=True, runbook="RelayStalled")
    d.stat("Rejected and blocked", "short",
           "Messages that the broker rejected, and messages of their sagas blocked behind them. Normally 0: sagactl "
           "outbox retry.",
           f'sum(max by (service) (outbox_failed{{{here}}}))', "outbox", bad_above=1, runbook="MessagesRejectedByBroker")
    d.stat("Largest consumer lag", "short",
           "Messages that wait for the consumer with the most. Above a thousand for minutes it is stalled.",
           f'max(consumer_lag_messages{{{here}}})', "services", bad_above=1000, runbook="ConsumerLag")
    d.stat("Services without a broker", "short",
           "Services that are not connected, or whose messages the broker does not accept. Normally 0.",
           f'sum(max by (service) (readiness_check{{{here}, check=~"broker|publish_stall"}}) > bool 0)', "services", bad_above=1, runbook="BrokerUnhealthy")
    d.stat("Foreign messages", "short",
           "Dead-lettered in the last hour because no service of this system sent them. Normally 0: another program "
           "writes to the streams.",
           f'sum(increase(message_foreign_total{{{here}}}[1h]))', "dlq?status=PENDING", bad_above=1, warn=True, runbook="DeadLettersPending", decimals=0)
    d.row("Outbox")
    d.graph("Messages written and published", "ops",
            "Messages per second that were stored in an outbox and that the broker accepted. A gap between the lines is"
            " waiting. With written alone the relay has stalled.",
            [(f'sum(rate(outbox_written_total{{{here}}}[$__rate_interval]))', "written"),
             (f'sum(rate(outbox_published_total{{{here}}}[$__rate_interval]))', "published"),
             (f'sum(rate(outbox_rejected_total{{{here}}}[$__rate_interval]))', "rejected")], "outbox", trace=None, runbook="RelayStalled")
    d.graph("Messages published by service", "ops",
            "Messages per second. A service at 0 while others publish has no messages, or its relay has stalled.",
            [(f'sum by (service) (rate(outbox_published_total{{{here}}}[$__rate_interval]))', "{{service}}")], "outbox", runbook="RelayStalled")
    d.graph("Outbox size by service", "short",
            "Unpublished messages. Normally few, for milliseconds.",
            [(f'max by (service) (outbox_pending{{{here}}})', "{{service}}")], "outbox", runbook="OutboxTooOld")
    d.graph("Outbox age by service", "s",
            "A line that climbs by one second per second means that the broker or the relay does nothing.",
            [(f'max by (service) (outbox_oldest_pending_age_seconds{{{here}}})', "{{service}}")], "outbox", runbook="OutboxTooOld")
    d.quantiles("Publish duration",
                "Time until the broker has acknowledged a batch. Normally a few milliseconds: one sync of its disk.",
                "outbox_publish_duration_seconds", ["service"], "outbox", filters=here, runbook="BrokerUnhealthy")
    d.graph("Messages per batch", "short",
            "Average. 1 at rest; it grows with the load, which keeps the relay fast enough.",
            [(f'sum by (service) (rate(outbox_publish_messages_sum{{{here}}}[$__rate_interval])) / sum by (service) (rate(outbox_publish_messages_count{{{here}}}[$__rate_interval]))', "{{service}}")],
            "outbox", normally_empty=True)
    d.row("Broker")
    d.graph("Messages waiting by consumer", "short",
            "Messages that are not acknowledged. Bursts are normal. A number that stays or grows is caused by a "
            "breaker, a pause or a slow step.",
            [(f'max by (consumer) (consumer_lag_messages{{{here}}})', "{{consumer}}")], "services", trace=None, runbook="ConsumerLag")
    d.graph("Redeliveries by consumer", "ops",
            "Messages that were not acknowledged in time. Normally 0 except for restarts. The inbox recognises those "
            "that were processed.",
            [(f'sum by (consumer) (rate(consumer_redelivery_total{{{here}}}[$__rate_interval]))', "{{consumer}}")], "services", trace=None, runbook="ConsumerLag")
    d.graph("Duplicates by step", "ops",
            "Messages that the inbox recognised and that changed nothing. Not a failure.",
            [(f'sum by (step) (rate(saga_input_total{{{here}, outcome="duplicate"}}[$__rate_interval]))', "{{step}}")], "services", trace=None, normally_empty=True)
    d.graph("Foreign messages by step", "ops",
            "Messages that no service of this system sent become dead letters with the origin foreign. Normally 0.",
            [(f'sum by (step) (rate(message_foreign_total{{{here}}}[$__rate_interval]))', "{{step}}")], "dlq?status=PENDING", trace=None,
            runbook="DeadLettersPending", normally_empty=True)
    return d


def failures():
    d = Dashboard("saga-failures", "Failures and dead letters", "Retries and dead letters, by cause and step.", by_service=False)
    d.row("Operator needed?")
    d.stat("Firing alerts", "short", FIRING, f'count({ALERTS}) or vector(0)', "overview", bad_above=1)
    d.stat("Pending dead letters", "short",
           "Dead letters that need an operator. Normally 0.", 'max(dead_letter_open{job="saga", status="PENDING"})',
           "dlq?status=PENDING", bad_above=1, runbook="DeadLettersPending")
    d.stat("Replays in flight", "short",
           "Dead letters that were replayed and whose result is not known yet.",
           'max(dead_letter_open{job="saga", status="REPLAYING"})', "dlq?status=REPLAYING")
    d.stat("New causes", "short",
           "Fingerprints that appeared in the last 15 minutes. Normally 0. After a release, consider a rollback.",
           'max(increase(dead_letter_fingerprint_total{job="saga"}[15m]))', "dlq/groups", bad_above=0.5, warn=True, runbook="NewFingerprint", decimals=0)
    d.stat("Stuck compensation rate", "percentunit",
           "Sagas with a stuck compensation among those that ended in the last ten minutes. Normally 0; above 1 % there is "
           "a systematic cause.",
           'sum(increase(saga_compensation_stuck_total{job="saga"}[10m])) / (sum(increase(saga_compensation_stuck_total{job="saga"}[10m])) + '
           'sum(increase(saga_completed_total{job="saga"}[10m])) + (sum(increase(saga_compensated_total{job="saga"}[10m])) or vector(0)))',
           "sagas?status=COMPENSATION_STUCK", bad_above=0.01, runbook="CompensationStuckRate", normally_empty=True, decimals=2)
    d.stat("Waiting retries", "short",
           "Messages that failed and will be retried automatically. Normally 0; many of them mean an outage.",
           'sum(max by (service) (retry_waiting{job="saga"}))', "services", bad_above=100, warn=True, runbook="BreakerOpenTooLong")
    d.row("Dead letters")
    d.graph("Dead letters by status", "short",
            "PENDING needs an operator; REPLAYING was replayed. A redrive moves dead letters from the first to the "
            "second, and then removes them.",
            [('max by (status) (dead_letter_open{job="saga"})', "{{status}}")], "dlq", trace=None, stacked=True, runbook="DeadLettersPending")
    d.graph("Pending dead letters by step", "short",
            "A single step: a bug, or a dependency is down. All steps: an invalid message.",
            [('max by (exported_service, step) (dead_letter_pending{job="saga"})', "{{exported_service}} {{step}}")], "dlq/groups", trace="exported_service",
            stacked=True, runbook="DeadLettersPending", normally_empty=True)
    d.table("Five largest groups", "short",
            "Rank, service, step and size. Begin with the first. sagactl dlq groups shows the causes.",
            'sort_desc(max by (rank, exported_service, step) (dead_letter_group_size{job="saga"}))', "dlq/groups", runbook="DeadLettersPending", normally_empty=True)
    d.graph("Dead letters by service", "short",
            "Counted by each service itself, so the numbers are there even if admin is down or late.",
            [('max by (service) (dead_letter_unresolved{job="saga"})', "{{service}}")], "dlq/count", runbook="DeadLettersPending")
    d.row("Failures")
    d.graph("Inputs by outcome", "ops",
            "Results of all inputs. duplicate and rejected are no failures. retried is repeated automatically; dead "
            "needs an operator.",
            [('sum by (outcome) (rate(saga_input_total{job="saga"}[$__rate_interval]))', "{{outcome}}")], "services", trace=None)
    d.graph("Failures by step", "ops",
            "Inputs that are retried or dead-lettered. Normally 0.",
            [('sum by (step, outcome) (rate(saga_input_total{job="saga", outcome=~"retried|dead_lettered"}[$__rate_interval]))', "{{step}} {{outcome}}")],
            "services", trace=None, runbook="NewFingerprint", normally_empty=True)
    d.graph("Waiting retries by service", "short",
            "They are repeated after a backoff and block nothing.",
            [('max by (service) (retry_waiting{job="saga"})', "{{service}}")], "services")
    d.graph("New causes and stuck compensations", "short",
            "Per five minutes. Both normally 0.",
            [('max(increase(dead_letter_fingerprint_total{job="saga"}[5m]))', "new causes"),
             ('sum(increase(saga_compensation_stuck_total{job="saga"}[5m]))', "compensations stuck")], "dlq/groups", trace=None, runbook="NewFingerprint")
    return d


def resilience():
    d = Dashboard("saga-resilience", "Resilience", "Circuit breakers and external calls.", by_service=True)
    here = 'job="saga", service=~"$service"'
    d.row("Operator needed?")
    d.stat("Open breakers", "short",
           "Normally 0. An open breaker holds back the work that needs its dependency. Nothing is lost, but deadlines "
           "continue.",
           f'sum(max by (service, breaker) (breaker_state{{{here}}}) == bool 2)', "breakers", bad_above=1, runbook="BreakerOpenTooLong")
    d.stat("Oldest open call", "s",
           "Age of the oldest open call to the bank or to the receiver of notifications. Normally milliseconds; above "
           "90 s nobody answers.",
           f'max(task_oldest_open_age_seconds{{{here}}})', "services", bad_above=90, runbook="TaskOpenTooLong")
    d.stat("Open calls", "short",
           "External calls without a result: waiting, in flight, or to be retried.",
           f'sum(max by (service) (task_open{{{here}}}))', "services", bad_above=1000, warn=True, runbook="TaskOpenTooLong")
    d.stat("Failed calls", "percentunit",
           "Share of the external calls of the last five minutes. A decline by the bank is an answer, not a failure.",
           f'sum(increase(task_call_total{{{here}, outcome="failed"}}[5m])) / sum(increase(task_call_total{{{here}}}[5m]))', "breakers",
           bad_above=0.1, warn=True, runbook="BreakerOpenTooLong", normally_empty=True)
    d.stat("Highest failure ratio", "percentunit",
           "Failure ratio in the window of the worst breaker. At 50 % it opens.",
           f'max(breaker_failure_ratio{{{here}}})', "breakers", bad_above=0.5, runbook="BreakerOpenTooLong")
    d.stat("Blocked calls", "ops",
           "Calls per second that breakers did not permit.",
           f'sum(rate(breaker_not_permitted_total{{{here}}}[$__rate_interval]))', "breakers")
    d.row("Breakers")
    d.states("Breaker states",
             "One band per breaker of a step or a dependency. Alternating between half-open and open means an ongoing "
             "outage.",
             [(f'max by (service, breaker) (breaker_state{{{here}}})', "{{service}} {{breaker}}")], "breakers", ["closed", "half-open", "open"], runbook="BreakerOpenTooLong")
    d.graph("Failure ratio", "percentunit",
            "At 50 % of at least five calls a breaker opens. A business rejection does not count.",
            [(f'max by (service, breaker) (breaker_failure_ratio{{{here}}})', "{{service}} {{breaker}}")], "breakers", most=1, runbook="BreakerOpenTooLong")
    d.graph("Recorded calls by outcome", "ops",
            "success and failure count. ignored says nothing about the dependency (a rejection, a cancelled call).",
            [(f'sum by (outcome) (rate(breaker_calls_total{{{here}}}[$__rate_interval]))', "{{outcome}}")], "breakers", trace=None)
    d.graph("Blocked calls by breaker", "ops",
            "While a breaker is open. There are few, because consumption of its step stops too.",
            [(f'sum by (service, breaker) (rate(breaker_not_permitted_total{{{here}}}[$__rate_interval]))', "{{service}} {{breaker}}")], "breakers", runbook="BreakerOpenTooLong")
    d.graph("Failed calls by breaker", "ops",
            "These failures open the breaker.",
            [(f'sum by (service, breaker) (rate(breaker_calls_total{{{here}, outcome="failure"}}[$__rate_interval]))', "{{service}} {{breaker}}")],
            "breakers", runbook="BreakerOpenTooLong")
    d.row("External calls")
    d.graph("Calls by kind and outcome", "ops",
            "answered includes business rejections. failed: no usable answer; the call is repeated with the same "
            "idempotency key.",
            [(f'sum by (task, outcome) (rate(task_call_total{{{here}}}[$__rate_interval]))', "{{task}} {{outcome}}")], "services", trace=None,
            runbook="TaskOpenTooLong", normally_empty=True)
    d.quantiles("Call duration",
                "Normally a few milliseconds; the time-out of one call is 5 s.", "task_call_duration_seconds", ["task"], "services",
                trace=None, filters=here, runbook="TaskOpenTooLong")
    d.graph("Open calls by service", "short",
            "Calls that wait, are in flight, or will be retried. A growing number waits for the bank.",
            [(f'max by (service) (task_open{{{here}}})', "{{service}}")], "services", runbook="TaskOpenTooLong")
    d.graph("Age of the oldest open call", "s",
            "A line that climbs by one second per second is a call that nobody answers.",
            [(f'max by (service) (task_oldest_open_age_seconds{{{here}}})', "{{service}}")], "services", runbook="TaskOpenTooLong")
    return d


def services():
    d = Dashboard("saga-services", "Services", "Each service: availability, readiness, latency and resources.", by_service=True)
    here = 'job="saga", service=~"$service"'
    d.row("Operator needed?")
    d.stat("Running services", "short",
           "Of five. To start a missing one: sagactl start NAME.", f'sum(max by (service) (up{{{here}}}))', "services", good=GREEN, runbook="ServiceDown")
    d.stat("Missing services", "short",
           "Of all five, including those that Prometheus does not find. Normally 0.",
           '5 - (count(count by (service) (up{job="saga"} == 1)) or vector(0))', "services", bad_above=1, runbook="ServiceDown")
    d.stat("Failed checks", "short",
           "Checks of /readyz with the value 2: the service cannot do its work. Normally 0.",
           f'sum(readiness_check{{{here}}} == bool 2)', "services", bad_above=1, runbook="ServiceNotReady")
    d.stat("Failed transactions", "short",
           "Batches of the last hour that could not be stored and were rolled back. Normally 0; check the disk.",
           f'sum(increase(store_faults_total{{{here}}}[1h]))', "services", bad_above=1, runbook="StoreUnhealthy", decimals=0)
    d.stat("Largest clock offset", "s",
           "Difference between a machine and the broker, whose time all services use. Above 2 s a service is degraded.",
           f'max(abs(clock_offset_seconds{{{here}}}))', "services", bad_above=2, warn=True)
    d.stat("Lost log lines", "short",
           "In the last hour: the log was too slow, and the service continued. Normally 0.",
           f'sum(increase(log_dropped_lines_total{{{here}}}[1h]))', "services", bad_above=1, warn=True, decimals=0)
    d.row("Availability")
    d.states("Readiness by check",
             "/readyz. Green: ok. Yellow: degraded but working. Red: failed, the service cannot do its work.",
             [(f'max by (service, check) (readiness_check{{{here}}})', "{{service}} {{check}}")], "services", ["ok", "degraded", "failed"], runbook="ServiceNotReady")
    d.table("Versions", "short",
            "More than one version of a service means a release in progress.", f'max by (service, version) (build_info{{{here}}})', "services",
            trace="service", hidden=("Value",), width=8)
    d.graph("Up", "short",
            "1 while Prometheus gets an answer. Drops are restarts or crashes.",
            [(f'min by (service) (up{{{here}}})', "{{service}}")], "services", most=1, width=8, runbook="ServiceDown")
    d.graph("Uptime", "s",
            "Of the process. A line that repeatedly falls to 0 is a service that crashes.",
            [(f'min by (service) (time() - process_start_time_seconds{{{here}}})', "{{service}}")], "services", width=8, runbook="ServiceDown")
    d.row("Work")
    d.graph("Inputs by step", "ops",
            "Processed messages, commands, task results and due deadlines per second.",
            [(f'sum by (service, step) (rate(saga_input_total{{{here}}}[$__rate_interval]))', "{{service}} {{step}}")], "services")
    d.quantiles("Step duration",
                "Time from an input to its commit. Normally a few milliseconds. Points are traces.", "step_duration_seconds", ["service", "step"],
                "services", filters=here, runbook="ConsumerLag")
    d.heatmap("Distribution of step durations", "s",
              "One band at some milliseconds is normal. A second band is waiting for the disk or for the previous batch. "
              "Points are traces.",
              f'sum by (le) (increase(step_duration_seconds_bucket{{{here}}}[$__rate_interval]))', "services")
    d.quantiles("Commit duration",
                "Includes waiting for the writer. Normally one or two milliseconds; more means a disk that syncs slowly.",
                "store_commit_duration_seconds", ["service"], "services", filters=here, runbook="StoreUnhealthy")
    d.graph("Inputs per transaction", "short",
            "Average. 1 at rest, up to 256 under load: batching makes durability cheap.",
            [(f'sum by (service) (rate(engine_batch_inputs_sum{{{here}}}[$__rate_interval])) / sum by (service) (rate(engine_batch_inputs_count{{{here}}}[$__rate_interval]))', "{{service}}")],
            "services", normally_empty=True)
    d.graph("Queued inputs", "short",
            "Inputs that wait for their transaction. Normally few. A high value means a service at its limit.",
            [(f'sum by (service) (engine_queue_inputs{{{here}}})', "{{service}}")], "services", runbook="ConsumerLag")
    d.row("HTTP")
    d.graph("Requests by status", "ops",
            "Answers per second. 503 of order is load shedding; 429 is a client over its limit; 500 is a bug.",
            [(f'sum by (service, status) (rate(http_request_total{{{here}}}[$__rate_interval]))', "{{service}} {{status}}")], "services")
    d.graph("Requests by route", "ops",
            "Requests per second.",
            [(f'sum by (service, method, route) (rate(http_request_total{{{here}}}[$__rate_interval]))', "{{service}} {{method}} {{route}}")], "services")
    d.quantiles("Request duration",
                "By route. Includes waits that the client asked for (Prefer: wait).", "http_request_duration_seconds", ["service", "method", "route"],
                "services", filters=here)
    d.graph("Server errors", "ops",
            "Answers with 5xx by service and route. Normally 0. 503 of POST /api/orders points to the outbox or the "
            "broker.",
            [(f'sum by (service, route, status) (rate(http_request_total{{{here}, status=~"5.."}}[$__rate_interval]))', "{{service}} {{route}} {{status}}")],
            "services", runbook="OutboxTooOld", normally_empty=True)
    d.row("Process")
    d.graph("CPU", "percentunit",
            "In cores: 1 is one core in full use.",
            [(f'sum by (service) (rate(process_cpu_seconds_total{{{here}}}[$__rate_interval]))', "{{service}}")], "services", width=8)
    d.graph("Memory", "bytes",
            "Resident. It grows with the load up to a limit and returns; steady growth over hours is a leak.",
            [(f'sum by (service) (process_resident_memory_bytes{{{here}}})', "{{service}}")], "services", width=8)
    d.graph("Open files", "percentunit",
            "Share of the limit, mostly connections. Near 1 the longest idle connection is closed.",
            [(f'max by (service) (process_open_fds{{{here}}} / process_max_fds{{{here}}})', "{{service}}")], "services", width=8, most=1)
    d.graph("Clock offset", "s",
            "Ahead of the broker (negative: behind). Services use the broker's time, but the clock should be fixed.",
            [(f'max by (service) (clock_offset_seconds{{{here}}})', "{{service}}")], "services", width=8, least=None)
    d.graph("Free space for the database", "bytes",
            "On the disk of a SQLite database. Below 64 MiB order accepts no new orders. PostgreSQL: empty.",
            [(f'min by (service) (store_free_bytes{{{here}}})', "{{service}}")], "services", width=8)
    d.graph("Write-ahead log", "bytes",
            "Of a SQLite database. It grows while another process reads the file for long.",
            [(f'max by (service) (store_log_bytes{{{here}}})', "{{service}}")], "services", width=8)
    d.graph("Lost log lines by service", "ops",
            "Normally 0: the log was too slow.",
            [(f'sum by (service) (rate(log_dropped_lines_total{{{here}}}[$__rate_interval]))', "{{service}}")], "services", width=8)
    d.graph("Trace spans by outcome", "ops",
            "exported: sent to Tempo. dropped: the queue was full. failed: the collector rejected them. All 0 without "
            "tracing.",
            [(f'sum by (outcome) (rate(trace_span_total{{{here}}}[$__rate_interval]))', "{{outcome}}")], "services", trace=None, width=8)
    return d


def main():
    check, wrong = sys.argv[1:] == ["--check"], []
    wanted = {f"{d.uid}.json": json.dumps(d.json(), indent=2, ensure_ascii=False) + "\n"
              for d in (sagas(), outbox(), failures(), resilience(), services())}
    for unknown in {path.name for path in FOLDER.glob("*.json")} - wanted.keys():
        wrong.append(f"{unknown} is not generated by grafana/dashboards.py: delete it")
    for name, text in wanted.items():
        path = FOLDER / name
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            wrong.append(f"{name} is out of date: run grafana/dashboards.py")
        elif not check:
            path.write_text(text, encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
