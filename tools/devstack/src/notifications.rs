//! Shell: notifications of admin, printed in the foreground too.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use cli::print;
use cli::text::printable;
use client::http::Http;
use serde_json::Value;

use super::component::Component;
use super::system::System;

/// Poll interval; admin itself checks less often.
const POLL: Duration = Duration::from_secs(2);

/// Prints new notifications until dropped.
pub async fn watch(system: &System, http: Http) {
    let url = format!("{}/api/admin/notifications", system.url_of(Component::ADMIN));
    let mut seen = None;
    loop {
        // An admin that is down sends nothing either.
        if let Ok(answer) = http.get_within(&url, POLL).await
            && let Some(sent) = answer.body["notifications"].as_array()
        {
            for text in new_texts(&mut seen, sent) {
                print(&format!("notification: {}", printable(&text)));
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Describes the receiver of notifications.
pub async fn receiver(system: &System) -> String {
    match webhook(system).await {
        Ok(Some(webhook)) => format!("go to {webhook} (does it answer? sagactl notifications test)"),
        Ok(None) => {
            "go to standard output and the log of admin: nobody is called (docs/operations.md, Notifications)"
                .to_owned()
        }
        Err(error) => format!("their receiver is unknown: {error:#}"),
    }
}

async fn webhook(system: &System) -> anyhow::Result<Option<String>> {
    let url = format!("{}/api/admin/notifications", system.url_of(Component::ADMIN));
    let answer = Http::with_access(&system.access()?)?.get_within(&url, POLL).await?;
    if !answer.status.is_success() {
        bail!("{}", answer.error_text());
    }
    Ok(answer.body["to"].as_str().map(printable))
}

/// Texts that were not seen before, oldest first. At the first call all of them count as seen.
fn new_texts(seen: &mut Option<BTreeSet<String>>, sent: &[Value]) -> Vec<String> {
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let ids = sent.iter().map(|one| text(one, "id")).collect();
    let Some(before) = seen.replace(ids) else { return vec![] };
    let new = sent.iter().rev().filter(|one| !before.contains(&text(one, "id")));
    new.map(|one| text(one, "text")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_notification_is_printed_once_in_order_and_earlier_ones_are_skipped() {
        let sent = |id: u32| json!({"id": id.to_string(), "text": format!("finding {id}")});
        let mut seen = None;
        assert_eq!(new_texts(&mut seen, &[sent(1)]), [""; 0]);
        assert_eq!(new_texts(&mut seen, &[sent(3), sent(2), sent(1)]), ["finding 2", "finding 3"]);
        assert_eq!(new_texts(&mut seen, &[sent(3), sent(2), sent(1)]), [""; 0]);
    }
}
