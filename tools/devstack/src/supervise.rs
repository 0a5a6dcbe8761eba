//! Shell: the foreground: says when a process comes or goes and what admin tells people, until a signal ends everything.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::member::Member;
use super::system::System;
use super::told::told;
use super::{folder, notices, process, revive, stop};
use cli::say;
use client::http::Http;

/// What a person takes for "at once".
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Whoever stops a process forgets it this soon after it is gone: one that is still recorded then has died.
const FORGOTTEN_WITHIN: Duration = Duration::from_millis(200);

/// SIGINT, SIGTERM and SIGHUP: from the moment this exists they end nothing by themselves.
pub struct ShutdownSignal([Signal; 3]);

impl ShutdownSignal {
    pub fn listen() -> io::Result<Self> {
        Ok(Self([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Resolves when one of them comes.
    pub async fn recv(&mut self) {
        let Self([interrupt, terminate, hangup]) = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Watches until a signal comes, then stops everything. Also ends when everything was stopped from elsewhere.
pub async fn run(
    system: &System,
    mut children: Vec<(Member, Child)>,
    mut shutdown_signal: ShutdownSignal,
) -> anyhow::Result<ExitCode> {
    let mut known: BTreeSet<Member> = system.members().collect();
    let (started, mut restarted) = mpsc::unbounded_channel();
    let mut watching = Box::pin(revive::watch(system, Http::new()?, started));
    let mut told = Box::pin(notices::watch(system, Http::by(&system.entry()?)?));
    loop {
        tokio::select! {
            () = shutdown_signal.recv() => break,
            () = &mut watching => {}
            () = &mut told => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        while let Ok(child) = restarted.try_recv() {
            children.push(child);
        }
        let mut ended = reap(&mut children);
        let running: BTreeSet<_> =
            system.members().filter(|member| process::find(system, *member).is_some()).collect();
        if !known.is_subset(&running) {
            tokio::time::sleep(FORGOTTEN_WITHIN).await;
            ended.extend(reap(&mut children));
        }
        for member in known.difference(&running) {
            say_gone(system, *member, ended.iter().find(|(ended, _)| ended == member));
        }
        for member in running.difference(&known) {
            say(&format!("{member} runs again"));
        }
        known = running;
        if known.is_empty() {
            return all_are_gone(system);
        }
    }
    say("stopping everything");
    // It may hold the lock.
    drop(watching);
    let _lock = folder::lock(system.folder()).await?;
    stop::all(system).await?;
    reap(&mut children);
    Ok(ExitCode::SUCCESS)
}

/// Nothing runs any more: because somebody stopped it, or because it died.
fn all_are_gone(system: &System) -> anyhow::Result<ExitCode> {
    let dead = Member::names(system.members().filter(|member| process::is_recorded(system, *member)));
    if dead.is_empty() {
        say("everything was stopped");
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::bail!(
        "nothing runs any more: {dead} died, and nobody stopped them; see the logs in {}",
        system.log_dir().display()
    )
}

/// Lets the kernel forget children that ended, and tells how they did.
fn reap(children: &mut Vec<(Member, Child)>) -> Vec<(Member, ExitStatus)> {
    let mut ended = Vec::new();
    children.retain_mut(|(member, child)| match child.try_wait() {
        Ok(Some(status)) => {
            ended.push((*member, status));
            false
        }
        Ok(None) => true,
        Err(_) => false,
    });
    ended
}

fn say_gone(system: &System, member: Member, ended: Option<&(Member, ExitStatus)>) {
    if !process::is_recorded(system, member) {
        say(&format!("{member} was stopped"));
        return;
    }
    let how = ended.map_or_else(String::new, |(_, status)| format!(" ({status})"));
    let start = told(system.folder(), &format!("start {member}"));
    let (log, stderr) = (system.log_of(member), system.stderr_of(member));
    say(&format!(
        "{member} died{how}; see {} and {}, and start it again with: {start}",
        log.display(),
        stderr.display()
    ));
}
