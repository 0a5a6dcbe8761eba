//! Shell: delivers notifications, signed, to the receiver of the settings, or to standard output.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode, Url, redirect};
use saga_core::waiting::Task;
use saga_engine::host::http::{
    HttpSettings, external_client_builder, is_passing, record_external, retry_after,
};
use saga_engine::reloaded::{BadFile, Kept, read_protected};
use saga_engine::runtime::task_runner::{CallFailed, TaskHandler};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tracing::{error, warn};

use super::content::Notification;
use super::settings::{NotificationSettings, RECEIVER, WebhookSettings};
use super::signing::{Secret, signatures};

/// Time limit of a connection. The delivery is tried again.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// File permissions that a secret must not have. The group may read it, as a pod needs that.
const OPEN_TO_OTHERS: u32 = 0o007;

/// Help for a missing secret file.
const SECRET_HELP: &str = "name the file with the keys that sign notifications: `(umask 077; echo \
    whsec_$(openssl rand -base64 24) > FILE)` creates one";

/// Creates the task handler that delivers notifications.
///
/// # Errors
/// Returns a sentence that names an invalid setting without its value.
pub fn handler(
    notifications: &NotificationSettings,
    http: &HttpSettings,
) -> anyhow::Result<Arc<dyn TaskHandler>> {
    let invalid = |why| anyhow::anyhow!("settings: {why}");
    notifications.check().map_err(invalid)?;
    let secrets = secrets(&notifications.webhook).map_err(invalid)?;
    if notifications.webhook.url.is_empty() {
        return Ok(Arc::new(StandardOutput::new()?));
    }
    let url = address(&notifications.webhook.url).map_err(invalid)?;
    // Redirects are not followed: notifications go only where the settings say.
    let http = external_client_builder(http)
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_WITHIN)
        // Notifications are rare, so that a pooled connection would be closed by then.
        .pool_max_idle_per_host(0)
        .build()?;
    Ok(Arc::new(Webhook { http, url, secrets, is_gone: AtomicBool::new(false) }))
}

/// Keys that sign notifications. A file of keys is read again when it changes.
fn secrets(webhook: &WebhookSettings) -> Result<Kept<Vec<Secret>>, String> {
    let opened = match webhook.secret_file.clone() {
        Some(file) => {
            let (webhook, setting) = (webhook.clone(), "service.notifications.webhook.secret_file");
            Kept::open(vec![file.clone()], move || {
                let text = read_protected(setting, &file, OPEN_TO_OTHERS, SECRET_HELP)?;
                webhook.secrets_in(&text).map_err(|why| BadFile { setting, file: file.clone(), why })
            })
        }
        None => {
            let secrets = webhook.secrets_in(&webhook.secret);
            let secrets = secrets.map_err(|why| format!("service.notifications.webhook.secret {why}"))?;
            Kept::open(vec![], move || Ok(secrets.clone()))
        }
    };
    opened.map_err(|bad| bad.to_string())
}

fn address(url: &str) -> Result<Url, String> {
    let key = "service.notifications.webhook.url";
    let url = Url::parse(url).map_err(|error| format!("{key} is not a URL: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(format!("{key} begins with {scheme}, which is neither http nor https")),
    }
}

/// Returns the part of the receiver's address that may be shown. Its path is often the only secret.
pub fn shown(url: &str) -> Option<String> {
    address(url).ok().map(|url| url.origin().ascii_serialization())
}

fn notification(task: &Task) -> Result<Notification, CallFailed> {
    serde_json::from_str(&task.payload)
        .map_err(|error| CallFailed::permanent("the task has no valid notification").caused_by(error))
}

/// Delivers to a receiver.
///
/// A 4xx that repetition does not change ends the attempts at that notification. Its findings count as not reported, so
/// that a later notification has them. After 410 nothing is sent until the next start (Standard Webhooks).
struct Webhook {
    http: Client,
    url: Url,
    secrets: Kept<Vec<Secret>>,
    is_gone: AtomicBool,
}

const GONE: &str = "the receiver of notifications is gone (410): set another \
    service.notifications.webhook.url and restart admin; until then the log has the notifications";

impl Webhook {
    async fn send(&self, task: &Task) -> Result<Value, CallFailed> {
        let notification = notification(task)?;
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(CallFailed::permanent(GONE));
        }
        let (id, body, second) =
            (notification.id.to_string(), notification.body(), Timestamp::now().as_second());
        let request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", second)
            .header("webhook-signature", signatures(&self.secrets.current(), &id, second, &body))
            .body(body);
        let answer = request.send().await;
        record_external(&self.url, &answer);
        let response = answer.map_err(|error| {
            // The address may be secret.
            CallFailed::transient("the receiver of notifications does not answer")
                .caused_by(error.without_url())
        })?;
        // The body is not read, as it may be endless.
        let status = response.status();
        if status.is_success() {
            return Ok(json!({ "status": status.as_u16() }));
        }
        if status == StatusCode::GONE {
            if !self.is_gone.swap(true, Ordering::Relaxed) {
                error!("{GONE}");
            }
            return Err(CallFailed::permanent(GONE));
        }
        let not_followed = if status.is_redirection() { ", which is not followed" } else { "" };
        let context = format!("the receiver of notifications answered {status}{not_followed}");
        if status.is_client_error() && !is_passing(status) {
            warn!("{context}: this notification is not sent again, its findings will be");
            return Err(CallFailed::permanent(context));
        }
        let retry_after = retry_after(status, response.headers(), Timestamp::now());
        Err(CallFailed { retry_after, ..CallFailed::transient(context) })
    }
}

impl TaskHandler for Webhook {
    fn dependency(&self) -> &'static str {
        RECEIVER
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        Box::pin(self.send(task))
    }
}

/// A line for standard output, with a channel that reports it written.
type Printed = (String, oneshot::Sender<()>);

/// Prints each notification in one line. A thread of its own writes, as a blocked reader blocks the writer.
struct StandardOutput(SyncSender<Printed>);

impl StandardOutput {
    fn new() -> std::io::Result<Self> {
        let (lines, printed) = sync_channel::<Printed>(1);
        std::thread::Builder::new().name("notifications".to_owned()).spawn(move || {
            for (line, done) in printed {
                // A closed pipe is no failure: the log has the line too.
                let _ = writeln!(std::io::stdout(), "{line}");
                let _ = done.send(());
            }
        })?;
        Ok(Self(lines))
    }

    async fn print(&self, task: &Task) -> Result<Value, CallFailed> {
        let notification = notification(task)?;
        let stuck = || CallFailed::transient("standard output is not read");
        let (done, written) = oneshot::channel();
        match self.0.try_send((format!("{} {}", notification.at, notification.text()), done)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(stuck()),
        }
        written.await.map(|()| Value::Null).map_err(|_| stuck())
    }
}

impl TaskHandler for StandardOutput {
    fn dependency(&self) -> &'static str {
        RECEIVER
    }

    fn call<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<Value, CallFailed>> {
        Box::pin(self.print(task))
    }
}
