//! Pure: content of the screen, the most important first: whether a human is needed, why, and the details.

use admin_api::overview::{DeadLetterSummary, GroupSummary, OutboxSummary, Overview, ServiceStatus};
use admin_api::text::{counted, grouped};
use cli::table::{Column, left, plain_lines, removable, right, time};
use cli::text::{NONE, or_none};
use cli::time::{clock, distance, duration};
use cli::view::View;
use devstack::processes::{self, ProcessStatus};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

use super::layout::{Line, Mark, Section};
use super::quantile::Quantile;
use super::saga_rates::{EndedRate, Rate, SagaRates, USUAL_OUTCOMES};
use super::state::{HumanNeeded, State};
use crate::overview::problem::line;
use crate::overview::snapshot::Snapshot;
use crate::overview::text::{admin_backlog, breaker_line, broker_backlog, ready, reconciliation, saga_lines};

/// Groups of dead letters that are listed.
const MAX_GROUPS: usize = 5;

/// Returns the content. `command` is the start of commands.
pub fn sections(state: &State, command: &str, view: &View) -> Vec<Section> {
    let mut sections = vec![Section::new(vec![headline(state, view)])];
    let Some(snapshot) = &state.snapshot else { return sections };
    sections.extend(admin_outage(state, view).map(|line| Section::new(vec![line])));
    let problems = problems(state, snapshot, view);
    if !problems.is_empty() {
        sections.push(Section::new(problems).with_min_lines(2));
        sections.push(Section::new(vec![Line::new(Mark::Strong, next_command(command, view))]));
    }
    let mark = if state.admin_outage.is_some() { Mark::Old } else { Mark::Plain };
    let section = |lines: Vec<String>| {
        Section::new(lines.into_iter().map(|text| Line::new(mark, text)).collect::<Vec<_>>())
    };
    // Distances are relative to the time of the overview, which may be old.
    let overview_time = snapshot.overview.as_ref().map(|overview| overview.at);
    let then = View { now: view.now.and(overview_time), ..*view };
    if let Some(overview) = &snapshot.overview {
        sections.push(section(sagas(overview, &state.saga_rates, &then)).with_min_lines(2));
        sections.push(section(vec![dead_letters(overview)]));
        sections.push(section(breakers(overview, &then)));
        sections.push(section(vec![reconciliation(overview, &then)]));
        sections.push(section(snapshot.faults(command)));
    }
    let services = services(state, snapshot, mark, &then);
    sections.push(Section::new(services).with_min_lines(usize::MAX).separate());
    if let Some(overview) = &snapshot.overview {
        sections.push(section(vec![broker_backlog(overview)]).separate());
        sections.push(section(failing_checks(overview, &then)));
        sections.push(section(groups(overview, &then)));
        let unavailable = overview.unavailable.iter();
        let unavailable =
            unavailable.map(|part| format!("{} could not be read: {}", part.what, part.problem));
        sections.push(section(unavailable.collect()));
    }
    sections
}

/// Suggests the next command. Without room for the system, the last line of the screen names it.
fn next_command(command: &str, view: &View) -> String {
    let full = format!("next: {command} doctor");
    match view.width.is_none_or(|width| full.width() <= width) {
        true => full,
        false => "next: sagactl doctor".to_owned(),
    }
}

fn headline(state: &State, view: &View) -> Line {
    let (mark, text) = match state.human_needed() {
        HumanNeeded::Yes => {
            let snapshot = state.snapshot.as_ref();
            let down = snapshot.and_then(|snapshot| snapshot.down.as_ref()).map_or(0, Vec::len);
            let count = down + snapshot.map_or(0, |snapshot| snapshot.findings().count());
            let findings = counted(count as u64, "finding", "findings");
            (Mark::Alarm, format!("A HUMAN IS NEEDED: {findings}"))
        }
        HumanNeeded::No => (Mark::Good, "no human is needed".to_owned()),
        HumanNeeded::Unknown => (Mark::Warning, "STATE UNKNOWN: admin does not answer".to_owned()),
        HumanNeeded::NotSampled => (Mark::Plain, "waiting for the first answer …".to_owned()),
    };
    Line { right: view.now.map(|now| format!("{}Z", clock(now))), ..Line::new(mark, text) }
}

/// Describes an admin that does not answer, and the age of what is shown.
fn admin_outage(state: &State, view: &View) -> Option<Line> {
    let outage = state.admin_outage.as_ref()?;
    let age = |at: Timestamp| match view.now {
        Some(now) => format!("{}Z ({})", clock(at), distance(at, now)),
        None => view.time(at),
    };
    let shown = match state.snapshot.as_ref().and_then(|snapshot| snapshot.overview.as_ref()) {
        Some(overview) => format!("grey lines are from {}", age(overview.at)),
        None => "sagas, dead letters and breakers are unknown".to_owned(),
    };
    let text = format!("no answer from admin since {}; {shown}: {}", age(outage.since), outage.problem);
    Some(Line::new(Mark::Warning, text))
}

fn problems(state: &State, snapshot: &Snapshot, view: &View) -> Vec<Line> {
    let down = snapshot.down.iter().flatten();
    let down = down.map(|name| Line::new(Mark::Bad, format!("  {name} does not run")));
    let mark = if state.admin_outage.is_some() { Mark::Old } else { Mark::Bad };
    let findings = snapshot.findings();
    down.chain(findings.map(|finding| Line::new(mark, format!("  {}", line(finding, view))))).collect()
}

/// Counts and rates of sagas.
fn sagas(overview: &Overview, saga_rates: &SagaRates, view: &View) -> Vec<String> {
    let counts = overview.sagas.as_ref().map(|sagas| saga_lines(sagas, view));
    let counts = counts.unwrap_or_else(|| format!("sagas: {NONE}"));
    let mut counts = counts.lines().map(str::to_owned);
    let mut lines: Vec<String> = counts.next().into_iter().collect();
    let next = overview.sagas.as_ref().and_then(|sagas| sagas.next_deadline);
    lines.extend(next.map(|next| format!("  next cancellation: {}", view.time(next))));
    lines.extend(rates(saga_rates));
    lines.extend(counts);
    let unconsumed = overview.unconsumed.filter(|unconsumed| *unconsumed > 0);
    lines.extend(unconsumed.map(|count| format!("  {}: these counts lag", admin_backlog(count))));
    lines
}

fn rates(saga_rates: &SagaRates) -> Vec<String> {
    let Some(report) = saga_rates.report() else {
        return vec![format!("  {NONE} per second: rates need two samples")];
    };
    let usual = USUAL_OUTCOMES.iter().filter_map(|outcome| report.ended.get_key_value(*outcome));
    let is_shown = |(outcome, ended): &(&String, &EndedRate)| {
        !USUAL_OUTCOMES.contains(&outcome.as_str()) && ended.rate.tenths > 0
    };
    let outcomes = usual.chain(report.ended.iter().filter(is_shown));
    let mut lines: Vec<_> = outcomes
        .map(|(outcome, EndedRate { rate, p50, p99 })| {
            let (p50, p99) = (quantile(*p50), quantile(*p99));
            format!("  {outcome:<11} {:>7}/s  p50 {p50}  p99 {p99}", rate.to_string())
        })
        .collect();
    let (started, seconds) = (or_none(report.started), report.period.as_secs().max(1));
    lines.push(format!("  {:<11} {started:>7}/s  over the last {seconds} s", "started"));
    lines
}

fn quantile(quantile: Option<Quantile>) -> String {
    let text = |length: std::time::Duration| duration(i64::try_from(length.as_millis()).unwrap_or(i64::MAX));
    match quantile {
        Some(Quantile::About(length)) => text(length),
        Some(Quantile::Beyond(length)) => format!("over {}", text(length)),
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
    let groups = overview.dead_letters.iter().flat_map(|dead_letters| &dead_letters.groups);
    let line = |group: &GroupSummary| {
        let GroupSummary { count, service, step, fingerprint, newest_at, reason, .. } = group;
        let (count, newest) = (counted(*count, "dead letter", "dead letters"), view.time(*newest_at));
        format!("{count} at {step} of {service}, {fingerprint}, the newest {newest}: {reason}")
    };
    groups.take(MAX_GROUPS).map(line).collect()
}

/// Breakers that are not closed.
fn breakers(overview: &Overview, view: &View) -> Vec<String> {
    let breakers = overview
        .services
        .iter()
        .flat_map(|status| status.breakers.iter().map(move |breaker| (&status.service, breaker)));
    let lines: Vec<_> = breakers.map(|(service, breaker)| breaker_line(service, breaker, view)).collect();
    let unreachable = overview.services.iter().filter(|status| status.problem.is_some()).count() as u64;
    match (lines.is_empty(), unreachable) {
        (false, _) => lines,
        (true, 0) => vec!["breakers: all closed".to_owned()],
        (true, _) => {
            let services = counted(unreachable, "service does", "services do");
            vec![format!("breakers: none is known to be open; {services} not answer")]
        }
    }
}

fn failing_checks(overview: &Overview, view: &View) -> Vec<String> {
    let checks = overview
        .services
        .iter()
        .flat_map(|status| status.failing_checks.iter().map(move |check| (&status.service, check)));
    let line = |(service, check): (&String, &admin_api::overview::FailingCheck)| {
        format!("{service}: check {}: {} (since {})", check.check, check.text, view.time(check.since))
    };
    checks.map(line).collect()
}

/// A row of the table: a service, a process, or both.
struct Row<'a> {
    name: &'a str,
    process: Option<&'a ProcessStatus>,
    cpu: Option<Rate>,
    service: Option<&'a ServiceStatus>,
}

impl Row<'_> {
    fn ready(&self) -> &'static str {
        match (self.process, self.service) {
            (Some(process), _) => processes::ready(process),
            (None, Some(status)) => ready(status),
            (None, None) => NONE,
        }
    }

    fn mib(&self) -> Option<String> {
        self.process?.rss_mib.map(|mib| format!("{mib:.1}"))
    }

    fn outbox(&self) -> Option<&OutboxSummary> {
        self.service?.outbox.as_ref()
    }

    fn open_tasks(&self) -> Option<u64> {
        self.service?.tasks.as_ref().map(|tasks| tasks.open)
    }

    /// Messages that wait for its steps at the broker; `None` if the number of any is unknown.
    fn waiting(&self) -> Option<u64> {
        let status = self.service.filter(|status| status.problem.is_none())?;
        status.steps.iter().map(|step| step.waiting).sum()
    }
}

/// Columns of the table; those of processes only for a local system.
fn columns<'a>(is_local: bool) -> Vec<Column<Row<'a>>> {
    let name =
        [left("service", |row: &Row<'_>| row.name.to_owned()), left("ready", |row| row.ready().to_owned())];
    let processes = [
        removable(5, right("pid", |row: &Row<'_>| or_none(row.process.and_then(|process| process.pid)))),
        removable(7, right("CPU %", |row| or_none(row.cpu))),
        removable(8, right("MiB", |row| or_none(row.mib()))),
    ];
    let work = [
        removable(
            9,
            right("unpublished", |row: &Row<'_>| or_none(row.outbox().map(|outbox| grouped(outbox.pending)))),
        ),
        time("oldest", |row| row.outbox().and_then(|outbox| outbox.oldest)),
        removable(3, right("rejected", |row| or_none(row.outbox().map(|outbox| grouped(outbox.failed))))),
        removable(
            2,
            right("retries", |row| or_none(row.service.and_then(|status| status.retries).map(grouped))),
        ),
        removable(1, right("tasks", |row| or_none(row.open_tasks().map(grouped)))),
        removable(6, right("waiting", |row| or_none(row.waiting().map(grouped)))),
    ];
    let processes = processes.into_iter().filter(|_| is_local);
    name.into_iter().chain(processes).chain(work).collect()
}

/// Table of services and processes.
fn services(state: &State, snapshot: &Snapshot, mark: Mark, view: &View) -> Vec<Line> {
    let names: Vec<String> = match &state.processes {
        Some(processes) => processes.each.iter().map(|process| process.name.to_string()).collect(),
        None => {
            let services = snapshot.overview.iter().flat_map(|overview| &overview.services);
            services.map(|status| status.service.clone()).collect()
        }
    };
    if names.is_empty() {
        return vec![];
    }
    let processes = state.processes.as_ref().map(|processes| processes.each.iter());
    let processes = processes.into_iter().flatten().map(Some).chain(std::iter::repeat(None));
    let row = |(name, process)| Row {
        name,
        process,
        cpu: state.cpu.get(name).copied(),
        service: snapshot.service(name),
    };
    let rows: Vec<Row<'_>> = names.iter().map(String::as_str).zip(processes).map(row).collect();
    let columns = columns(state.processes.is_some());
    let mut texts = plain_lines(&columns, &rows, view).into_iter();
    let header = texts.next().map(|header| Line::new(Mark::Header, header));
    let line = |(text, row): (String, &Row<'_>)| match row.ready() {
        "yes" | NONE => Line::new(mark, text),
        "degraded" => Line::new(Mark::Warning, text),
        _ => Line::new(Mark::Bad, text),
    };
    header.into_iter().chain(texts.zip(&rows).map(line)).collect()
}
