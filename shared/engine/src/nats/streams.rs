//! Shell: the streams of the system: one for each service, and one for advisories.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::{ErrorCode, stream};
use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use saga_core::service::stream_of;

use super::connection::{BoxedError, BusFault, NatsBus};
use super::message::in_one_line;
use super::permissions::{ADVISORY_STREAM, TRACE_STREAM, kept_subject};
use crate::runtime::bus::BusError;

/// Kinds of advisories that the stream of advisories keeps.
pub(super) const ADVISORY_KINDS: [&str; 2] = ["MAX_DELIVERIES", "MSG_TERMINATED"];

/// Time for which a process may be cut off from the broker and still learn of a trace. Its own spans last for as long.
const TRACES_KEPT_FOR: Duration = Duration::from_mins(10);
/// Maximum size of the stream of traces: some hundred thousand traces.
const TRACE_STREAM_BYTES: i64 = 16 * 1024 * 1024;

impl NatsBus {
    /// Creates missing streams of these producers, and updates existing ones to the settings. Where the broker knows its
    /// users, each service creates its own.
    ///
    /// # Errors
    /// If the broker rejects a stream or does not answer.
    pub fn ensure_streams<'a>(
        &'a self,
        producers: &'a [&'static str],
    ) -> BoxFuture<'a, Result<(), BusFault>> {
        Box::pin(async move {
            for service in producers.iter().filter(|service| self.owns_stream_of(service)) {
                self.ensure_stream(service).await?;
            }
            self.ensure_advisory_stream().await
        })
    }

    /// Creates or updates the stream of one service.
    ///
    /// # Errors
    /// As [`NatsBus::ensure_streams`].
    pub async fn ensure_stream(&self, service: &str) -> Result<(), BusFault> {
        let config = stream::Config {
            name: stream_of(service),
            subjects: vec![format!("{service}.>")],
            retention: stream::RetentionPolicy::Limits,
            storage: stream::StorageType::File,
            num_replicas: self.settings.replicas,
            max_age: self.settings.retention,
            duplicate_window: self.settings.duplicate_window,
            allow_direct: true,
            ..stream::Config::default()
        };
        self.create_or_update(config).await
    }

    /// Creates the stream of advisories, which all services share.
    ///
    /// # Errors
    /// As [`NatsBus::ensure_streams`].
    pub(super) async fn ensure_advisory_stream(&self) -> Result<(), BusFault> {
        let config = stream::Config {
            name: ADVISORY_STREAM.to_owned(),
            subjects: ADVISORY_KINDS.map(|kind| format!("$JS.EVENT.ADVISORY.CONSUMER.{kind}.>")).to_vec(),
            storage: stream::StorageType::File,
            num_replicas: self.settings.replicas,
            max_age: self.settings.retention,
            ..stream::Config::default()
        };
        match self.settings.credentials {
            None => self.create_or_update(config).await,
            Some(_) => self.create_if_missing(config).await,
        }
    }

    /// Creates the stream of the traces that are kept, which all services share.
    ///
    /// # Errors
    /// As [`NatsBus::ensure_streams`].
    pub(super) async fn ensure_trace_stream(&self) -> Result<(), BusFault> {
        let config = stream::Config {
            name: TRACE_STREAM.to_owned(),
            subjects: vec![kept_subject("*")],
            storage: stream::StorageType::File,
            num_replicas: self.settings.replicas,
            max_age: TRACES_KEPT_FOR,
            max_bytes: TRACE_STREAM_BYTES,
            ..stream::Config::default()
        };
        self.create_if_missing(config).await
    }

    /// Creates a shared stream. No user may change an existing one.
    async fn create_if_missing(&self, config: stream::Config) -> Result<(), BusFault> {
        let stream = config.name.clone();
        let creating = async {
            match self.jetstream.create_stream(config).await {
                Ok(_) => Ok(()),
                Err(error) if is_existing(&error.kind()) => Ok(()),
                Err(error) => Err(error),
            }
        };
        self.in_time(creating).await.map_err(|source| BusFault::Stream { stream, source })
    }

    async fn create_or_update(&self, config: stream::Config) -> Result<(), BusFault> {
        let stream = config.name.clone();
        match self.in_time(self.jetstream.create_or_update_stream(config)).await {
            Ok(_) => Ok(()),
            Err(source) => Err(BusFault::Stream { stream, source }),
        }
    }

    /// Verifies that JetStream answers this connection, with a request about the stream of `service`. An error is an answer.
    ///
    /// # Errors
    /// If no answer comes in time.
    pub fn is_answered(&self, service: &str) -> BoxFuture<'_, Result<(), BusError>> {
        let subject = format!("$JS.API.STREAM.INFO.{}", stream_of(service));
        Box::pin(async move {
            let answer = async {
                match self.client.request(subject, "".into()).await {
                    Ok(_) => Ok(()),
                    Err(error) if error.kind() == RequestErrorKind::NoResponders => Ok(()),
                    Err(error) => Err(error),
                }
            };
            self.in_time(answer).await.map_err(in_one_line)
        })
    }

    /// Counts the messages of each subject in the stream of a service.
    ///
    /// # Errors
    /// If the broker does not answer.
    pub async fn subject_counts(&self, service: &str) -> Result<BTreeMap<String, u64>, BusFault> {
        let name = stream_of(service);
        let counts = async {
            let info = self.jetstream.get_stream_no_info(&name).await?.info_with_subjects(">").await?;
            let counts = info.map_ok(|(subject, count)| (subject, count as u64));
            counts.try_collect().await.map_err(BoxedError::from)
        };
        self.in_time(counts).await.map_err(|source| BusFault::Stream { stream: name.clone(), source })
    }
}

fn is_existing(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}
