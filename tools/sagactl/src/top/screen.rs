//! Pure: what the screen shows, part by part: first whether somebody is needed and why, then all else.

use admin_api::overview::{
    DeadLetterSummary, GroupSummary, OutboxSummary, Overview, ServiceStatus, TaskSummary,
};
use admin_api::text::{counted, grouped};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

use super::layout::{Line, Mark, Part};
use super::pace::{Ended, Pace, Rate, USUAL};
use super::quantile::Quantile;
use super::state::{Need, State};
use crate::overview::finding::line;
use crate::overview::seen::Seen;
use crate::overview::shown::{at_the_broker, books, breaker_line, ready, sagas_lines, still_to_hear};
use cli::text::{NONE, or_none};
use cli::{Column, View, left, plain_lines, removable, right, time};
use devstack::processes::{self, ProcessStatus};

/// Groups of dead letters that are named, the largest.
const MOST_GROUPS: usize = 5;

/// Everything there is to see, the most important first. `call` is how commands begin; `view` is who looks.
pub fn parts(state: &State, call: &str, view: &View) -> Vec<Part> {
    let Some(seen) = &state.seen else {
        return vec![Part::of(vec![headline(state, view)])];
    };
    let mut parts = vec![Part::of(vec![headline(state, view)])];
    parts.extend(silence(state, view).map(|line| Part::of(vec![line])));
    let needed = needed(state, seen, view);
    if !needed.is_empty() {
        parts.push(Part::of(needed).showing(2));
        parts.push(Part::of(vec![Line::new(Mark::Strong, what_to_do(call, view))]));
    }
    let mark = if state.silence.is_some() { Mark::Old } else { Mark::Plain };
    // What is of admin's last word counts its distances from then.
    let of_then = |overview: &Overview| View { now: view.now.map(|_| overview.at), ..*view };
    if let Some(overview) = &seen.overview {
        let view = of_then(overview);
        parts.push(Part::of(marked(mark, sagas(overview, &state.pace, &view))).showing(2));
        parts.push(Part::of(marked(mark, vec![dead_letters(overview)])));
        parts.push(Part::of(marked(mark, breakers(overview, &view))));
        parts.push(Part::of(marked(mark, vec![books(overview, &view)])));
        parts.push(Part::of(marked(mark, seen.faults(call))));
    }
    parts.push(Part::of(services(state, seen, mark, view)).showing(usize::MAX).apart());
    if let Some(overview) = &seen.overview {
        let view = of_then(overview);
        parts.push(Part::of(marked(mark, vec![at_the_broker(overview)])).apart());
        parts.push(Part::of(marked(mark, complaints(overview, &view))));
        parts.push(Part::of(marked(mark, groups(overview, &view))));
        let missing = overview.unavailable.iter();
        let missing = missing.map(|it| format!("{} could not be asked: {}", it.what, it.problem));
        parts.push(Part::of(marked(mark, missing.collect())));
    }
    parts
}

/// Where there is no room for the whole command, which system is meant stands in the last line anyway.
fn what_to_do(call: &str, view: &View) -> String {
    let whole = format!("what to do: {call} doctor");
    if view.width.is_none_or(|width| whole.width() <= width) {
        whole
    } else {
        "what to do: sagactl doctor".to_owned()
    }
}

fn marked(mark: Mark, lines: Vec<String>) -> Vec<Line> {
    lines.into_iter().map(|text| Line::new(mark, text)).collect()
}

/// Whether somebody is needed, in one line.
fn headline(state: &State, view: &View) -> Line {
    let (mark, text) = match state.need() {
        Need::Somebody => {
            let seen = state.seen.as_ref();
            let down = seen.and_then(|seen| seen.down.as_ref()).map_or(0, Vec::len);
            let count = down + seen.map_or(0, |seen| seen.findings().count());
            (Mark::Alarm, &*format!("A HUMAN IS NEEDED: {}", counted(count as u64, "finding", "findings")))
        }
        Need::Nobody => (Mark::Good, "nobody is needed"),
        Need::NotKnown => (Mark::Warning, "NOBODY KNOWS whether somebody is needed"),
        Need::NotLooked => (Mark::Plain, "looking for the first time …"),
    };
    Line { right: view.now.map(|now| format!("{}Z", time::clock(now))), ..Line::new(mark, text.to_owned()) }
}

/// That admin does not answer, and how old what is shown of it is.
fn silence(state: &State, view: &View) -> Option<Line> {
    let silence = state.silence.as_ref()?;
    let age = |at: Timestamp| match view.now {
        Some(now) => format!("{}Z ({})", time::clock(at), time::distance(at, now)),
        None => view.time(at),
    };
    let old = match state.seen.as_ref().and_then(|seen| seen.overview.as_ref()) {
        Some(overview) => format!("grey is of {}", age(overview.at)),
        None => "nothing is known of sagas, dead letters and breakers".to_owned(),
    };
    let text = format!("admin has not answered since {}; {old}: {}", age(silence.since), silence.problem);
    Some(Line::new(Mark::Warning, text))
}

/// Why somebody is needed, the gravest first.
fn needed(state: &State, seen: &Seen, view: &View) -> Vec<Line> {
    let down = seen.down.iter().flatten();
    let down = down.map(|name| Line::new(Mark::Bad, format!("  {name} does not run")));
    let mark = if state.silence.is_some() { Mark::Old } else { Mark::Bad };
    let findings = seen.findings().map(|finding| Line::new(mark, format!("  {}", line(finding, view))));
    down.chain(findings).collect()
}

/// Where sagas stand, and how fast they go.
fn sagas(overview: &Overview, pace: &Pace, view: &View) -> Vec<String> {
    let standing = overview.sagas.as_ref().map(|sagas| sagas_lines(sagas, view));
    let standing = standing.unwrap_or_else(|| format!("sagas: {NONE}"));
    let mut standing = standing.lines().map(str::to_owned);
    let mut lines: Vec<String> = standing.next().into_iter().collect();
    lines.extend(paces(pace));
    lines.extend(standing);
    let behind = overview.unconsumed.filter(|behind| *behind > 0);
    lines.extend(behind.map(|count| format!("  {}: so far is this behind", still_to_hear(count))));
    lines
}

fn paces(pace: &Pace) -> Vec<String> {
    let Some(told) = pace.told() else {
        return vec![format!("  {NONE} per second: two looks tell")];
    };
    let mut lines = Vec::new();
    let usual = USUAL.iter().filter_map(|outcome| told.ended.get_key_value(*outcome));
    let is_seen =
        |(outcome, ended): &(&String, &Ended)| !USUAL.contains(&outcome.as_str()) && ended.rate.tenths > 0;
    for (outcome, ended) in usual.chain(told.ended.iter().filter(is_seen)) {
        let (p50, p99) = (quantile(ended.p50), quantile(ended.p99));
        lines.push(format!("  {outcome:<11} {:>7}/s  p50 {p50}  p99 {p99}", ended.rate.to_string()));
    }
    let (started, over) = (or_none(told.started), told.over.as_secs().max(1));
    lines.push(format!("  {:<11} {started:>7}/s  all in the last {over} s", "started"));
    lines
}

/// How long something takes, for people.
fn quantile(quantile: Option<Quantile>) -> String {
    let length = |it: std::time::Duration| time::duration(i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
    match quantile {
        Some(Quantile::About(about)) => length(about),
        Some(Quantile::Beyond(longest)) => format!("over {}", length(longest)),
        None => NONE.to_owned(),
    }
}

fn dead_letters(overview: &Overview) -> String {
    match &overview.dead_letters {
        None => format!("dead letters: {NONE}"),
        Some(DeadLetterSummary { pending: 0, replaying: 0, .. }) => "dead letters: none".to_owned(),
        Some(DeadLetterSummary { pending, replaying, .. }) => {
            format!("dead letters: {} PENDING · {} REPLAYING", grouped(*pending), grouped(*replaying))
        }
    }
}

fn groups(overview: &Overview, view: &View) -> Vec<String> {
    let Some(look) = &overview.dead_letters else { return vec![] };
    let group = |group: &GroupSummary| {
        let GroupSummary { count, service, step, fingerprint, newest_at, reason, .. } = group;
        let (count, newest) = (counted(*count, "dead letter", "dead letters"), view.time(*newest_at));
        format!("{count} at {step} of {service}, {fingerprint}, the newest {newest}: {reason}")
    };
    look.groups.iter().take(MOST_GROUPS).map(group).collect()
}

/// Breakers that are not closed.
fn breakers(overview: &Overview, view: &View) -> Vec<String> {
    let of = |look: &ServiceStatus| {
        let lines = look.breakers.iter().map(|breaker| breaker_line(&look.service, breaker, view));
        lines.collect::<Vec<_>>()
    };
    let lines: Vec<_> = overview.services.iter().flat_map(of).collect();
    let silent = overview.services.iter().filter(|look| look.problem.is_some()).count() as u64;
    match (lines.is_empty(), silent) {
        (false, _) => lines,
        (true, 0) => vec!["breakers: all closed".to_owned()],
        (true, _) => {
            let silent = counted(silent, "service does", "services do");
            vec![format!("breakers: none is known to be open; {silent} not answer")]
        }
    }
}

fn complaints(overview: &Overview, view: &View) -> Vec<String> {
    let of = |look: &ServiceStatus| {
        let say = look.failing_checks.iter().map(|complaint| {
            let since = view.time(complaint.since);
            format!("{} says: {}: {} (since {since})", look.service, complaint.check, complaint.text)
        });
        say.collect::<Vec<_>>()
    };
    overview.services.iter().flat_map(of).collect()
}

/// A line of the table: a service, a process, or both.
struct Row<'a> {
    name: String,
    process: Option<&'a ProcessStatus>,
    cpu: Option<Rate>,
    look: Option<&'a ServiceStatus>,
}

impl Row<'_> {
    fn ready(&self) -> &'static str {
        match (self.process, self.look) {
            (Some(process), _) => processes::ready(process),
            (None, Some(look)) => ready(look),
            (None, None) => NONE,
        }
    }

    fn mib(&self) -> Option<String> {
        self.process?.rss_mib.map(|mib| format!("{mib:.1}"))
    }

    fn outbox(&self) -> Option<&OutboxSummary> {
        self.look?.outbox.as_ref()
    }

    fn calls(&self) -> Option<&TaskSummary> {
        self.look?.tasks.as_ref()
    }

    /// What the broker has for its steps, as far as it says.
    fn waiting(&self) -> Option<u64> {
        let look = self.look.filter(|look| look.problem.is_none())?;
        look.steps.iter().map(|step| step.waiting).sum()
    }
}

/// Columns that go first where there is little room have the lowest numbers; of processes only a local system tells.
fn columns<'a>(is_local: bool) -> Vec<Column<Row<'a>>> {
    let name =
        [left("service", |row: &Row<'_>| row.name.clone()), left("ready", |row| row.ready().to_owned())];
    let processes = [
        removable(5, right("pid", |row: &Row<'_>| or_none(row.process.and_then(|it| it.pid)))),
        removable(7, right("CPU %", |row| or_none(row.cpu))),
        removable(8, right("MiB", |row| or_none(row.mib()))),
    ];
    let work = [
        removable(
            9,
            right("to publish", |row: &Row<'_>| or_none(row.outbox().map(|it| grouped(it.pending)))),
        ),
        time("oldest", |row| row.outbox().and_then(|it| it.oldest)),
        removable(3, right("refused", |row| or_none(row.outbox().map(|it| grouped(it.failed))))),
        removable(2, right("retries", |row| or_none(row.look.and_then(|it| it.retries).map(grouped)))),
        removable(1, right("calls", |row| or_none(row.calls().map(|it| grouped(it.open))))),
        removable(6, right("waiting", |row| or_none(row.waiting().map(grouped)))),
    ];
    let processes = processes.into_iter().filter(|_| is_local);
    name.into_iter().chain(processes).chain(work).collect()
}

/// Each service and each process.
fn services(state: &State, seen: &Seen, mark: Mark, view: &View) -> Vec<Line> {
    let rows: Vec<Row<'_>> = match &state.processes {
        Some(processes) => processes
            .each
            .iter()
            .map(|process| {
                let name = process.name.to_string();
                let (cpu, look) = (state.cpu.get(&name).copied(), seen.service(&name));
                Row { name, process: Some(process), cpu, look }
            })
            .collect(),
        None => {
            let looks = seen.overview.iter().flat_map(|overview| &overview.services);
            let row = |look| Row {
                name: ServiceStatus::clone(look).service,
                process: None,
                cpu: None,
                look: Some(look),
            };
            looks.map(row).collect()
        }
    };
    if rows.is_empty() {
        return vec![];
    }
    let columns = columns(state.processes.is_some());
    let of_then = View { now: view.now.and(seen.overview.as_ref().map(|overview| overview.at)), ..*view };
    let mut texts = plain_lines(&columns, &rows, &of_then).into_iter();
    let header = texts.next().map(|header| Line::new(Mark::Header, header));
    let line = |(text, row): (String, &Row<'_>)| match row.ready() {
        "yes" | NONE => Line::new(mark, text),
        "degraded" => Line::new(Mark::Warning, text),
        _ => Line::new(Mark::Bad, text),
    };
    header.into_iter().chain(texts.zip(&rows).map(line)).collect()
}
