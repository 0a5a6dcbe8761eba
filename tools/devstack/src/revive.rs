//! Shell: a broker that runs and takes no messages, which nats-server does not get over by itself after its disk was
//! full: it is restarted as soon as there is room again.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::sync::mpsc;

use super::member::Member;
use super::system::System;
use super::{broker, folder, process, readiness, stop};
use cli::say;
use client::http::Http;

/// The services are asked this often, and may take as long to answer.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// More than the largest message that the broker takes (1 MiB), which would otherwise stop it again at once.
const ROOM_BYTES: usize = 2 * 1024 * 1024;
/// After a restart that did not help, the next waits this long, each time twice as long, and at most this long.
const PAUSES: (Duration, Duration) = (Duration::from_secs(15), Duration::from_mins(5));

/// Watches until dropped. Brokers that it starts go to `started`, to be reaped by whoever reaps.
pub async fn watch(system: &System, http: Http, started: mpsc::UnboundedSender<(Member, Child)>) {
    let mut brokers: Vec<_> = system.layout().brokers().map(|broker| (broker, Stuck::default())).collect();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for (broker, stuck) in &mut brokers {
            if let Some(child) = look(system, &http, *broker, stuck).await {
                let _ = started.send((*broker, child));
            }
        }
    }
}

/// Looks at one broker; answers its new process, if it was restarted.
async fn look(system: &System, http: &Http, broker: Member, stuck: &mut Stuck) -> Option<Child> {
    let held_up = held_up(http, system, broker).await;
    // Somebody else may have started it.
    stuck.is_down &= process::find(system, broker).is_none();
    let is_stuck = held_up.is_some() || stuck.is_down;
    let room = if is_stuck { has_room(&system.data_of(broker)) } else { Ok(()) };
    let action = stuck.look(is_stuck, room.is_ok(), Instant::now());
    let why = held_up.unwrap_or_default();
    match action {
        Action::Nothing => None,
        Action::SayThatItIsFull => {
            let no_room = room.err().map_or_else(String::new, |error| format!(" ({error})"));
            say(&format!(
                "{broker} takes no messages, and there is no room in {}{no_room}: make room, then it is restarted; {why}",
                system.data_of(broker).display()
            ));
            None
        }
        Action::Restart => {
            say(&format!("{broker} takes no messages although there is room: it is restarted; {why}"));
            let restarted = restart(system, http, broker).await;
            stuck.is_down = restarted.is_err();
            say(&match &restarted {
                Ok(_) => format!("{broker} was restarted"),
                Err(error) => format!("{broker} cannot be restarted, and is tried again later: {error:#}"),
            });
            restarted.ok()
        }
    }
}

/// What is to be done about a broker after a look.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Nothing,
    SayThatItIsFull,
    Restart,
}

/// What is remembered of a broker that is stuck.
#[derive(Debug, Default)]
struct Stuck {
    /// It was said that there is no room.
    is_said: bool,
    /// Not before this time, and this is how long the pause after the next one is.
    next: Option<(Instant, Duration)>,
    /// It was stopped here, and did not start again.
    is_down: bool,
}

impl Stuck {
    fn look(&mut self, is_stuck: bool, has_room: bool, now: Instant) -> Action {
        if !is_stuck {
            // The pause stays until it is over: a restart that helped for a moment did not help.
            self.next = self.next.filter(|(at, _)| now < *at);
            self.is_said = false;
            return Action::Nothing;
        }
        if !has_room {
            return if std::mem::replace(&mut self.is_said, true) {
                Action::Nothing
            } else {
                Action::SayThatItIsFull
            };
        }
        let pause = match self.next {
            Some((at, _)) if now < at => return Action::Nothing,
            Some((_, pause)) => pause,
            None => PAUSES.0,
        };
        self.next = Some((now + pause, (pause * 2).min(PAUSES.1)));
        self.is_said = false;
        Action::Restart
    }
}

/// Of a broker alone, what a service says of it that takes nothing from it. Of one of several, that it stores nothing
/// itself: then the others take what there is.
async fn held_up(http: &Http, system: &System, broker: Member) -> Option<String> {
    if system.layout().nats_nodes > 1 {
        let is_off = readiness::stores_nothing(system, broker).await;
        return is_off.then(|| "it says that it stores nothing".to_owned());
    }
    let ask = async |member: Member| {
        let url = format!("{}/readyz", system.url_of(member));
        let answer = http.get_within(&url, LOOK_EVERY).await.ok()?;
        let publishing = answer.body.pointer("/checks/publishing")?;
        let text = publishing["text"].as_str().filter(|_| publishing["state"] != "ok")?;
        Some(format!("{member} says: {text}"))
    };
    join_all(system.layout().services().map(ask)).await.into_iter().flatten().next()
}

/// Whether something can be written there, and gets to the disk.
fn has_room(folder: &Path) -> io::Result<()> {
    let path = folder.join("room");
    let write = || {
        let mut file = File::create(&path)?;
        file.write_all(&vec![0; ROOM_BYTES])?;
        file.sync_all()
    };
    let written = write();
    // It may not have come to be.
    let _ = std::fs::remove_file(&path);
    written
}

async fn restart(system: &System, http: &Http, broker: Member) -> anyhow::Result<Child> {
    let _lock = folder::lock(system.folder()).await?;
    stop::one(system, broker).await?;
    process::wait_for_port(system, broker).await?;
    broker::configure(system, broker)?;
    let mut started = [(broker, process::spawn(system, broker)?)];
    if let Err(error) = readiness::wait(http, system, &mut started, readiness::LIMIT).await {
        stop::one(system, broker).await?;
        return Err(error);
    }
    let [(_, started)] = started;
    Ok(started.child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_restarted_once_there_is_room_and_then_ever_more_rarely() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut stuck = Stuck::default();
        let looks = [
            (0, false, false, Action::Nothing),
            (1, true, false, Action::SayThatItIsFull),
            (2, true, false, Action::Nothing),
            (3, true, true, Action::Restart),
            (4, true, true, Action::Nothing),
            (17, true, true, Action::Nothing),
            (18, true, true, Action::Restart),
            (40, true, true, Action::Nothing),
            (48, true, true, Action::Restart),
            (50, false, true, Action::Nothing),
            (51, true, true, Action::Nothing),
            (108, false, true, Action::Nothing),
            (109, true, true, Action::Restart),
            (124, true, true, Action::Restart),
        ];
        for (second, is_stuck, has_room, action) in looks {
            assert_eq!(stuck.look(is_stuck, has_room, after(second)), action, "after {second} s");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_has_no_room() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(has_room(folder.path()).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "nothing is left");
        assert!(has_room(&folder.path().join("not-there")).is_err());
    }
}
