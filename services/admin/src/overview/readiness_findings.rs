//! Pure: the rules about services that do not answer, are not ready, or are short of what they need.

use admin_api::overview::{FailingCheck, Finding, FindingCode, ServiceStatus, StepStatus, UNTRUSTED};
use admin_api::text::counted;
use contract::saga;

use crate::topology::NAME;

/// Evaluates the health of a service. A stalled step is reported instead of the check that detects it.
pub fn of_readiness(service: &ServiceStatus) -> Vec<Finding> {
    if let Some(problem) = &service.problem {
        return vec![unreachable(&service.service, problem)];
    }
    let stalled = service.steps.iter().filter(|step| step.stalled_since.is_some());
    let mut findings: Vec<_> = stalled.map(|step| consumer_stall(service, step)).collect();
    let is_reported = !findings.is_empty();
    // An overloaded service is ready, for all that it does not reject. Its customers are rejected all the same.
    let failed = service.failing_checks.iter().filter(|check| check.failed || check.check == OVERLOAD);
    let others = failed.filter(|check| check.check != "consumer_stall" || !is_reported);
    findings.extend(others.map(|check| not_ready(service, check)));
    let disk = service.failing_checks.iter().find(|check| check.check == DISK);
    findings.extend(disk.map(|check| disk_space_low(&service.service, check)));
    let crashes = service.failing_checks.iter().find(|check| check.check == CRASHES);
    findings.extend(crashes.map(|check| crash_loop(&service.service, check)));
    let overrides = service.failing_checks.iter().find(|check| check.check == OVERRIDES);
    findings.extend(overrides.map(|check| overrides_unreadable(&service.service, check)));
    findings
}

fn unreachable(service: &str, problem: &str) -> Finding {
    let explanation = if problem.contains(UNTRUSTED) {
        "It runs, and a restart changes nothing. The side that calls does not trust its certificate: correct the file that \
         is named, which is read again without a restart. Other callers of that service may fail alike."
    } else if service == NAME {
        "The saga view, dead letters and notifications are not updated until it is back. Orders continue without it."
    } else {
        "Messages for it wait at the broker until it is back. Orders that need it wait until their deadline. Its log \
         shows why it does not answer."
    };
    Finding {
        service: Some(service.to_owned()),
        urgent: true,
        may_pass: true,
        ..Finding::new(FindingCode::Unreachable, service, problem.to_owned())
    }
    .explained(explanation, &[])
}

/// Check of a service whose database has little disk space left.
const DISK: &str = "disk";

fn disk_space_low(service: &str, check: &FailingCheck) -> Finding {
    Finding {
        service: Some(service.to_owned()),
        since: Some(check.since),
        urgent: true,
        ..Finding::new(FindingCode::DiskSpaceLow, service, format!("{service}: {}", check.text))
    }
    .explained(
        "Without space nothing can be stored: orders are rejected, and messages wait at the broker. Free space on that disk, \
         or make it larger. Old archives and logs can go; the database and its -wal file never. A long write-ahead log is \
         emptied once the process that reads the database has ended.",
        &["status"],
    )
}

/// Check of a service whose processes keep crashing.
const CRASHES: &str = "crashes";

fn crash_loop(service: &str, check: &FailingCheck) -> Finding {
    Finding {
        service: Some(service.to_owned()),
        since: Some(check.since),
        urgent: true,
        ..Finding::new(FindingCode::CrashLoop, service, format!("{service} crashes: it {}", check.text))
    }
    .explained(
        "Its last words are in its log and on its standard error. Messages wait at the broker while it is down. One that \
         it dies of each time is found and dead-lettered, after at most five crashes. The finding ends ten \
         minutes after the last crash, or with an orderly stop.",
        &["dlq list", "faults", "log --action process.kill"],
    )
}

/// Check of a service that cannot read the overrides by operators.
const OVERRIDES: &str = "overrides";

fn overrides_unreadable(service: &str, check: &FailingCheck) -> Finding {
    Finding {
        service: Some(service.to_owned()),
        since: Some(check.since),
        ..Finding::new(FindingCode::OverridesUnreadable, service, format!("{service}: {}", check.text))
    }
    .explained(
        "Its processes keep the breakers and faults that they last read; one that starts now has none. Check what is in \
         force, and force again what should be: each such change writes them anew. If nothing should be, clear the faults, \
         which does so too.",
        &["breakers", "faults", "log --action breaker.open", &format!("faults clear {service}")],
    )
}

/// Check of a service that rejects new requests.
pub(super) const OVERLOAD: &str = "overload";

fn not_ready(status: &ServiceStatus, check: &FailingCheck) -> Finding {
    let FailingCheck { check: name, text, since, .. } = check;
    let service = &status.service;
    // A disk does not empty itself, as a queue does.
    let needs_disk = name == OVERLOAD && status.failing_checks.iter().any(|check| check.check == DISK);
    let (explanation, commands): (_, &[&str]) = match name.as_str() {
        "store" => (
            "Its database cannot be used: commands get 503, messages wait at the broker. The check says why: the disk is full \
             or broken, it was made read-only, or another process holds a lock on it. If its file was deleted, the process \
             holds the last copy: copy that first, as the check says, and only then stop the service.",
            &["status"],
        ),
        "database" => (
            "Its database was replaced by an older copy while it ran. Nothing is stored, published or shown from it. Stop \
             the service, restore the newest copy of the database, and start the service. What is still missing is named \
             by the start; once that is accepted, publish again what the others may lack, and reconcile.",
            &["reconcile --full"],
        ),
        "startup" => (
            "It has not reached the broker since its start, and accepts nothing before. Check the broker.",
            &["status"],
        ),
        OVERLOAD if needs_disk => ("It rejects new requests until there is room on its disk.", &["status"]),
        OVERLOAD => ("It rejects new requests, because it cannot publish fast enough.", &["outbox list"]),
        "stopping" => ("It was told to stop.", &["status"]),
        "consumer_stall" => ("Messages for it wait at the broker.", &["breakers", "faults"]),
        _ => ("It does not accept work.", &[]),
    };
    Finding {
        service: Some(service.clone()),
        since: Some(*since),
        urgent: needs_disk || matches!(name.as_str(), "store" | "database"),
        may_pass: !needs_disk,
        ..Finding::new(
            FindingCode::NotReady,
            &format!("{service}/{name}"),
            match name.as_str() {
                OVERLOAD => format!("{service} rejects new requests ({name}): {text}"),
                _ => format!("{service} is not ready ({name}): {text}"),
            },
        )
    }
    .explained(explanation, commands)
}

/// Checks of a broker that cannot be used: not reached, or it takes no messages.
const BROKER_CHECKS: [&str; 2] = ["broker", "publish_stall"];

pub fn broker_unavailable(services: &[ServiceStatus]) -> Option<Finding> {
    let of_broker = |check: &&FailingCheck| BROKER_CHECKS.contains(&check.check.as_str());
    let failing = |service: &ServiceStatus| service.failing_checks.iter().find(of_broker).cloned();
    let affected: Vec<_> =
        services.iter().filter_map(|service| Some((&service.service, failing(service)?))).collect();
    let (_, first) = affected.iter().min_by_key(|(_, check)| check.since)?;
    let names = affected.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let found = Finding {
        since: Some(first.since),
        urgent: true,
        may_pass: true,
        ..Finding::new(
            FindingCode::BrokerUnavailable,
            "",
            format!("{names} cannot use the broker: {}", first.text),
        )
    };
    let explanation = "Nothing is published or consumed there until it is back. Orders wait until their deadline, and are \
                       cancelled then; after a while new ones are rejected. Start the broker, or restore the network.";
    Some(found.explained(explanation, &["status", "outbox list"]))
}

fn consumer_stall(service: &ServiceStatus, step: &StepStatus) -> Finding {
    let StepStatus { step: name, waiting, stalled_since, paused } = step;
    let backlog = waiting.map(|waiting| counted(waiting, "message waits", "messages wait"));
    let backlog = backlog.unwrap_or_else(|| "messages wait".to_owned());
    let clear = service.clear_faults_command().filter(|_| *paused);
    let by_fault = if *paused { ", paused by an injected fault" } else { "" };
    let explanation = if clear.is_some() {
        "An injected fault pauses it until that is cleared; then it continues. Orders that need it wait until their \
         deadline."
    } else {
        "No breaker is open, and it processes nothing. After a restart it continues where it was."
    };
    let mut commands = vec![clear.unwrap_or_else(|| "faults".to_owned())];
    if saga::steps().any(|known| known == name) {
        commands.push(format!("saga list --stuck-at {name}"));
    }
    Finding {
        service: Some(service.service.clone()),
        since: *stalled_since,
        count: *waiting,
        urgent: true,
        explanation: explanation.to_owned(),
        commands,
        ..Finding::new(
            FindingCode::ConsumerStall,
            &format!("{}/{name}", service.service),
            format!("{name} of {} is stalled: {backlog}{by_fault}", service.service),
        )
    }
}
