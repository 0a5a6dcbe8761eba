//! Shell: the local system: nats-server and the five services as processes of this machine, in one folder.

// The processes, their names and ports.
pub mod member;

// How they are started, and the folder in which they live.
mod arguments;
pub mod folder;
pub mod plan;
mod system;
pub mod tokens;

// One process: start, find, signal; what the broker and the database server are told; whether it can do its work; its end.
mod broker;
pub mod credentials;
pub mod front;
mod postgres;
mod process;
mod readiness;
pub mod stop;
mod users;

// What can be asked of the system.
mod notices;
pub mod options;
pub mod processes;
pub mod rebuild;
mod revive;
mod running;
pub mod single;
pub mod status;
mod supervise;
pub mod told;
pub mod up;

// Where it is, and the products it sells.
pub mod catalogue;
mod reach;
pub mod seed;

pub use self::member::{Member, Ports};
pub use self::options::LayoutOptions;
pub use self::plan::{Layout, Setting};
pub use self::postgres::url_of as postgres_url;
pub use self::reach::Reach;
pub use self::running::RunningSystem;
pub use self::status::Usage;
pub use self::supervise::ShutdownSignal;
pub use self::system::System;
pub use self::users::SAGACTL;

/// Signals a process, if it runs.
pub fn signal(system: &System, member: Member, signal: nix::sys::signal::Signal) {
    // One that is gone needs none.
    let _ = process::find(system, member).map(|running| process::send(running, signal));
}
