//! Shell: what sends notices: to the receiver that the settings name, signed, or to standard output.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use contract::overview::RECEIVER;
use futures::future::BoxFuture;
use jiff::Timestamp;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};
use saga_core::waiting::Task;
use saga_engine::host::reloaded::read_protected;
use saga_engine::host::settings::Settings;
use saga_engine::runtime::task_runner::{CallFailed, TaskHandler};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::AdminSettings;
use crate::push::notice::Notice;
use crate::push::signing::{Secret, signatures};

/// A connection takes no longer: who is not there is tried again.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// Whoever else may read the file of a secret knows it; a group may, as that of a pod has to.
const OPEN_TO_OTHERS: u32 = 0o007;

/// Said where there is no such file.
const HOW_A_SECRET_IS_MADE: &str = "name the file with what notices are signed with: `(umask 077; echo \
    whsec_$(openssl rand -base64 24) > FILE)` makes one";

/// What sends the notices of this process.
///
/// # Errors
/// When the receiver's address or a secret is none; the sentence names the key and does not show it.
pub fn of(settings: &Settings<AdminSettings>) -> anyhow::Result<Arc<dyn TaskHandler>> {
    let push = &settings.service.push;
    let in_file = push.webhook.secret_file.as_ref().map(|file| {
        read_protected("service.push.webhook.secret_file", file, OPEN_TO_OTHERS, HOW_A_SECRET_IS_MADE)
    });
    let in_file = in_file.transpose().map_err(|bad| anyhow::anyhow!("settings: {bad}"))?;
    let secrets = push.checked(in_file.as_deref()).map_err(|why| anyhow::anyhow!("settings: {why}"))?;
    if push.webhook.url.is_empty() {
        return Ok(Arc::new(StandardOutput::new()?));
    }
    let url = address(&push.webhook.url).map_err(|why| anyhow::anyhow!("settings: {why}"))?;
    // What a receiver answers with is not followed: a notice goes where the settings say, and nowhere else.
    let http = Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_WITHIN)
        // Notices are rare: a connection that was kept would be a dead one.
        .pool_max_idle_per_host(0)
        .build()?;
    Ok(Arc::new(Webhook { http, url, secrets }))
}

/// The receiver's address.
///
/// # Errors
/// When it is none.
fn address(url: &str) -> Result<Url, String> {
    let key = "service.push.webhook.url";
    let url = Url::parse(url).map_err(|error| format!("{key} is no address: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(format!("{key} begins with {scheme}, which is neither http nor https")),
    }
}

/// What of the receiver's address may be shown: the rest is often all that keeps others from it.
#[must_use]
pub fn shown(url: &str) -> Option<String> {
    address(url).ok().map(|url| url.origin().ascii_serialization())
}

fn notice(task: &Task) -> Result<Notice, CallFailed> {
    serde_json::from_str(&task.payload).map_err(|error| CallFailed {
        context: "a notice that is none".to_owned(),
        is_final: true,
        source: Some(error.into()),
    })
}

/// Sends notices to a receiver. Nothing that it answers is final: whatever is wrong is wrong with all notices alike, and
/// is to be mended there or in the settings.
struct Webhook {
    http: Client,
    url: Url,
    secrets: Vec<Secret>,
}

impl Webhook {
    async fn send(&self, task: &Task) -> Result<Value, CallFailed> {
        let notice = notice(task)?;
        let (id, body, second) = (notice.id.to_string(), notice.body(), Timestamp::now().as_second());
        let request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", second)
            .header("webhook-signature", signatures(&self.secrets, &id, second, &body))
            .body(body);
        let response = request.send().await.map_err(|error| CallFailed {
            context: "the receiver of notices does not answer".to_owned(),
            is_final: false,
            // The address may be a secret.
            source: Some(Box::new(error.without_url())),
        })?;
        // What else it says is not read, however long it is.
        let status = response.status();
        if status.is_success() {
            return Ok(json!({ "status": status.as_u16() }));
        }
        let not_followed = if status.is_redirection() { ", which is not followed" } else { "" };
        let context = format!("the receiver of notices answered {status}{not_followed}");
        Err(CallFailed { context, is_final: false, source: None })
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

/// A line for standard output, and who waits until it is written.
type Printed = (String, oneshot::Sender<()>);

/// Says each notice in one line on standard output. A thread of its own writes: whoever reads there may not.
struct StandardOutput(SyncSender<Printed>);

impl StandardOutput {
    fn new() -> std::io::Result<Self> {
        let (lines, printed) = sync_channel::<Printed>(1);
        std::thread::Builder::new().name("notices".to_owned()).spawn(move || {
            for (line, done) in printed {
                // A closed pipe at the other end is no failure of ours; the log has the line too.
                let _ = writeln!(std::io::stdout(), "{line}");
                let _ = done.send(());
            }
        })?;
        Ok(Self(lines))
    }

    async fn say(&self, task: &Task) -> Result<Value, CallFailed> {
        let notice = notice(task)?;
        let stuck = || CallFailed {
            context: "standard output is not read".to_owned(),
            is_final: false,
            source: None,
        };
        let (done, written) = oneshot::channel();
        match self.0.try_send((format!("{} {}", notice.at, notice.in_words()), done)) {
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
        Box::pin(self.say(task))
    }
}
