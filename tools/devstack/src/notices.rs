//! Shell: what admin tells people by itself, said in the foreground too.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use super::member::Member;
use super::system::System;
use cli::say;
use cli::text::printable;
use client::http::Http;

/// Admin itself looks less often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Says what people are told, until dropped; what they were told before is known.
pub async fn watch(system: &System, http: Http) {
    let url = format!("{}/api/admin/push", system.url_of(Member::ADMIN));
    let mut said = None;
    loop {
        // An admin that is away tells nobody anything, and says so afterwards.
        if let Ok(answer) = http.get_within(&url, LOOK_EVERY).await
            && let Some(notices) = answer.body["notices"].as_array()
        {
            for text in news(&mut said, notices) {
                say(&format!("notice: {}", printable(&text)));
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Where notices go, as admin says.
pub async fn told(system: &System) -> String {
    match receiver(system).await {
        Ok(Some(receiver)) => format!("go to {receiver} (does it answer? sagactl push test)"),
        Ok(None) => {
            "go to standard output and the log of admin: nobody is called (README.md, Who is told)".to_owned()
        }
        Err(error) => format!("are told by admin, which does not say to whom: {error:#}"),
    }
}

async fn receiver(system: &System) -> anyhow::Result<Option<String>> {
    let url = format!("{}/api/admin/push", system.url_of(Member::ADMIN));
    let answer = Http::by(&system.entry()?)?.get_within(&url, LOOK_EVERY).await?;
    if !answer.status.is_success() {
        bail!("{}", answer.complaint());
    }
    Ok(answer.body["to"].as_str().map(printable))
}

/// What was not said yet, the oldest first. Of the first look all has been said.
fn news(said: &mut Option<BTreeSet<String>>, notices: &[Value]) -> Vec<String> {
    let text = |notice: &Value, name: &str| notice[name].as_str().unwrap_or_default().to_owned();
    let ids = notices.iter().map(|notice| text(notice, "id")).collect();
    let Some(before) = said.replace(ids) else { return vec![] };
    let new = notices.iter().rev().filter(|notice| !before.contains(&text(notice, "id")));
    new.map(|notice| text(notice, "text")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_notice_is_said_once_in_order_and_none_of_an_earlier_day() {
        let notice = |id: u32| json!({"id": id.to_string(), "text": format!("notice {id}")});
        let mut said = None;
        assert_eq!(news(&mut said, &[notice(1)]), [""; 0]);
        assert_eq!(news(&mut said, &[notice(3), notice(2), notice(1)]), ["notice 2", "notice 3"]);
        assert_eq!(news(&mut said, &[notice(3), notice(2), notice(1)]), [""; 0]);
    }
}
