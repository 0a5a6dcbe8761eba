//! Pure: checks for any decider: its printed state table, and arbitrary sequences of commands.

use std::fmt::Debug;

use saga_core::decider::Decider;

/// Maximum width of the commands that share a line of a table.
const LIST_WIDTH: usize = 56;

/// Names of states, commands and rejections in a table.
pub struct Names<D: Decider> {
    /// Name of a state, in the first and the last column.
    pub state: fn(&D) -> String,
    /// Name of a command, in the second column.
    pub command: fn(&D::Command) -> String,
    /// Name of a rejection, shown after `no:`.
    pub rejection: fn(&D::Rejection) -> String,
}

/// Prints the result of every command in every state. Commands with the same result share a line. In each state, changes
/// come first, then commands without effect, then rejections.
#[must_use]
pub fn table<D: Decider>(states: &[D], commands: &[D::Command], names: &Names<D>) -> String {
    let mut lines = vec![["state", "commands", "answer", "state after"].map(str::to_owned)];
    for state in states {
        let mut answers: Vec<(Answer, Vec<String>)> = Vec::new();
        for command in commands {
            let (answer, name) = (answer(state, command, names), (names.command)(command));
            match answers.iter_mut().find(|(known, _)| *known == answer) {
                Some((_, named)) => named.push(name),
                None => answers.push((answer, vec![name])),
            }
        }
        answers.sort_by_key(|(answer, _)| answer.rank);
        let mut name = (names.state)(state);
        for (Answer { mut text, mut after, .. }, commands) in answers {
            for commands in wrapped(&commands) {
                let [name, text, after] = [&mut name, &mut text, &mut after].map(std::mem::take);
                lines.push([name, commands, text, after]);
            }
        }
    }
    aligned(&lines)
}

/// Wraps a list of names into lines.
fn wrapped(names: &[String]) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (index, name) in names.iter().enumerate() {
        let comma = if index + 1 < names.len() { "," } else { "" };
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = format!("{name}{comma}"),
            Some(line) if line.len() + name.len() < LIST_WIDTH => *line = format!("{line} {name}{comma}"),
            _ => lines.push(format!("{name}{comma}")),
        }
    }
    lines
}

/// Aligns columns to their widest cell.
#[must_use]
pub fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let padded = |line: &[String; N]| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(padded).collect::<Vec<_>>().join("\n")
}

/// Executes `commands` in sequence on a new state, and calls `check` after each. Checks that a repeated command changes
/// nothing, unless it is one that `add_up`, and that the state survives serialization.
///
/// # Panics
/// If one of these checks fails.
#[track_caller]
pub fn any_sequence<D: Decider + PartialEq>(
    commands: &[D::Command],
    add_up: impl Fn(&D::Command) -> bool,
    mut check: impl FnMut(&D, &[D::Event]),
) where
    D::Command: Debug,
{
    let mut state = D::default();
    for command in commands {
        let events = state.decide(command).unwrap_or_default();
        for event in &events {
            state.evolve(event);
        }
        let again = state.decide(command).map_or(0, |events| events.len());
        assert!(again == 0 || add_up(command), "{command:?} changes {state:?} again");
        let json = serde_json::to_string(&state).expect("a state has a JSON form");
        assert_eq!(serde_json::from_str::<D>(&json).expect("a state can be read"), state);
        check(&state, &events);
    }
}

/// Result of a command in a state.
#[derive(PartialEq)]
struct Answer {
    rank: u8,
    text: String,
    after: String,
}

fn answer<D: Decider>(state: &D, command: &D::Command, names: &Names<D>) -> Answer {
    let (rank, text, after) = match state.decide(command) {
        Err(rejection) => (2, format!("no: {}", (names.rejection)(&rejection)), String::new()),
        Ok(events) if events.is_empty() => (1, "nothing".to_owned(), String::new()),
        Ok(events) => {
            let mut after = state.clone();
            events.iter().for_each(|event| after.evolve(event));
            (0, events.iter().map(D::event_name).collect::<Vec<_>>().join(" + "), (names.state)(&after))
        }
    };
    Answer { rank, text, after }
}
