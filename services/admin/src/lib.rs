//! Shell: the admin service: the view of all sagas and dead letters, operator actions, reconciliation, notifications.
//!
//! Inputs: two steps consume the facts of sagas and the reports of dead letters; routes take requests of operators; three
//! loops drive redrives, send notifications and reconcile. In reading order, each module knows only those before it:
//!
//! - [`topology`]: the messages that admin consumes
//! - `rows`: reads single rows
//! - [`audit_log`]: who changed what, when and why
//! - [`dead_letters`]: dead letters of all services, and operator actions on them
//! - [`redrive`]: replays of many dead letters with a canary, a rate and an automatic stop
//! - [`sagas`]: counts of sagas
//! - [`ledgers`]: the ledgers of all services compared, order by order
//! - [`notifications`]: what people were notified of
//! - [`settings`]: the section `service`
//! - [`resolution`]: manual resolution of sagas and dead letters
//! - [`commands`]: requests of operators and loops
//! - `command_handler`: what commands change
//! - [`service`]: the service: messages, commands, and what follows from events
//! - `app`: the running service
//! - `service_client`: calls to the other services
//! - [`redrive_driver`]: the loop that drives redrives
//! - [`overview`]: the state of everything, and the findings that follow from it
//! - `notification_loop`: the loop that notifies people of findings
//! - [`reconciliation`]: reads the ledgers of all services, on request and periodically
//! - `live`: events for open pages
//! - [`api`]: the routes
//! - `console`: the pages

pub mod api;
mod app;
pub mod audit_log;
mod command_handler;
pub mod commands;
mod console;
pub mod dead_letters;
mod kept_traces;
pub mod ledgers;
mod live;
mod notification_loop;
pub mod notifications;
pub mod overview;
pub mod reconciliation;
pub mod redrive;
pub mod redrive_driver;
pub mod resolution;
mod rows;
pub mod sagas;
pub mod service;
mod service_client;
pub mod settings;
pub mod topology;

use contract::topology::producers;
use saga_engine::host::app::Program;

pub use self::app::AdminApp;
use self::service::AdminService;
use self::settings::AdminSettings;
pub use self::topology::{NAME, STEPS};

const DEFAULTS: &str = r#"
[http]
bind = "127.0.0.1:8080"
body_limit_bytes = 524288
# The services that publish facts log them too.
[log]
filter = "info,saga::step=warn"
# Nobody waits for the view. Longer batches write a saga's row once for several of its facts.
[engine]
max_batch_delay = "250ms"
max_batch = 1000
[service]
require_operator = false
"#;

pub fn program() -> Program<AdminService, AdminSettings> {
    Program {
        producers: producers().collect(),
        handler: |settings| notifications::webhook::handler(&settings.service.notifications, &settings.http),
        tasks: &[notifications::content::NOTIFICATION_TASK],
        metrics: &contract::metrics::OF_ADMIN,
        pages: console::pages,
        background: |app| {
            vec![
                Box::pin(redrive_driver::run(app.clone())),
                Box::pin(notification_loop::run(app.clone())),
                Box::pin(kept_traces::run(app.clone())),
                Box::pin(reconciliation::periodic::run(app)),
            ]
        },
        ..Program::new(DEFAULTS, |_| AdminService, api::routes, &contract::access::ACCESS)
    }
}
