//! Shell: the foreground: says when a process comes or goes, until told to stop.

use std::collections::BTreeSet;
use std::process::{Child, ExitCode, ExitStatus};
use std::time::Duration;

use crate::member::Member;
use crate::system::{self, System};
use crate::up::StopSignals;
use crate::{process, stop};

/// What a person takes for "at once".
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Watches until a signal comes, then stops everything. Also ends when everything was stopped from elsewhere.
pub async fn run(
    system: &System,
    mut children: Vec<(Member, Child)>,
    mut told_to_stop: StopSignals,
) -> anyhow::Result<ExitCode> {
    let mut known: BTreeSet<Member> = Member::ALL.into();
    loop {
        tokio::select! {
            () = told_to_stop.recv() => break,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let ended = reap(&mut children);
        let running: BTreeSet<_> =
            Member::ALL.into_iter().filter(|member| process::find(system, *member).is_some()).collect();
        for member in known.difference(&running) {
            say_gone(system, *member, ended.iter().find(|(ended, _)| ended == member));
        }
        for member in running.difference(&known) {
            println!("{member} runs again");
        }
        known = running;
        if known.is_empty() {
            println!("everything was stopped");
            return Ok(ExitCode::SUCCESS);
        }
    }
    println!("stopping everything");
    let _lock = system::lock(system.folder()).await?;
    stop::all(system).await?;
    reap(&mut children);
    Ok(ExitCode::SUCCESS)
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
        println!("{member} was stopped");
        return;
    }
    let how = ended.map_or_else(String::new, |(_, status)| format!(" ({status})"));
    let (log, folder) = (system.log_of(member), system.folder());
    println!(
        "{member} died{how}; see {}, and start it again with: sagactl --data {} start {member}",
        log.display(),
        folder.display()
    );
}
