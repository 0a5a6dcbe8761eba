//! Shell: the local system: nats-server and the five services as processes of this machine, in one data folder.

// The system: its processes and ports, its plan, its folder.
mod arguments;
pub mod component;
pub mod data_dir;
pub mod options;
pub mod plan;
mod ports;
mod system;

// Credentials.
pub mod credentials;
mod secret_file;
pub mod tokens;
mod users;

// Processes: their programs, configuration, state and output; what operators do to them.
pub mod audit;
mod broker;
mod postgres;
pub mod process;
mod process_output;
mod readiness;

// Subcommands of sagactl.
pub mod catalogue;
pub mod proxy;
pub mod rebuild;
pub mod start;
mod start_all;
pub mod stop;
pub mod up;

// What runs in the foreground, what is shown, and access for load and chaos.
pub mod command_line;
mod endpoints;
mod notifications;
pub mod processes;
mod running;
pub mod status;
mod supervise;

pub use self::component::{Component, Ports};
pub use self::endpoints::Endpoints;
pub use self::options::LayoutOptions;
pub use self::plan::{Layout, Setting};
pub use self::postgres::url_of as postgres_url;
pub use self::running::RunningSystem;
pub use self::status::Usage;
pub use self::supervise::ShutdownSignal;
pub use self::system::System;
pub use self::users::SAGACTL;
